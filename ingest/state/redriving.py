"""Redrive: which failed units a person means, and their way back into the queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select, update

from ingest.model import ENDS, Branch, Failure, State
from ingest.state.fanin import reopen_segments
from ingest.state.moves import GONE, Tx, back_to_queue, parser_of, slices
from ingest.state.tables import dead_letters, documents, jobs, segments

REDRIVEN = (State.PARTIAL, State.FAILED, State.UNSUPPORTED, State.NEEDS_REVIEW)


@dataclass(frozen=True, slots=True)
class Selection:
    """Failed units of documents in ``states``: those that all of the given filters take; an empty one takes all.

    ``ended_since`` in seconds since 1970, ``segments`` as numbers from 0.
    """

    states: tuple[State, ...] = (State.PARTIAL, State.FAILED)
    branches: tuple[Branch, ...] = ()
    reasons: tuple[str, ...] = ()
    ended_since: float = 0.0
    keys: tuple[str, ...] = ()
    prefix: str = ""
    segments: tuple[int, ...] = ()

    def takes(self, what: Failure, segment: int | None = None) -> bool:
        """Whether a unit that failed so is meant; ``segment`` is the number of the one it lies in."""
        return (
            (not self.branches or what.branch in self.branches)
            and (not self.reasons or what.reason in self.reasons)
            and (not self.segments or segment in self.segments)
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """A failed unit: ``kind`` is document, segment, page or chunk; number and pages are None where they don't apply."""

    document_id: str
    key: str
    version: str
    state: State
    kind: str
    failure: Failure
    segment: int | None = None
    page_from: int | None = None
    page_to: int | None = None
    chunk_id: str = ""


def units(tx: Tx, selection: Selection, after: str, limit: int) -> tuple[list[Unit], str]:
    """The meant units of the next ``limit`` documents behind ``after``, and the last of these; "" at the end."""
    rows = tx.connection.execute(_documents(tx, selection, after, limit)).all()
    by_id = {row.document_id: row for row in rows}
    inner = _inner(tx, by_id)
    found = [unit for row in rows for unit in _of(row, inner.get(row.document_id, ()))]
    meant = [unit for unit in found if selection.takes(unit.failure, unit.segment)]
    return meant, rows[-1].document_id if len(rows) == limit else ""


def _documents(tx: Tx, selection: Selection, after: str, limit: int) -> Any:
    columns = (jobs.c.document_id, jobs.c.state, jobs.c.reason, jobs.c.branch, jobs.c.sentence)
    where: list[ColumnElement[bool]] = [
        jobs.c.generation == tx.generation,
        jobs.c.state.in_([state for state in selection.states if state in ENDS and state not in GONE]),
        jobs.c.document_id > after,
        jobs.c.ended_at >= selection.ended_since,
    ]
    if selection.keys:
        where.append(documents.c.key.in_(selection.keys))
    if selection.prefix:
        where.append(documents.c.key.startswith(selection.prefix, autoescape=True))
    query = select(*columns, documents.c.key, documents.c.version)
    joined = query.join(documents, documents.c.document_id == jobs.c.document_id)
    return joined.where(*where).order_by(jobs.c.document_id).limit(limit)


def _of(row: Any, inner: Sequence[Mapping[str, Any]]) -> Iterator[Unit]:
    who = (row.document_id, row.key, row.version, State(row.state))
    yield from (Unit(*who, **unit) for unit in inner)
    if not inner:  # it failed as a whole, or what failed of it is not written down apart
        what = Failure(Branch(row.branch), row.reason, row.sentence) if row.reason else None
        yield Unit(*who, "document", what or Failure(Branch.TRANSIENT, "chunks_missing", ""))


def _inner(tx: Tx, ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The failed segments, pages and chunks of these documents."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    broken = or_(segments.c.state == "failed", segments.c.failed_page_count > 0)
    parser = parser_of(tx)
    for part in slices(ids):
        query = select(segments).where(segments.c.parser == parser, segments.c.document_id.in_(part), broken)
        for row in tx.connection.execute(query.order_by(segments.c.document_id, segments.c.number)):
            found[row.document_id] += _broken(row)
        letters = select(dead_letters).where(dead_letters.c.generation == tx.generation)
        for row in tx.connection.execute(letters.where(dead_letters.c.document_id.in_(part))):
            what = Failure(Branch(row.branch), row.reason, row.sentence)
            found[row.document_id].append({"kind": "chunk", "failure": what, "chunk_id": row.chunk_id})
    return found


def _broken(row: Any) -> list[dict[str, Any]]:
    if row.reason:
        what = Failure(Branch(row.branch), row.reason, row.sentence)
        pages = {"page_from": row.page_from, "page_to": row.page_to}
        return [{"kind": "segment", "failure": what, "segment": row.number, **pages}]
    return [
        {
            "kind": "page",
            "failure": Failure(Branch(branch), reason, sentence),
            "segment": row.number,
            "page_from": page,
            "page_to": page,
        }
        for page, branch, reason, sentence in row.failed_pages or ()
    ]


def redrive(tx: Tx, meant: Sequence[Unit], run_id: str) -> int:
    """How many documents of these units went back into the queue, for ``run_id``; of their segments only these open."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for unit in meant:
        numbers[unit.document_id] |= set() if unit.segment is None else {unit.segment}
    moved = back_to_queue(tx, numbers, REDRIVEN, "redriven")
    for part in slices(moved):
        here = (jobs.c.generation == tx.generation, jobs.c.document_id.in_(part))
        tx.connection.execute(update(jobs).where(*here).values(listed_by=run_id))
    reopen_segments(tx, parser_of(tx), moved, lambda row: row.number in numbers[row.document_id])
    return len(moved)
