"""One table from a run's counters to metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest import metrics
from ingest.metrics import ROWS, points
from ingest.observe import Stats

DRAINED = {
    "parse.pages": 160.0, "parse.segments_parsed.none": 8.0, "parse.segments_failed.degrade": 1.0,
    "parse.seconds": 6.0, "parse.calls": 2.0, "embed.chunks": 192.0, "embed.calls": 2.0, "embed.tokens": 4000.0,
    "index.items.success": 190.0, "index.items.superseded": 2.0, "index.retries.throttled": 5.0,
    "index.bytes": 3e6, "index.requests": 3.0, "now.index.window": 2.0, "now.documents.ready": 7.0,
    "peak.index.window": 4.0, "embed.calls_full": 2.0, "construct.tokens_from.240": 3.0,
}  # fmt: skip


def told() -> set[tuple[str, tuple[str, ...], float, int]]:
    return {(p.row.name, tuple(p.labels.values()), p.value, p.times) for p in points(DRAINED)}


def test_counters_of_a_process_become_metrics_with_labels() -> None:
    assert told() == {
        ("ingest_pages_total", (), 160.0, 1),
        ("ingest_segments_total", ("parse", "parsed", "none"), 8.0, 1),
        ("ingest_segments_total", ("parse", "failed", "degrade"), 1.0, 1),
        ("ingest_stage_duration_seconds", ("parse",), 3.0, 2),
        ("ingest_chunks_total", ("embed",), 192.0, 1),
        ("ingest_embed_batch_rows", (), 96.0, 2),
        ("ingest_embed_tokens_total", (), 4000.0, 1),
        ("ingest_bulk_items_total", ("success",), 190.0, 1),
        ("ingest_bulk_items_total", ("superseded",), 2.0, 1),
        ("ingest_bulk_retries_total", ("throttled",), 5.0, 1),
        ("ingest_bulk_request_bytes", (), 1e6, 3),
        ("ingest_index_throttle_window", (), 2.0, 1),
        ("ingest_documents", ("ready",), 7.0, 1),
    }


def test_nothing_is_told_of_counters_that_did_not_move() -> None:
    assert list(points({"parse.pages": 0.0, "parse.seconds": 0.0, "embed.tokens": 0.0})) == []


def test_what_was_drained_is_told_once() -> None:
    stats = Stats()
    stats.add("parse.pages", 3)
    assert [point.value for point in points(stats.drain())] == [3]
    assert list(points(stats.drain())) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_names_keep_to_the_rules_of_the_exporter(row: metrics.Row) -> None:
    assert row.name.startswith("ingest_")
    assert row.name.endswith("_total") == (row.kind == "counter"), "a counter ends so, in code too"
    assert bool(row.bounds) == (row.kind == "histogram") == bool(row.per)


def test_the_documentation_is_the_table() -> None:
    assert metrics.table() in (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
