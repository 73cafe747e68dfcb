"""What operators type and read: selections, the life of a document, how things stand."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from ingest import life, status
from ingest.config import Config, load
from ingest.errors import ConfigError
from ingest.failure import failure
from ingest.model import Branch, State
from ingest.runs import fingerprints_of
from ingest.state import (
    ConstructRecord,
    Generation,
    Ledger,
    Operator,
    Plan,
    Sample,
    Selection,
    Settlement,
    Verified,
)
from jobs import redrive
from jobs.__main__ import main
from tests.ledger_steps import LATEST, version

CONFIG = """
source: {{bucket: b}}
artifacts: {{bucket: a}}
ledger: {{url: "sqlite:///{folder}/ledger.db"}}
index: {{url: "http://127.0.0.1:9"}}
embed: {{model: "hashing:8"}}
"""
GEN = "documents-1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "config.yaml"
    written.write_text(CONFIG.format(folder=tmp_path))
    return written


@pytest.fixture
def config(file: Path) -> Config:
    return load(file)


@pytest.fixture
def ledger(config: Config) -> Ledger:
    """A generation with a ready, a partial and an unsupported document; a run of it lives."""
    opened = Ledger(config.ledger.url)
    opened.migrate()
    prints = fingerprints_of(config)
    opened.add_generation(Generation(GEN, "documents", prints, "uuid"))
    opened.start_run("run-1", "backfill", "host:1:1", "config")
    opened.admit(GEN, [version(f"{name}.pdf", 1) for name in "abc"], LATEST)
    a, b, c = sorted(opened.take(GEN, "run-1", 10, 60), key=lambda d: d.key)
    for document, pages in ((a, ()), (b, ((25, failure("timeout", "60 s")),))):
        opened.plan(GEN, prints.parser, [Plan(document.document_id, "pdf", "plain", 40, ((1, 20), (21, 40)))])
        settlements = [Settlement(document.document_id, n, engine="pymupdf", quality=1.0) for n in (0,)]
        settlements.append(Settlement(document.document_id, 1, engine="pymupdf", failed_pages=pages))
        opened.settle(GEN, prints.parser, settlements)
        opened.record_chunks(GEN, ConstructRecord(document.document_id, 5, language="en"))
        opened.verified(GEN, [Verified(document.document_id, 5)])
    opened.end(GEN, c.document_id, State.UNSUPPORTED, failure("password_required"))
    return opened


# ---------------------------------------------------------------- redrive


def selection(*words: str) -> Selection:
    parser = argparse.ArgumentParser()
    redrive.arguments(parser)
    return redrive.selection_of(parser.parse_args(words), now=10_000.0)


def test_options_become_a_selection() -> None:
    assert selection() == Selection()
    asked = selection(
        "a.pdf", "--state", "unsupported,needs_review", "--branch", "poison", "--reason", "timeout, no_text",
        "--since", "2h", "--segments", "2,5-7", "--prefix", "x/",
    )  # fmt: skip
    assert asked == Selection(
        states=(State.UNSUPPORTED, State.NEEDS_REVIEW),
        branches=(Branch.POISON,),
        reasons=("timeout", "no_text"),
        ended_since=2800.0,
        keys=("a.pdf",),
        prefix="x/",
        segments=(2, 5, 6, 7),
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--state", "ready"], "--state ready: there is partial, failed, unsupported, needs_review"),
        (["--branch", "bad"], "--branch bad: there is transient"),
        (["--reason", "timeuot"], "--reason timeuot: there is password_required"),
        (["--since", "2 weeks"], "--since 2 weeks: a number with s, m, h or d"),
        (["--segments", "a"], "--segments a: numbers or ranges"),
    ],
)
def test_a_word_that_does_not_exist_is_refused_with_those_that_do(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selection(*words)
    assert told in str(caught.value)


def test_a_dry_run_lists_the_units_and_changes_nothing(
    ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ledger.counts(GEN)
    assert main(["redrive", "--config", str(file), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "1 failed units of 1 documents would be run again" in told
    assert "partial      b.pdf segment 1, page 25: timeout (degrade)" in told
    assert main(["redrive", "--config", str(file), "--dry-run", "--json", "--state", "unsupported"]) == 0
    (unit,) = json.loads(capsys.readouterr().out)
    assert (unit["key"], unit["failure"]["reason"], unit["kind"]) == ("c.pdf", "password_required", "document")
    assert ledger.counts(GEN) == before


# ---------------------------------------------------------------- show


def test_show_tells_the_life_of_a_document(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--config", str(file), "b.pdf"]) == 0
    told = capsys.readouterr().out
    for words in (
        "b.pdf  version v1 (revision 1, the newest): partial",
        "tenant t, readable by staff",
        "5 expected, 5 found in the index",
        "failure     timeout (degrade): Reading these pages took longer than allowed. (60 s)",
        "segments    2, 1 of them not whole",
        "pages 21-40",
        "page 25: timeout (degrade)",
        "new → queued",
        "assembling → embedding",
        "→ partial",
    ):
        assert words in told
    assert main(["show", "--config", str(file), "b.pdf", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["job"]["state"], len(found["segments"]), found["history"][0]["to_state"]) == ("partial", 2, "queued")


def test_show_of_an_unknown_document_says_so(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--config", str(file), "z.pdf"]) == 2
    assert "z.pdf: the ledger knows no such document" in capsys.readouterr().err
    assert main(["show", "--config", str(file), "a.pdf", "--version", "v9"]) == 2
    assert "its versions are v1" in capsys.readouterr().err


def test_versions_and_markers_are_told_newest_first(ledger: Ledger, config: Config) -> None:
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    (generation,) = ledger.generations("documents")
    told = life.text(life.lives(ledger, generation, "a.pdf"))
    assert told.index("version v2 (revision 2, the newest): queued") < told.index("version v1 (revision 1): ready")


# ---------------------------------------------------------------- status


def test_status_tells_how_things_stand(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.admit(GEN, [version("d.pdf", 1)], LATEST)
    ledger.take(GEN, "run-1", 1, 60)
    Operator(ledger).pause("documents", "ann on laptop", "disk")
    assert main(["status", "--config", str(file)]) == 0
    told = capsys.readouterr().out
    for words in (
        f"alias documents, index {GEN} (building)",
        "by ann on laptop: disk; `ingest resume` ends it",
        "run-1 (host): running after",
        "admitted 1, ready 1, partial 1, unsupported 1; 10 chunks served",
        "password_required 1, timeout 1;  by branch: poison 1",
        "1 segments of partial documents: `ingest redrive --state partial`",
        "d.pdf is admitted, taken",
    ):
        assert words in told
    assert main(["status", "--config", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"]["ready"], found["runs"][0]["run_id"], found["segments_to_retry"]) == (1, "run-1", 1)


def test_status_of_a_run_that_is_unknown_names_the_last_ones(
    ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--config", str(file), "--run", "run-9"]) == 2
    assert "the last ones are run-1" in capsys.readouterr().err


def test_rates_and_the_time_left_come_from_the_last_samples(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.status.time.time", lambda: 1000.0)
    for at, chunks in ((800.0, 0), (940.0, 100), (1000.0, 400)):
        ledger.add_sample("run-1", Sample(at, {"index.chunks": chunks, "parse.pages": 2 * chunks}))
    ledger.add_stats(
        "run-1",
        {
            "parse.pages": 100, "triage.documents": 3, "triage.pages": 200, "construct.chunks": 500,
            "index.chunks": 400,
        },
    )  # fmt: skip
    (generation,) = ledger.generations("documents")
    (run,) = status.look(ledger, generation).runs
    assert run.rates == {"pages": 10.0, "embedded": 0.0, "chunks": 5.0}
    assert run.eta_s == pytest.approx((5 * 200 - 400) / 5)


def test_a_run_whose_process_is_gone_is_not_called_running(ledger: Ledger) -> None:
    import socket

    ledger.start_run("run-2", "backfill", f"{socket.gethostname()}:999999999:1", "config")
    (generation,) = ledger.generations("documents")
    states = {run.run_id: run.state for run in status.look(ledger, generation).runs}
    assert states == {"run-1": "running", "run-2": "died"}


def test_pausing_twice_names_who_was_first(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--config", str(file), "--why", "disk"]) == 0
    assert "wait now; `ingest resume` lets them go on" in capsys.readouterr().out
    assert main(["pause", "--config", str(file)]) == 0
    assert "wait since" in capsys.readouterr().out
    assert main(["resume", "--config", str(file)]) == 0
    assert "go on within seconds" in capsys.readouterr().out
    assert main(["resume", "--config", str(file)]) == 0
    assert "were not paused" in capsys.readouterr().out


def test_what_dead_runs_left_is_told_by_where_it_stands(
    ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reconcile", "--config", str(file), "--dry-run"]) == 0
    assert "no dead run left a document" in capsys.readouterr().out
    ledger.admit(GEN, [version("d.pdf", 1)], LATEST)
    (document,) = ledger.take(GEN, "run-1", 1, 60)
    ledger.advance(GEN, [document.document_id], State.ASSEMBLING)
    ledger.end_run("run-1", "stopped")
    assert main(["reconcile", "--config", str(file), "--dry-run"]) == 0
    assert "assembling         1  last segment settled, not assembled" in capsys.readouterr().out


def test_a_configuration_without_an_index_yet_says_what_to_do(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["status"], ["show", "a.pdf"], ["redrive", "--dry-run"], ["reconcile", "--dry-run"]):
        assert main([verb[0], "--config", str(file), *verb[1:]]) == 5
        assert "run `ingest backfill` first" in capsys.readouterr().err
