"""`ingest plan` before a run, and whether the run then does what it said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from tests import corpus
from tests.harness import Site, Stack

DOCUMENTS = {
    **corpus.healthy(24, seed=9),
    **{f"books/{n}.pdf": corpus.make_pdf(12 + 3 * n, seed=n) for n in range(8)},
    **{f"notes/{n}.md": corpus.make_markdown(2 + n % 5, seed=n) for n in range(12)},
    "locked.pdf": corpus.make_encrypted(),
}


def planned(site: Site, capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["plan", "--config", str(site.config), *args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_does_what_was_planned_and_a_plan_writes_nothing(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(stack, tmp_path, {"prices.cpu_hour": 0.05, "prices.index_gb_month": 0.1})
    site.put(DOCUMENTS)
    indexes = set(site.search.indices.get(index="*"))
    before = planned(site, capsys, "--sample", str(len(DOCUMENTS) // 2))
    assert not (tmp_path / "ledger.db").exists()
    assert set(site.search.indices.get(index="*")) == indexes
    assert "Contents" not in site.s3.list_objects_v2(Bucket=site.artifacts)

    assert before["documents"] == len(DOCUMENTS)
    assert before["already_done"] == 0
    assert len(DOCUMENTS) // 3 < before["sampled"] < len(DOCUMENTS)
    assert before["hours"]["index"] is None, "no run has measured it yet"
    assert before["hours"]["parse"] > 0
    assert before["rates"]["embed"] > 0
    assert before["slowest_stage"] in ("parse", "embed")

    report = site.backfill().report
    chunks = report["chunks"]["expected"]
    assert abs(before["chunks"]["value"] - chunks) <= 0.15 * chunks
    assert before["chunks"]["low"] <= chunks <= before["chunks"]["high"]
    assert before["failures"].keys() <= {"password_required"}

    after = planned(site, capsys)
    assert (after["documents"], after["already_done"]) == (1, len(DOCUMENTS) - 1)
    assert after["hours"]["index"] is not None
    assert "bytes a chunk in" in after["index_gb_from"]


def test_what_is_read_whole_is_told_exactly(stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(stack, tmp_path)
    site.put({f"{n}.txt": corpus.make_text(seed=n) for n in range(6)} | {"empty.txt": b""})
    found = planned(site, capsys, "--sample", "100")
    report = site.backfill().report
    assert found["chunks"] == {key: float(report["chunks"]["expected"]) for key in ("value", "low", "high")}
    assert found["failures"] == {"empty_file": 1.0}
    assert main(["plan", "--config", str(site.config), "--prefix", "none/"]) == 0
    assert "0 documents, 0.0 MB (none)" in capsys.readouterr().out
