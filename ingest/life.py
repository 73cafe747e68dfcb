"""The life of one key's document versions, as `ingest show` tells it: the same facts as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ingest.observe import moment
from ingest.state import Change, Generation, JobRow, Ledger, Operator, SegmentRow


@dataclass(frozen=True, slots=True)
class Life:
    """One document version: how it stands, its segments in order, and all its changes of state, oldest first."""

    job: JobRow
    segments: list[SegmentRow]
    history: list[Change]


def lives(ledger: Ledger, generation: Generation, key: str) -> list[Life]:
    """The versions of a key, newest first; none where the ledger does not know it."""
    parser = generation.fingerprints.parser
    return [
        Life(job, ledger.segments(parser, job.document_id), _changes(ledger, generation, job))
        for job in Operator(ledger).versions(generation.name, key)
    ]


def _changes(ledger: Ledger, generation: Generation, job: JobRow) -> list[Change]:
    return [change for change in ledger.history(job.document_id) if change.generation == generation.name]


def as_json(found: Sequence[Life]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [asdict(life) for life in found]


def text(found: Sequence[Life]) -> str:
    """The lives for a person."""
    return "\n".join(line for life in found for line in _lines(life))


def _lines(life: Life) -> Iterator[str]:
    job = life.job
    newest = ", the newest" if job.is_newest else ""
    yield f"{job.key}  version {job.version} (revision {job.revision}{newest}): {_state(job)}"
    yield f"  document    {job.document_id}, {job.size:,} bytes, language {job.language or 'unknown'}"
    readers = ", ".join(job.principals) or "nobody"
    yield f"  access      tenant {job.tenant or 'none'}, readable by {readers}"
    if job.state is not None:
        yield f"  attempts    {job.attempt}{f', held by {job.run_id}' if job.run_id else ''}"
        yield f"  chunks      {_chunks(job)}"
    if job.failure:
        yield f"  failure     {job.failure.reason} ({job.failure.branch}): {job.failure.sentence}"
    yield from _segments(life.segments)
    if life.history:
        yield "  history"
        yield from (_change(change) for change in life.history)


def _state(job: JobRow) -> str:
    if job.is_delete_marker:
        return "delete marker"
    if job.state is None:
        return "not to be indexed"
    return f"{job.state}{', stale: the newer version can not be read' if job.stale else ''}"


def _chunks(job: JobRow) -> str:
    if job.chunk_count is None:
        return "not cut yet"
    found = "not counted yet" if job.found is None else f"{job.found:,} found in the index"
    failed = f", {job.failed_chunks:,} failed" if job.failed_chunks else ""
    return f"{job.chunk_count:,} expected, {found}{failed}"


def _segments(segments: Sequence[SegmentRow]) -> Iterator[str]:
    failed = sum(row.state == "failed" or bool(row.failed_pages) for row in segments)
    if segments:
        yield f"  segments    {len(segments):,}, {failed:,} of them not whole"
    for row in segments:
        pages = f"pages {row.page_from}-{row.page_to}"
        quality = "" if row.quality is None else f"  quality {row.quality:.2f}"
        tries = f"  {row.transient_retries} retries, {row.escalations} escalations"
        engine = f"{row.engine or '-':<12}{row.seconds:6.1f} s"
        yield f"    {row.number:>4}  {pages:<16}{row.state:<8}{engine}{quality}{tries}"
        if row.failure:
            yield f"          {row.failure.reason} ({row.failure.branch}): {row.failure.sentence}"
        for page, failure in row.failed_pages:
            yield f"          page {page}: {failure.reason} ({failure.branch}): {failure.sentence}"


def _change(change: Change) -> str:
    step = f"{change.from_state or 'new'} → {change.to_state}"
    return f"    {moment(change.at)}  {step:<26}{change.reason or '':<20} {change.run_id or ''}".rstrip()
