"""Metrics for Prometheus through Ray's exporter, which adds the prefix ``ray_``.

They are fed with the same counters as the report, by ``ROWS`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
ROWS_A_CALL = [1, 8, 16, 32, 48, 64, 80, 95, 96, 192, 480, 960]
BYTES = [1e4, 1e5, 5e5, 1e6, 2e6, 5e6, 1e7]


@dataclass(frozen=True, slots=True)
class Row:
    """A metric: which counters feed it (the groups of ``pattern`` are its labels), and what one observation is.

    A histogram observes the counter's value per unit of ``per``, a counter of the same process and moment.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    pattern: str
    meaning: str
    bounds: tuple[float, ...] = ()
    per: str = ""


ROWS = (
    Row("ingest_documents", "gauge", ("state",), r"now\.documents\.(\w+)", "documents of the run by state"),
    Row(
        "ingest_segments_total", "counter", ("stage", "outcome", "branch"), r"(parse)\.segments_(\w+)\.(\w+)",
        "segments by stage, outcome (parsed or failed) and branch (none where parsed)",
    ),
    Row("ingest_pages_total", "counter", (), r"parse\.pages", "pages parsed"),
    Row(
        "ingest_stage_duration_seconds", "histogram", ("stage",), r"(\w+)\.seconds", "seconds of one call of a stage",
        tuple(SECONDS), "{}.calls",
    ),
    Row("ingest_chunks_total", "counter", ("stage",), r"(construct|embed|index)\.chunks", "chunks that left a stage"),
    Row(
        "ingest_embed_batch_rows", "histogram", (), r"embed\.chunks", "rows of one embed call; 96 expected",
        tuple(ROWS_A_CALL), "embed.calls",
    ),
    Row("ingest_embed_tokens_total", "counter", (), r"embed\.tokens", "tokens embedded"),
    Row(
        "ingest_embed_reused_chunks_total", "counter", (), r"embed\.reused",
        "chunks whose vector was there already, of equal text under an equal embedder",
    ),
    Row("ingest_embed_truncated_chunks_total", "counter", (), r"embed\.truncated", "must stay 0"),
    Row("ingest_embed_calls_failed_total", "counter", (), r"embed\.calls_failed", "calls given up"),
    Row("ingest_bulk_items_total", "counter", ("status",), r"index\.items\.(\w+)", "bulk items by their last status"),
    Row("ingest_bulk_retries_total", "counter", ("status",), r"index\.retries\.(\w+)", "bulk items sent again, by why"),
    Row(
        "ingest_bulk_request_bytes", "histogram", (), r"index\.bytes", "bytes of one bulk request", tuple(BYTES),
        "index.requests",
    ),
    Row("ingest_index_throttle_window", "gauge", (), r"now\.index\.window", "bulk requests that may be in flight"),
    Row("ingest_index_in_flight", "gauge", (), r"now\.index\.in_flight", "bulk requests in flight"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """An observation of a metric, ``times`` times."""

    row: Row
    labels: Mapping[str, str]
    value: float
    times: int = 1


def points(values: Mapping[str, float]) -> Iterator[Point]:
    """What counters of one process since the last time tell each metric; see ``observe.Stats.drain``."""
    for name, value in values.items():
        for row in ROWS:
            if found := re.fullmatch(row.pattern, name):
                yield from _point(row, dict(zip(row.labels, found.groups(), strict=True)), value, values)


def _point(row: Row, labels: dict[str, str], value: float, values: Mapping[str, float]) -> Iterator[Point]:
    if row.kind == "gauge":
        yield Point(row, labels, value)
    elif row.kind == "counter":
        if value > 0:
            yield Point(row, labels, value)
    elif times := int(values.get(row.per.format(*labels.values()), 0)):
        yield Point(row, labels, value / times, times)


def export(values: Mapping[str, float]) -> None:
    """Gives the counters to Ray's exporter; without Ray, to nobody."""
    import ray

    if not ray.is_initialized():
        return
    for point in points(values):
        metric = _metric(point.row)
        for _ in range(point.times):
            _observe(metric, point)


def _observe(metric: Any, point: Point) -> None:
    tags = dict(point.labels)
    if point.row.kind == "gauge":
        metric.set(point.value, tags)
    elif point.row.kind == "counter":
        metric.inc(point.value, tags)
    else:
        metric.observe(point.value, tags)


@cache
def _metric(row: Row) -> Any:
    from ray.util.metrics import Counter, Gauge, Histogram

    if row.kind == "histogram":
        return Histogram(row.name, row.meaning, boundaries=list(row.bounds), tag_keys=row.labels)
    kinds = {"counter": Counter, "gauge": Gauge}
    return kinds[row.kind](row.name, row.meaning, tag_keys=row.labels)


def table() -> str:
    """``ROWS`` as a Markdown table."""
    rows = [f"| `ray_{row.name}` | {row.kind} | {', '.join(row.labels) or '–'} | {row.meaning} |" for row in ROWS]
    return "\n".join(["| name | kind | labels | meaning |", "|---|---|---|---|", *rows])
