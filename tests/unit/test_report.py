"""The report says what is in the ledger: nothing rounded up, nothing left out, the same in text and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ingest.config import Config, parse
from ingest.failure import failure
from ingest.model import ChunkFailure, State
from ingest.report import FAILURES_SHOWN, Report, build, exit_code, outcome, text, why_not_promoted
from ingest.state import ConstructRecord, Ledger, Settlement, Verified
from ingest.work import Run
from tests.ledger_steps import FINGERPRINTS, GEN, PARSER, admitted, constructed, plan_of, ready, version

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
RUN = "backfill-20261130-120000-4f2a"
WALL_S = 10_000  # so long that what the test itself takes is rounded away


@pytest.mark.parametrize(
    ("states", "expected", "code"),
    [
        ({}, "ready", 0),
        ({"ready": 3}, "ready", 0),
        ({"superseded": 3, "deleted": 1}, "ready", 0),
        ({"ready": 3, "failed": 0}, "ready", 0),
        ({"partial": 1}, "partial", 3),
        ({"ready": 999_999, "partial": 1}, "partial", 3),
        ({"ready": 999_999, "failed": 1}, "partial", 3),
        ({"ready": 1, "unsupported": 1}, "partial", 3),
        ({"ready": 1, "needs_review": 1}, "partial", 3),
        ({"ready": 1, "queued": 1}, "partial", 3),
        ({"ready": 1, "embedding": 1}, "partial", 3),
        ({"failed": 1}, "failed", 4),
        ({"admitted": 19, "failed": 1}, "partial", 3),  # another run works on them
        ({"unsupported": 2, "superseded": 1}, "failed", 4),
        ({"needs_review": 1, "queued": 4}, "failed", 4),
    ],
)
def test_nothing_is_rounded_to_ready(states: dict[str, int], expected: str, code: int) -> None:
    assert outcome(states) == expected
    assert exit_code(states) == code


@pytest.mark.parametrize("state", State)
def test_every_single_state_has_an_outcome_and_only_three_are_clean(state: State) -> None:
    assert (exit_code({state.value: 1}) == 0) == (state in (State.READY, State.SUPERSEDED, State.DELETED))


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ({"ready": 9}, ""),
        ({"ready": 9, "unsupported": 14, "needs_review": 14, "superseded": 2, "deleted": 1}, ""),
        ({}, "no document of it is ready"),
        ({"unsupported": 3}, "no document of it is ready"),
        ({"ready": 9, "failed": 1, "embedding": 2}, "not every document of it is whole: failed 1, embedding 2"),
        ({"ready": 9, "partial": 1}, "not every document of it is whole: partial 1"),
    ],
)
def test_readers_are_led_to_a_whole_index_only(states: dict[str, int], why: str) -> None:
    assert why_not_promoted(states) == why


# ---------------------------------------------------------------- from a ledger


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return parse(
        {
            "source": {"bucket": "b"},
            "artifacts": {"bucket": "a"},
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "index": {"url": "http://127.0.0.1:9200"},
            "embed": {"model": "hashing:8"},
        }
    )


@pytest.fixture
def ledger(config: Config) -> Iterator[Ledger]:
    opened = Ledger(config.ledger.url)
    opened.migrate()
    yield opened
    opened.close()


def mixed(ledger: Ledger) -> None:
    """One document ready, one partial (a segment, a page and a chunk of it failed), one unsupported, one waiting."""
    names = ("good.pdf", "half.pdf", "bad.pdf", "later.pdf")
    held = admitted(ledger, *(version(name, 1) for name in names), run_id=RUN)
    good, half, bad, _ = sorted(held, key=lambda document: names.index(document.key))
    ready(ledger, [good])
    ledger.plan(GEN, PARSER, [plan_of(half.document_id, 2)])
    page = ((4, failure("pages_missing")),)
    settlements = [
        Settlement(half.document_id, 0, engine="pymupdf", artifact="a/0", failed_pages=page, seconds=1.25),
        Settlement(half.document_id, 1, failure=failure("timeout", "60 s"), seconds=60.0),
    ]
    ledger.settle(GEN, PARSER, settlements)
    ledger.record_chunks(GEN, ConstructRecord(half.document_id, 5, tokens=100, unknown_tokens=40))
    ledger.bury(GEN, [ChunkFailure("c" * 64, half.document_id, "embed", failure("bad_vector"))])
    ledger.verified(GEN, [Verified(half.document_id, 4)])
    ledger.end(GEN, bad.document_id, State.UNSUPPORTED, failure("password_required"))
    ledger.add_stats(RUN, COUNTERS)


COUNTERS = {
    "triage.documents": 4, "triage.calls": 1, "triage.seconds": 0.5,
    "parse.pages": 39_000, "parse.calls": 2, "parse.seconds": 13_000.0,
    "construct.chunks": 8, "construct.unchanged": 0,
    "embed.chunks": 8, "embed.calls": 1, "embed.calls_full": 0, "embed.calls_short": 1, "embed.seconds": 2.0,
    "index.chunks": 7, "index.items.success": 7, "index.items.superseded": 0, "index.seconds": 0.25,
    "peak.index.in_flight": 1, "peak.embed.in_flight": 2, "peak.index.window": 1, "peak.first_chunk_s": 3.25,
    "blocks.parse": 2,
}  # fmt: skip


def built(config: Config, ledger: Ledger, run_id: str = RUN) -> Report:
    run = Run(run_id, config, GEN, FINGERPRINTS)
    return build(run, ledger, {"folder": 2, "excluded": 0}, time.monotonic() - WALL_S, GEN)


@pytest.fixture
def report(config: Config, ledger: Ledger) -> Report:
    mixed(ledger)
    return built(config, ledger)


def test_the_json_is_what_the_schema_says(report: Report) -> None:
    back = json.loads(json.dumps(report.as_json()))
    jsonschema.validate(back, SCHEMA)
    assert back == report.as_json()


def test_an_empty_run_has_a_report_too(config: Config, ledger: Ledger) -> None:
    admitted(ledger, run_id=RUN)
    empty = built(config, ledger)
    jsonschema.validate(empty.as_json(), SCHEMA)
    assert (empty.outcome, empty.exit_code, empty.documents) == ("ready", 0, {})
    assert "nothing to do: 0 chunks embedded, 0 written, 0 deleted" in text(empty)
    assert "documents   none" in text(empty)


def test_the_schema_knows_every_field_and_requires_it(report: Report) -> None:
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"]) == set(report.as_json())


def test_documents_are_counted_by_state(report: Report) -> None:
    assert report.documents == {"ready": 1, "partial": 1, "unsupported": 1, "admitted": 1}
    assert (report.outcome, report.exit_code, report.documents_touched) == ("partial", 3, 4)


def test_segments_are_counted_by_engine_and_state(report: Report) -> None:
    assert report.segments == {"pymupdf": {"parsed": 2}, "none": {"failed": 1}}


def test_expected_chunks_leave_out_the_buried_ones(report: Report) -> None:
    assert report.chunks["expected"] == 3 + 4
    assert report.chunks["written"] == 7
    assert report.chunks["embedded"] == 8


def test_chunks_on_their_way_are_expected_too(config: Config, ledger: Ledger) -> None:
    """An interrupted run has written some of them: without them it would show more written than expected."""
    (document, _) = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1), run_id=RUN)
    constructed(ledger, document.document_id, 40)
    assert built(config, ledger).chunks["expected"] == 40
    assert ledger.expected_chunks(GEN) == 0


def test_the_slowest_documents_are_those_whose_pages_took_longest(report: Report) -> None:
    assert [(row["key"], row["seconds"], row["pages"], row["chunks"]) for row in report.slowest] == [
        ("half.pdf", 61.25, 40, 5)
    ]
    assert "     61.2 s  half.pdf, 40 pages, 5 chunks" in text(report)


def test_every_failed_unit_is_listed_with_its_place_and_reason(report: Report) -> None:
    found = {row["unit"]: row for row in report.failures}
    assert {unit: (row["key"], row["reason"], row["branch"]) for unit, row in found.items()} == {
        "document": ("bad.pdf", "password_required", "poison"),
        "segment": ("half.pdf", "timeout", "degrade"),
        "page": ("half.pdf", "pages_missing", "degrade"),
        "chunk": ("half.pdf", "bad_vector", "degrade"),
    }
    assert (found["segment"]["page_from"], found["segment"]["page_to"]) == (21, 40)
    assert (found["page"]["page_from"], found["page"]["page_to"]) == (4, 4)
    assert found["chunk"]["chunk_id"] == "c" * 64


def test_rates_are_per_busy_and_per_wall_second(report: Report) -> None:
    parse_ = report.stages["parse"]
    assert (parse_["calls"], parse_["pages"], parse_["per_busy_second"]) == (2, 39_000, 3.0)
    assert parse_["per_wall_second"] == 3.9
    assert report.stages["verify"] == {
        "calls": 0, "documents": 0, "seconds": 0.0, "per_busy_second": 0.0, "per_wall_second": 0.0,
    }  # fmt: skip


def test_only_what_was_skipped_is_listed(report: Report) -> None:
    assert report.skipped == {"folder": 2}


def test_peaks_stand_beside_what_was_allowed(report: Report, config: Config) -> None:
    assert report.throttle["index_in_flight_peak"] == 1
    assert report.throttle["index_in_flight_allowed"] == config.index.in_flight
    assert report.peaks["first_chunk_s"] == 3.2
    assert 10 < report.peaks["driver_rss_mb"] < 10_000


def test_a_language_that_the_model_does_not_know_is_warned_of(report: Report) -> None:
    (warning,) = report.warnings
    assert "1 documents have more than 5% of their tokens unknown to hashing:8" in warning
    assert "half.pdf (40%)" in warning


def test_what_another_run_holds_is_said(config: Config, ledger: Ledger) -> None:
    mixed(ledger)
    assert any(f"1 documents were left to run {RUN}" in line for line in built(config, ledger, "sweep-1").warnings)


def test_the_verb_is_the_runs_and_not_a_part_of_its_name(config: Config, ledger: Ledger) -> None:
    admitted(ledger, run_id="nightly-7")
    assert built(config, ledger, "nightly-7").verb == "backfill"


# ---------------------------------------------------------------- as text


def test_the_text_tells_a_person_what_the_json_tells_a_program(report: Report) -> None:
    told = text(report)
    for part in (
        f"backfill {RUN}: partial in 2 h 47 min  (index {GEN}, alias documents)",
        "ready 1",
        "none failed 1, pymupdf parsed 2; 39,000 pages parsed in this run",
        "expected 7, reused 0, embedded 8, written 7",
        "full 0, short 1, failed 0;  bulk items success 7, superseded 0",
        "index 1 of 1 at most, embed 2 of 2; the throttle's window peaked at 1",
        "documents by branch: poison 1",
        "password_required  bad.pdf: The file is locked with a password. Upload a copy without one.",
        "half.pdf pages 21-40: Reading these pages took longer than allowed. (60 s)",
        "half.pdf page 4: The engine gave back fewer pages than there are.",
        "half.pdf chunk cccccccccccc: The model gave a vector",
        "skipped     folder 2",
        "s  half.pdf, 40 pages, 5 chunks",
        "warning     1 documents have more than 5%",
    ):
        assert part in told, told
    assert "nothing to do" not in told


def test_every_stage_has_a_line_with_its_unit(report: Report) -> None:
    rows: dict[str, list[str]] = {line.split()[0]: line.split() for line in text(report).splitlines() if line.split()}
    assert rows["parse"] == ["parse", "2", "39,000", "13000.0", "3.0", "3.9", "pages"]
    assert {rows[stage][-1] for stage in ("triage", "verify")} == {"documents"}
    assert {rows[stage][-1] for stage in ("construct", "embed", "index")} == {"chunks"}


def failed(number: int) -> dict[str, Any]:
    return {
        "unit": "document", "document_id": "d", "key": f"k{number}", "version": "v", "branch": "poison",
        "reason": "not_a_pdf", "sentence": "No.", "page_from": 0, "page_to": 0, "chunk_id": "",
    }  # fmt: skip


def test_a_thousand_failures_do_not_fill_the_screen(report: Report) -> None:
    told = text(replace(report, failures=[failed(n) for n in range(FAILURES_SHOWN)]))
    assert told.count("not_a_pdf") == 20
    assert "… the JSON report lists 1000, the ledger has more" in told
    assert "documents by branch: poison 1" in told  # counted, not taken from the list
