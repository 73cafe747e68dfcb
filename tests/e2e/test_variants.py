"""The same job in other ways: PostgreSQL, all versions, `ray job submit`, two at once, GPUs on one node."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import postgres
from tests import corpus
from tests.harness import Site, Stack, digest

DOCUMENTS = corpus.healthy(4, seed=3)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    server = postgres.start(tmp_path / "pg")
    yield server.url
    server.stop()


def test_all_versions_on_a_postgresql_ledger(stack: Stack, tmp_path: Path, postgres_url: str) -> None:
    site = Site(stack, tmp_path, {"ledger.url": postgres_url})
    versions = [site.put(DOCUMENTS), site.put({key: body + b"\n" for key, body in DOCUMENTS.items()})]
    outcome = site.backfill("--all-versions")

    assert outcome.code == 0, outcome.output[-3000:]
    chunks = site.chunks()
    found = {(fields["doc_key"], fields["doc_version"]) for fields in chunks.values()}
    assert found == {(key, version) for uploaded in versions for key, version in uploaded.items()}
    assert set(chunks) == {
        digest(site.bucket, fields["doc_key"], fields["doc_version"], str(number))
        for fields in chunks.values()
        for number in range(fields["chunk_count"])
    }


def test_ray_job_submit_ships_the_working_directory(stack: Stack, tmp_path: Path) -> None:
    site = Site(stack, tmp_path, {"index.actors": 2, "embed.concurrency": 3, "index.cpus": 0.05})
    site.put(DOCUMENTS)
    shipped = tmp_path / "shipped"
    for name in ("jobs", "ingest"):
        shutil.copytree(ROOT / name, shipped / name, ignore=shutil.ignore_patterns("__pycache__"))
    (shipped / "my.yaml").write_text(site.config.read_text())  # found only where the folder arrived
    command = [str(Path(sys.executable).with_name("ray")), "job", "submit", "--address", stack.jobs_url]
    backfill = ["python", "-m", "jobs", "backfill", "--config", "my.yaml", "--report", str(site.report)]
    job = subprocess.run(
        [*command, "--working-dir", ".", "--", *backfill],
        cwd=shipped, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert job.returncode == 0, job.stdout[-3000:] + job.stderr[-2000:]
    assert set(site.chunks()) == site.expected_ids(site.chunks(), set(DOCUMENTS))
    throttle = json.loads(site.report.read_text())["throttle"]  # of two index actors, over their shared window
    assert throttle["index_in_flight_allowed"] == 2
    assert 1 <= throttle["index_in_flight_peak"] < throttle["embed_in_flight_allowed"] == 3


def test_two_jobs_at_once_share_the_documents(stack: Stack, tmp_path: Path) -> None:
    small = {f"{stage}.cpus": 0.05 for stage in ("triage", "parse", "embed", "index")}  # both find a place
    site = Site(stack, tmp_path, {**small, "run.window_documents": 4})
    documents = corpus.healthy(12, seed=5)
    site.put(documents)
    other = tmp_path / "other.json"
    jobs = site.start(), site.start("--report", str(other))
    outcomes = [site.finish(job) for job in jobs]

    codes, output = {outcome.code for outcome in outcomes}, "\n".join(outcome.output[:3000] for outcome in outcomes)
    assert codes <= {0, 3}, output  # the first to end sees what the other still has in flight
    assert 0 in codes, output
    chunks = site.chunks()
    assert set(chunks) == site.expected_ids(chunks, set(documents))
    told = [outcomes[0].report["chunks"], json.loads(other.read_text())["chunks"]]
    assert sum(row["embedded"] for row in told) == sum(row["written"] for row in told) == len(chunks)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head with CPUs only and a second node with two logical GPUs."""
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1, num_gpus=2)
    yield made
    made.shutdown()


def test_embed_actors_sit_where_the_gpus_are(cluster: Any, stack: Stack, tmp_path: Path, postgres_url: str) -> None:
    import ray

    ray_api: Any = ray  # untyped in parts
    pools = {"embed.gpus": 1.0, "embed.actors": 2, "embed.concurrency": 1, "embed.cpus": 0.0}
    site = Site(stack, tmp_path, {**pools, "ledger.url": postgres_url})
    site.put(DOCUMENTS)
    job = subprocess.run(
        [sys.executable, "-m", "jobs", "backfill", "--config", str(site.config)],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert job.returncode == 0, job.stdout[-2000:] + job.stderr[-2000:]
    ray_api.init(address=cluster.address, logging_level=logging.ERROR)
    try:
        gpu_nodes = {node["NodeID"] for node in ray_api.nodes() if node["Resources"].get("GPU")}
        actors = ray_api._private.state.actors().values()
        embed = {a["Address"]["NodeID"] for a in actors if "Embed" in a["ActorClassName"]}
    finally:
        ray_api.shutdown()
    assert embed == gpu_nodes
    assert set(site.chunks()) == site.expected_ids(site.chunks(), set(DOCUMENTS))
