"""How a job changes state: guarded in the statement, with its history in the same transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ingest.model import ENDS, RANK, Document, Failure, State
from ingest.state.tables import dead_letters, documents, generations, history, jobs, metadata

T = TypeVar("T")

SERVING = (State.READY, State.PARTIAL)
GONE = (State.SUPERSEDED, State.DELETED)
BOUND = 10_000  # SQLite takes 32,766 values in a statement


@dataclass(frozen=True, slots=True)
class Tx:
    """A transaction of one verb: its connection, the generation it speaks of, and its time."""

    connection: Connection
    generation: str
    now: float


@dataclass(frozen=True, slots=True)
class Move:
    """Into state ``to``, from ``sources`` (default: every state before it) where ``guard`` holds, with these values."""

    to: State
    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Sequence[State] = ()
    note: str | None = None
    guard: tuple[ColumnElement[bool], ...] = ()

    @property
    def allowed(self) -> tuple[State, ...]:
        return tuple(self.sources) or tuple(state for state in State if RANK[state] < RANK[self.to])


def slices(ids: Iterable[T]) -> Iterator[list[T]]:
    """The distinct ids in the order in which rows are locked, few enough for one statement."""
    ordered = sorted(set(ids))  # type: ignore[type-var]  # ids are strings or pairs of them
    for low in range(0, len(ordered), BOUND):
        yield ordered[low : low + BOUND]


def move(tx: Tx, ids: Iterable[str], change: Move) -> list[str]:
    """Ids of the jobs that changed; the others were in no state that allows it."""
    return [moved for part in slices(ids) for moved in _move(tx, part, change)]


def _move(tx: Tx, ids: list[str], change: Move) -> list[str]:
    guard = (jobs.c.generation == tx.generation, jobs.c.state.in_(change.allowed), *change.guard)
    query = select(jobs.c.document_id, jobs.c.state, jobs.c.run_id).where(*guard, jobs.c.document_id.in_(ids))
    before = tx.connection.execute(query.order_by(jobs.c.document_id).with_for_update()).all()
    if not before:
        return []
    moved = [row.document_id for row in before]
    stamp = "ended_at" if change.to in ENDS else f"{change.to}_at"
    values = {"state": change.to, stamp: tx.now, "mirror_due": True, **change.values}
    tx.connection.execute(update(jobs).where(*guard, jobs.c.document_id.in_(moved)).values(values))
    note = change.note or change.values.get("reason")
    lines = [
        {
            "document_id": row.document_id,
            "from_state": row.state,
            "to_state": change.to,
            "run_id": change.values.get("run_id") or row.run_id,
            "reason": note,
        }
        for row in before
    ]
    write_history(tx, lines)
    return moved


def write_history(tx: Tx, lines: Sequence[Mapping[str, Any]]) -> None:
    """Appends lines, which have all but generation and time."""
    if lines:
        rows = [{"generation": tx.generation, "at": tx.now, **line} for line in lines]
        tx.connection.execute(insert(history), rows)


def ended(state: State, failure: Failure | None, run_id: str = "") -> Move:
    """The move to an end, with its reason."""
    return Move(state, {**failure_values(failure), "lease_until": None}, guard=held_by(run_id))


def held_by(run_id: str) -> tuple[ColumnElement[bool], ...]:
    """What a job must be so that this run may move it; an empty name guards nothing."""
    return (jobs.c.run_id == run_id,) if run_id else ()


def failure_values(failure: Failure | None) -> dict[str, Any]:
    """The three columns of a failure."""
    if failure is None:
        return {"reason": None, "branch": None, "sentence": None}
    return {"reason": failure.reason, "branch": failure.branch, "sentence": failure.sentence}


@dataclass(frozen=True, slots=True)
class Again:
    """How often a job that goes back was tried, and what must hold so that it goes."""

    tries: Any = 1
    guard: tuple[ColumnElement[bool], ...] = ()


FIRST = Again()


def back_to_queue(tx: Tx, ids: Iterable[str], sources: Sequence[State], note: str, again: Again = FIRST) -> list[str]:
    """The one way back: queued again with a new attempt, its failures forgotten; ids of the jobs that went."""
    values = {
        **failure_values(None),
        "attempt": jobs.c.attempt + 1,
        "tries": again.tries,
        "run_id": None,
        "lease_until": None,
        "ended_at": None,
        "failed_chunks": 0,
        "settled_chunks": 0,
        "stale": False,
    }
    moved = move(tx, ids, Move(State.QUEUED, values, sources, note, again.guard))
    forget_letters(tx, moved)
    return moved


def forget_letters(tx: Tx, ids: Iterable[str]) -> None:
    """Removes dead letters: a new attempt makes all chunks anew and buries what fails again."""
    for part in slices(ids):
        tx.connection.execute(
            delete(dead_letters).where(dead_letters.c.generation == tx.generation, dead_letters.c.document_id.in_(part))
        )


def upsert(connection: Connection, table: str) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT; SQLAlchemy has no common one."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(metadata.tables[table])


def parser_of(tx: Tx) -> str:
    """The parser fingerprint of the generation; empty where the ledger does not know it."""
    query = select(generations.c.parser).where(generations.c.name == tx.generation)
    return str(tx.connection.execute(query).scalar() or "")


def read_documents(tx: Tx, ids: Collection[str]) -> list[Document]:
    """References to these documents, large ones first, with the attempt of their job."""
    joined = jobs.join(documents, jobs.c.document_id == documents.c.document_id)
    query = select(documents, jobs.c.attempt).select_from(joined).where(jobs.c.generation == tx.generation)
    found = [
        document_of(row)
        for part in slices(ids)
        for row in tx.connection.execute(query.where(jobs.c.document_id.in_(part)))
    ]
    return sorted(found, key=lambda document: (-document.size, document.document_id))


def document_of(row: Any) -> Document:
    """A row of documents with ``attempt``."""
    return Document(
        document_id=row.document_id,
        bucket=row.bucket,
        key=row.key,
        version=row.version,
        version_id=row.version_id,
        revision=row.revision,
        size=row.size,
        tenant=row.tenant,
        principals=tuple(row.principals),
        attempt=row.attempt,
    )
