"""The report that a run ends with: the same facts as text and as JSON (``docs/report.schema.json``)."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ingest.config import Config
from ingest.model import ENDS, IN_FLIGHT, State
from ingest.observe import duration
from ingest.runs import config_fingerprint
from ingest.state import FailureRow, Ledger, Operator, SegmentCount
from ingest.state.mirror import due_number
from ingest.work import Run

FAILURES_SHOWN = 1000  # in the JSON; the ledger has them all
UNKNOWN_SHARE = 0.05  # above it the model does not know the document's language
STAGES = ("triage", "parse", "construct", "embed", "index", "verify")
UNITS = {
    "triage": "documents",
    "parse": "pages",
    "construct": "chunks",
    "embed": "chunks",
    "index": "chunks",
    "verify": "documents",
}


@dataclass(frozen=True, slots=True)
class Report:
    """Facts of one run. Seconds are busy seconds summed over a stage's calls, ``wall_s`` is the clock's."""

    run_id: str
    verb: str
    outcome: str
    config: str
    generation: str
    alias: str
    wall_s: float
    documents: dict[str, int]
    documents_touched: int
    access_changed: int
    segments: dict[str, dict[str, int]]
    pages: int
    chunks: dict[str, int]
    embed_calls: dict[str, int]
    bulk_items: dict[str, int]
    bulk_retries: dict[str, int]
    repairs: int
    stages: dict[str, dict[str, float]]
    throttle: dict[str, int]
    peaks: dict[str, float]
    blocks: dict[str, int]
    skipped: dict[str, int]
    slowest: list[dict[str, Any]] = field(default_factory=list)
    branches: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str = ""  # why the run did not come to its end
    exit_code: int = 0

    def as_json(self) -> dict[str, Any]:
        """What the schema describes."""
        return asdict(self)


def build(run: Run, ledger: Ledger, skipped: Mapping[str, int], started: float, serving: str) -> Report:
    """The report of a run from the ledger: ``started`` by ``time.monotonic``.

    ``serving`` is what the alias points to, empty if unknown.
    """
    stats = ledger.stats(run.run_id)
    states = {state.value: number for state, number in ledger.counts(run.generation).items()}
    touched = ledger.counts(run.generation, run.run_id)
    known = ledger.run(run.run_id)
    wall = time.monotonic() - started
    return Report(
        run_id=run.run_id,
        verb=known.verb if known else "",
        outcome=outcome(states),
        config=config_fingerprint(run.config),
        generation=run.generation,
        alias=run.config.index.alias,
        wall_s=round(wall, 1),
        documents=states,
        documents_touched=sum(touched.values()),
        access_changed=int(stats.get("verify.access_changed", 0)),
        segments=_segments(ledger.segment_counts(run.generation)),
        pages=int(stats.get("parse.pages", 0)),
        chunks=_chunks(ledger.expected_chunks(run.generation, in_flight=True), stats),
        embed_calls={kind: int(stats.get(f"embed.calls_{kind}", 0)) for kind in ("full", "short", "failed")},
        bulk_items=_prefixed(stats, "index.items."),
        bulk_retries=_prefixed(stats, "index.retries."),
        repairs=int(stats.get("parse.repairs", 0)),
        stages={stage: _stage(stage, stats, wall) for stage in STAGES},
        throttle=_throttle(run.config, stats),
        peaks=_peaks(stats),
        blocks=_blocks(stats, ledger.segment_counts(run.generation, run.run_id)),
        skipped={reason: number for reason, number in skipped.items() if number},
        slowest=[asdict(row) for row in Operator(ledger).slowest(run.generation, run.run_id, 10)],
        branches={branch.value: number for branch, number in ledger.failure_counts(run.generation).items()},
        failures=[_failure(row) for row in ledger.failures(run.generation, None, FAILURES_SHOWN)],
        warnings=list(_warnings(run, ledger, serving)),
        exit_code=exit_code(states),
    )


def unopened(config: Config, verb: str, run_id: str) -> Report:
    """The report of a run that has no generation yet: nothing was done."""
    return Report(
        run_id=run_id,
        verb=verb,
        outcome="stopped",
        config=config_fingerprint(config),
        generation="",
        alias=config.index.alias,
        wall_s=0.0,
        documents={},
        documents_touched=0,
        access_changed=0,
        segments={},
        pages=0,
        chunks=_chunks(0, {}),
        embed_calls={"full": 0, "short": 0, "failed": 0},
        bulk_items={},
        bulk_retries={},
        repairs=0,
        stages={stage: _stage(stage, {}, 0.0) for stage in STAGES},
        throttle=_throttle(config, {}),
        peaks=_peaks({}),
        blocks={},
        skipped={},
    )


def outcome(states: Mapping[str, int]) -> str:
    """``ready`` only when nothing is missing; ``partial`` and ``failed`` are never rounded."""
    left = {State(state) for state, number in states.items() if number} - {State.READY, State.SUPERSEDED, State.DELETED}
    if not left:
        return "ready"
    served = left & {State.PARTIAL, *IN_FLIGHT} or states.get(State.READY)  # in flight: another run is at it
    return "partial" if served else "failed"


def why_not_promoted(states: Mapping[str, int]) -> str:
    """Why readers must not be led to an index with these documents; empty if they may.

    What no run can ever serve (unsupported) or only a person can (needs_review) is no reason: it is not in the index
    that serves now either.
    """
    if not states.get(State.READY):
        return "no document of it is ready"
    fine = {State.READY, State.UNSUPPORTED, State.NEEDS_REVIEW, State.SUPERSEDED, State.DELETED}
    left = {state: number for state, number in states.items() if number and State(state) not in fine}
    return f"not every document of it is whole: {_pairs(left)}" if left else ""


def exit_code(states: Mapping[str, int]) -> int:
    """0 everything served, 3 some of it, 4 nothing of it."""
    return {"ready": 0, "partial": 3, "failed": 4}[outcome(states)]


def _segments(counts: Sequence[SegmentCount]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in counts:
        found.setdefault(row.engine or "none", {})[row.state] = row.segments
    return found


def _failure(row: FailureRow) -> dict[str, Any]:
    flat = asdict(row)
    return {**flat.pop("failure"), **flat}


def _chunks(expected: int, stats: Mapping[str, float]) -> dict[str, int]:
    names = {
        "reused": "embed.reused",
        "embedded": "embed.chunks",
        "written": "index.items.success",
        "unchanged": "construct.unchanged",
        "superseded": "index.items.superseded",
        "deleted": "index.deleted",
        "truncated": "embed.truncated",
    }
    return {"expected": expected, **{name: int(stats.get(key, 0)) for name, key in names.items()}}


def _throttle(config: Config, stats: Mapping[str, float]) -> dict[str, int]:
    return {
        "window_peak": int(stats.get("peak.index.window", 0)),
        "index_in_flight_peak": int(stats.get("peak.index.in_flight", 0)),
        "index_in_flight_allowed": config.index.in_flight,
        "embed_in_flight_peak": int(stats.get("peak.embed.in_flight", 0)),
        "embed_in_flight_allowed": config.embed.in_flight,
    }


def _peaks(stats: Mapping[str, float]) -> dict[str, float]:
    return {
        "first_chunk_s": round(stats.get("peak.first_chunk_s", 0.0), 1),
        "driver_rss_mb": _rss_mb(),
        "object_store_mb": round(stats.get("peak.object_store_mb", 0.0), 1),
    }


def _blocks(stats: Mapping[str, float], segments: Sequence[SegmentCount]) -> dict[str, int]:
    """Ray tasks by operator, and all of them per 1,000 segments: each costs Ray 20 to 40 ms."""
    tasks = _prefixed(stats, "blocks.")
    number = sum(row.segments for row in segments)
    return {**tasks, "per_1000_segments": round(1000 * sum(tasks.values()) / number)} if number else tasks


def _prefixed(stats: Mapping[str, float], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): int(value) for name, value in sorted(stats.items()) if name.startswith(prefix)}


def _stage(stage: str, stats: Mapping[str, float], wall: float) -> dict[str, float]:
    units, seconds = stats.get(f"{stage}.{UNITS[stage]}", 0.0), stats.get(f"{stage}.seconds", 0.0)
    return {
        "calls": int(stats.get(f"{stage}.calls", 0)),
        UNITS[stage]: int(units),
        "seconds": round(seconds, 2),
        "per_busy_second": round(units / seconds, 1) if seconds else 0.0,
        "per_wall_second": round(units / wall, 1) if wall else 0.0,
    }


def _rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def _warnings(run: Run, ledger: Ledger, serving: str) -> Iterator[str]:
    if not serving:
        yield f"OpenSearch did not say what alias {run.config.index.alias} serves"
    elif serving != run.generation:
        yield (
            f"readers do not see this yet: alias {run.config.index.alias} serves {serving}; "
            "run backfill --promote to let it serve the new index"
        )
    unknown = Operator(ledger).unknown_token_count(run.generation, above=UNKNOWN_SHARE)
    if unknown:
        found = Operator(ledger).unknown_token_shares(run.generation, above=UNKNOWN_SHARE)
        worst = ", ".join(f"{row.key} ({row.share:.0%})" for row in found[:3])
        yield (
            f"{unknown:,} documents have more than {UNKNOWN_SHARE:.0%} of their tokens unknown to "
            f"{run.config.embed.model}: the model does not know their language and search will not find them well, "
            f"e.g. {worst}"
        )
    if run.config.mirror.table and (behind := ledger.ask(run.generation, due_number)):
        yield f"table {run.config.mirror.table} shows older states of {behind:,} documents; the next run writes them"
    held = ledger.held_by_others(run.generation, run.run_id)
    for other, number in held.items():
        yield f"{number} documents were left to run {other}: it is alive, or on another host and its lease runs"


# ---------------------------------------------------------------- text


def text(report: Report) -> str:
    """The report for a person."""
    return "\n".join(_lines(report))


def _lines(r: Report) -> Iterator[str]:
    yield f"{r.verb} {r.run_id}: {r.outcome} in {duration(r.wall_s)}  (index {r.generation or 'none'}, alias {r.alias})"
    if r.error:
        yield f"  stopped     {r.error}"
        if not r.generation:
            return
    elif not r.documents_touched and not r.chunks["deleted"] and not r.access_changed:
        held = sum(number for state, number in r.documents.items() if State(state) not in ENDS)
        rest = f"{held:,} documents are another run's" if held else "the index holds what is expected"
        yield f"  nothing to do: 0 chunks embedded, 0 written, 0 deleted; {rest}"
    yield f"  documents   {_pairs(r.documents) or 'none'}; {r.documents_touched:,} worked on in this run"
    if r.access_changed:
        yield f"  access      tenant or principals rewritten on {r.access_changed:,} documents; nothing embedded for it"
    engines = Counter({f"{engine} {state}": n for engine, by in r.segments.items() for state, n in by.items()})
    yield f"  segments    {_pairs(engines) or 'none'}; {r.pages:,} pages parsed in this run, {r.repairs:,} repairs"
    yield f"  chunks      {_pairs(r.chunks)}"
    again = f", sent again {_pairs(r.bulk_retries)}" if r.bulk_retries else ""
    yield f"  embed calls {_pairs(r.embed_calls)};  bulk items {_pairs(r.bulk_items) or 'none'}{again}"
    yield f"  in flight   {_in_flight(r.throttle)}"
    yield f"  peaks       {', '.join(f'{name} {value:g}' for name, value in r.peaks.items())}"
    yield f"  ray         tasks {_pairs(r.blocks) or 'none'};  configuration {r.config}"
    yield from _stage_lines(r)
    yield from _list(
        "slowest to parse",
        [
            f"{row['seconds']:7.1f} s  {row['key']}, {row['pages']:,} pages, {row['chunks']:,} chunks"
            for row in r.slowest
        ],
    )
    yield from _list("failures", list(_failure_lines(r)))
    if r.skipped:
        yield f"  skipped     {_pairs(r.skipped)}"
    yield from (f"  warning     {line}" for line in r.warnings)


def _in_flight(t: Mapping[str, int]) -> str:
    index = f"index {t['index_in_flight_peak']} of {t['index_in_flight_allowed']} at most"
    embed = f"embed {t['embed_in_flight_peak']} of {t['embed_in_flight_allowed']}"
    return f"{index}, {embed}; the throttle's window peaked at {t['window_peak']}"


def _stage_lines(r: Report) -> Iterator[str]:
    yield "  stage        calls      units    busy s   per busy s   per wall s"
    for stage, row in r.stages.items():
        unit = UNITS[stage]
        yield (
            f"  {stage:<10}{row['calls']:8,.0f}{row[unit]:11,.0f}{row['seconds']:10.1f}{row['per_busy_second']:13,.1f}"
            f"{row['per_wall_second']:13,.1f}  {unit}"
        )


def _failure_lines(r: Report) -> Iterator[str]:
    if r.branches:
        yield "documents by branch: " + _pairs(r.branches)
    for row in r.failures[:20]:
        yield f"{row['branch']:<9} {row['reason']:<18} {row['key']}{_where(row)}: {row['sentence']}"
    if len(r.failures) > 20:
        yield f"… the JSON report lists {len(r.failures)}" + (
            ", the ledger has more" if len(r.failures) == FAILURES_SHOWN else ""
        )


def _where(row: Mapping[str, Any]) -> str:
    if row["unit"] == "document":
        return ""
    first, last = row["page_from"], row["page_to"]
    pages = f"page {first}" if first == last else f"pages {first}-{last}"
    return f" chunk {row['chunk_id'][:12]}" if row["unit"] == "chunk" else f" {pages}"


def _list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"  {title}"
        yield from (f"    {line}" for line in lines)


def _pairs(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in counts.items())
