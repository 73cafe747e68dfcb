"""``python -m local`` as ``make`` calls it, in a copy of the project with ports of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil
import pytest

from local import net
from local.layout import SOURCE
from local.service import MARK

PORTS = ("OPENSEARCH_PORT", "MOTO_PORT", "RAY_PORT", "RAY_DASHBOARD_PORT")


class Copy:
    """The laptop stack in a folder of its own; OpenSearch is a server that the environment names."""

    def __init__(self, folder: Path, opensearch_url: str) -> None:
        self.folder = folder
        shutil.copytree(SOURCE, folder / "local", ignore=shutil.ignore_patterns("__pycache__"))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "LEDGER", "INGEST_", "RAY_"))}
        ports = {name: str(net.free_port()) for name in PORTS}
        self.environment = {**inherited, **ports, "OPENSEARCH_URL": opensearch_url}

    def __call__(self, verb: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "local", verb]
        environment = {**self.environment, **more}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def variables(self) -> dict[str, str]:
        """What a shell has that sourced the file of ``up``."""
        told = subprocess.run(
            ["sh", "-c", ". .local/env; env"], cwd=self.folder, env={}, capture_output=True, text=True, check=True
        )
        return dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)

    def processes(self) -> list[psutil.Process]:
        """All that the copy started."""
        return [process for process in psutil.process_iter() if str(self.folder) in _mark(process)]


def _mark(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "") if process.status() != psutil.STATUS_ZOMBIE else ""
    except (psutil.Error, OSError):
        return ""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, opensearch_url: str) -> Iterator[Copy]:
    copy = Copy(tmp_path_factory.mktemp("copy"), opensearch_url)
    yield copy
    copy("clean")


def states(output: str) -> dict[str, str]:
    return {line.split()[0]: line.split()[1] for line in output.splitlines() if line.startswith(("o", "m", "r", "l"))}


def test_up_starts_what_is_missing_and_uses_what_is_named(stack: Copy, opensearch_url: str) -> None:
    done = stack("up")
    assert done.returncode == 0, done.stderr
    assert states(done.stdout) == {"opensearch": "yours", "moto": "started", "ray": "started"}
    found = stack.variables()
    assert found["OPENSEARCH_URL"] == opensearch_url
    assert found["LEDGER_URL"] == f"sqlite:///{stack.folder}/.local/ledger.db"
    assert net.answers(f"{found['RAY_ADDRESS']}/api/version")


def test_buckets_and_queue_are_there_for_any_client(stack: Copy) -> None:
    found = stack.variables()
    session = boto3.Session(found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1")
    s3 = session.client("s3", endpoint_url=found["AWS_ENDPOINT_URL"])
    sqs = session.client("sqs", endpoint_url=found["AWS_ENDPOINT_URL"])
    assert s3.get_bucket_versioning(Bucket=found["INGEST_BUCKET"])["Status"] == "Enabled"
    assert s3.head_bucket(Bucket=found["INGEST_ARTIFACTS"])
    assert sqs.get_queue_url(QueueName=found["INGEST_QUEUE"])["QueueUrl"].endswith(found["INGEST_QUEUE"])


def test_up_again_keeps_what_runs_also_from_a_shell_that_sourced_its_variables(stack: Copy) -> None:
    for more in ({}, stack.variables()):
        done = stack("up", **more)
        assert states(done.stdout) == {"opensearch": "yours", "moto": "kept", "ray": "kept"}, done.stdout + done.stderr


def test_ray_starts_anew_where_jobs_would_find_another_ledger(stack: Copy) -> None:
    done = stack("up", LEDGER_URL="postgresql+psycopg://me:secret@127.0.0.1/mine")
    assert states(done.stdout) == {"opensearch": "yours", "moto": "kept", "ray": "started", "ledger": "yours"}
    assert "secret" not in done.stdout
    assert stack.variables()["LEDGER_URL"].endswith("/mine")


def test_a_named_server_that_is_away_is_told_and_nothing_is_started_in_its_place(stack: Copy) -> None:
    done = stack("up", AWS_ENDPOINT_URL="http://127.0.0.1:1")
    assert done.returncode == 1
    assert "AWS_ENDPOINT_URL=http://127.0.0.1:1 does not answer" in done.stderr


def test_down_leaves_nothing_running(stack: Copy) -> None:
    assert stack.processes()
    done = stack("down")
    assert "moto" in done.stdout
    assert "ray" in done.stdout
    assert stack.processes() == []
    assert stack("down").stdout == "nothing was running\n"
