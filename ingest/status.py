"""How things stand in the ledger at this moment: the same facts as text and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.model import State
from ingest.observe import duration, moment
from ingest.progress import chunks_left
from ingest.runs import is_alive
from ingest.state import Generation, Ledger, Oldest, Operator, Pause, Run

RATE_OVER_S = 120.0  # shorter, and a rate jumps with every window


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run that has no end yet, or the one that was asked for; rates per second of the last two minutes."""

    run_id: str
    verb: str
    owner: str
    state: str
    started_at: float
    ended_at: float | None
    stop_reason: str
    rates: dict[str, float]
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class Status:
    """What the ledger says of one generation, or of what one run of it works on."""

    alias: str
    generation: str
    generation_state: str
    pause: Pause | None
    runs: list[RunStatus]
    documents: dict[str, int]
    branches: dict[str, int]
    reasons: dict[str, int]
    chunks_expected: int
    segments_to_retry: int
    oldest: Oldest | None
    at: float

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def look(ledger: Ledger, generation: Generation, run_id: str | None = None) -> Status:
    """How the generation stands, or what one run of it works on."""
    operator, name = Operator(ledger), generation.name
    states = ledger.counts(name, run_id)
    shown = [run for run in (ledger.run(run_id),) if run] if run_id else ledger.live_runs()
    return Status(
        alias=generation.alias,
        generation=name,
        generation_state=generation.state,
        pause=ledger.paused(generation.alias),
        runs=[_run(ledger, name, run) for run in shown],
        documents={state.value: states[state] for state in State if state in states},
        branches={branch.value: number for branch, number in ledger.failure_counts(name).items()},
        reasons=operator.reasons(name, run_id),
        chunks_expected=ledger.expected_chunks(name),
        segments_to_retry=operator.to_retry(name),
        oldest=operator.oldest(name),
        at=time.time(),
    )


def _run(ledger: Ledger, generation: str, run: Run) -> RunStatus:
    stats = ledger.stats(run.run_id)
    rates = _rates(ledger, run)
    total = sum(ledger.counts(generation, run.run_id).values()) + ledger.queued(generation)
    left, rate = chunks_left(stats, total), rates.get("chunks", 0.0)
    return RunStatus(
        run_id=run.run_id,
        verb=run.verb,
        owner=run.owner,
        state=run.state if run.ended_at is not None or is_alive(run.owner) else "died",
        started_at=run.started_at,
        ended_at=run.ended_at,
        stop_reason=run.stop_reason,
        rates=rates,
        eta_s=round(left / rate, 1) if rate and left > 0 and run.ended_at is None else None,
    )


def _rates(ledger: Ledger, run: Run) -> dict[str, float]:
    """Pages parsed, chunks embedded and chunks indexed per second, over the last samples."""
    samples = Operator(ledger).samples(run.run_id, time.time() - RATE_OVER_S)
    if len(samples) < 2 or run.ended_at is not None:
        return {}
    first, last = samples[0], samples[-1]
    names = {"pages": "parse.pages", "embedded": "embed.chunks", "chunks": "index.chunks"}
    return {
        name: round((last.values.get(key, 0.0) - first.values.get(key, 0.0)) / (last.at - first.at), 2)
        for name, key in names.items()
    }


def text(status: Status) -> str:
    """The status for a person."""
    return "\n".join(_lines(status))


def _lines(s: Status) -> Iterator[str]:
    yield f"alias {s.alias}, index {s.generation} ({s.generation_state}), {moment(s.at)}"
    if s.pause:
        why = f": {s.pause.why}" if s.pause.why else ""
        yield f"  paused      since {moment(s.pause.since)} by {s.pause.who}{why}; `ingest resume` ends it"
    for run in s.runs:
        yield f"  run         {_told(run, s.at)}"
    if not s.runs:
        yield "  run         none"
    yield f"  documents   {_pairs(s.documents) or 'none'}; {s.chunks_expected:,} chunks served"
    if s.reasons:
        yield f"  failed      {_pairs(s.reasons)};  by branch: {_pairs(s.branches)}"
    if s.segments_to_retry:
        yield f"  to retry    {s.segments_to_retry:,} segments of partial documents: `ingest redrive --state partial`"
    if s.oldest:
        ago = duration(s.at - s.oldest.taken_at)
        yield f"  oldest      {s.oldest.key} is {s.oldest.state}, taken {ago} ago by {s.oldest.run_id}"


def _told(run: RunStatus, at: float) -> str:
    ended = f"{run.state} after {duration((run.ended_at or at) - run.started_at)}"
    rates = ", ".join(f"{value:g} {name}/s" for name, value in run.rates.items())
    eta = f", about {duration(run.eta_s)} left" if run.eta_s else ""
    stopping = f"; to stop: {run.stop_reason}" if run.stop_reason else ""
    return f"{run.run_id} ({run.owner.split(':')[0]}): {ended}{f'; {rates}' if rates else ''}{eta}{stopping}"


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())


def is_over(status: Status) -> bool:
    """Whether nothing moves any more: no run is live, or the one that was asked for has ended."""
    return all(run.ended_at is not None for run in status.runs)
