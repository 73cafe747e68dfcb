"""Batches, and their fan-in: the batch that brings a document's last chunk to index sends it on to verify."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, delete, func, insert, select, tuple_, update

from ingest.model import State
from ingest.state.moves import Move, Tx, move, slices, upsert
from ingest.state.records import Batch
from ingest.state.tables import batches, dead_letters, jobs, shares

EMBEDDED, INDEXED, FAILED = "embedded", "indexed", "failed"


def embedded(tx: Tx, run_id: str, made: Sequence[Batch]) -> None:
    """Notes that the model was called for these; one that is in the index already keeps that state."""
    rows = [
        {
            "generation": tx.generation,
            "batch_id": one.batch_id,
            "run_id": run_id,
            "state": EMBEDDED,
            "chunks": one.chunks,
            "attempts": 1,
            "failed_items": 0,
            "embedded_at": tx.now,
        }
        for one in sorted(made, key=lambda one: one.batch_id)
    ]
    if not rows:
        return
    kept = case((batches.c.state == INDEXED, INDEXED), else_=EMBEDDED)
    again = {"attempts": batches.c.attempts + 1, "run_id": run_id, "state": kept}
    store = upsert(tx.connection, "batches").on_conflict_do_update(
        index_elements=["generation", "batch_id"], set_=again
    )
    tx.connection.execute(store, rows)


def settle(tx: Tx, written: Sequence[Batch]) -> list[str]:
    """Documents whose last chunk came to index with one of these batches, now verifying; a repeat answers the same."""
    if not written:
        return []
    known = _lock(tx, {name for one in written for name in one.shares})
    wanted = [(one, name) for one in written for name in sorted(one.shares) if name in known]
    frozen = _frozen(tx, wanted, known)
    fresh: list[dict[str, Any]] = []
    counts = {name: row.settled_chunks for name, row in known.items()}
    for one, name in wanted:
        if (name, one.batch_id) not in frozen:
            counts[name] += one.shares[name]
            frozen[name, one.batch_id] = counts[name]
            fresh.append(_share(tx, known[name], one, counts[name]))
    _store(tx, fresh, counts)
    _note(tx, written)
    needs = _needs(tx, known)
    closed = {name for one, name in wanted if _closes(frozen[name, one.batch_id], one.shares[name], needs[name])}
    move(tx, closed, Move(State.VERIFYING))
    return sorted(closed)


def _closes(settled: int, own: int, need: int) -> bool:
    return settled - own < need <= settled


def _lock(tx: Tx, names: Collection[str]) -> dict[str, Any]:
    """The jobs, whose counts nobody else changes until this transaction ends."""
    columns = ("document_id", "attempt", "chunk_count", "unchanged", "failed_chunks", "settled_chunks")
    found: dict[str, Any] = {}
    for part in slices(names):
        query = select(*(jobs.c[name] for name in columns)).where(*_here(tx, part), jobs.c.chunk_count.is_not(None))
        rows = tx.connection.execute(query.order_by(jobs.c.document_id).with_for_update())
        found |= {row.document_id: row for row in rows}
    return found


def _here(tx: Tx, part: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return (jobs.c.generation == tx.generation, jobs.c.document_id.in_(part))


def _frozen(tx: Tx, wanted: Sequence[tuple[Batch, str]], known: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The counts that were stored with shares of these batches in the documents' present attempts."""
    keys = [(name, known[name].attempt, one.batch_id) for one, name in wanted]
    found: dict[tuple[str, str], int] = {}
    for part in slices(keys):
        key = tuple_(shares.c.document_id, shares.c.attempt, shares.c.batch_id)
        query = select(shares).where(shares.c.generation == tx.generation, key.in_(part))
        found |= {(row.document_id, row.batch_id): row.settled for row in tx.connection.execute(query)}
    return found


def _share(tx: Tx, job: Any, one: Batch, settled: int) -> dict[str, Any]:
    return {
        "generation": tx.generation,
        "document_id": job.document_id,
        "attempt": job.attempt,
        "batch_id": one.batch_id,
        "chunks": one.shares[job.document_id],
        "settled": settled,
    }


def _store(tx: Tx, fresh: Sequence[dict[str, Any]], counts: Mapping[str, int]) -> None:
    if not fresh:
        return
    tx.connection.execute(insert(shares), list(fresh))
    here = (jobs.c.generation == tx.generation, jobs.c.document_id == bindparam("id_"))
    rows = [{"id_": name, "settled_chunks": counts[name]} for name in sorted({row["document_id"] for row in fresh})]
    tx.connection.execute(update(jobs).where(*here).values(settled_chunks=bindparam("settled_chunks")), rows)


def _note(tx: Tx, written: Sequence[Batch]) -> None:
    here = (batches.c.generation == tx.generation, batches.c.batch_id == bindparam("id_"))
    rows = [
        {"id_": one.batch_id, "state": FAILED if one.failed_items else INDEXED, "failed_items": one.failed_items}
        for one in sorted(written, key=lambda one: one.batch_id)
    ]
    values: dict[str, Any] = {name: bindparam(name) for name in ("state", "failed_items")} | {"indexed_at": tx.now}
    tx.connection.execute(update(batches).where(*here).values(values), rows)


def _needs(tx: Tx, known: Mapping[str, Any]) -> dict[str, int]:
    """Chunks of each document that come to index: not those that are there already, nor those without a vector."""
    buried: dict[str, int] = defaultdict(int)
    for part in slices(name for name, row in known.items() if row.failed_chunks):
        query = select(dead_letters.c.document_id, func.count().label("number")).where(
            dead_letters.c.generation == tx.generation,
            dead_letters.c.document_id.in_(part),
            dead_letters.c.stage == "embed",
        )
        for row in tx.connection.execute(query.group_by(dead_letters.c.document_id)):
            buried[row.document_id] = row.number
    return {name: row.chunk_count - row.unchanged - buried[name] for name, row in known.items()}


def forget(tx: Tx, names: Collection[str]) -> None:
    """Forgets the shares of documents that came to their end."""
    for part in slices(names):
        tx.connection.execute(
            delete(shares).where(shares.c.generation == tx.generation, shares.c.document_id.in_(part))
        )
