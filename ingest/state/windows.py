"""Runs and their windows: which documents a run holds, and how they come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, update

from ingest.errors import StoreRefused
from ingest.failure import failure
from ingest.model import IN_FLIGHT, Branch, Document, State
from ingest.state.fanin import reopen_segments
from ingest.state.moves import (
    GONE,
    SERVING,
    Again,
    Move,
    Tx,
    back_to_queue,
    ended,
    held_by,
    move,
    parser_of,
    read_documents,
    slices,
    upsert,
)
from ingest.state.records import Run
from ingest.state.tables import counters, documents, jobs, runs
from ingest.state.twins import ahead
from ingest.state.watching import forget_begun

BROKEN = (State.FAILED, State.UNSUPPORTED, State.NEEDS_REVIEW)


# ---------------------------------------------------------------- runs


def start_run(connection: Connection, run: Run) -> None:
    """Writes a run down; StoreRefused where its id names another one."""
    row = {
        "run_id": run.run_id,
        "verb": run.verb,
        "owner": run.owner,
        "state": run.state,
        "config_fingerprint": run.config_fingerprint,
        "started_at": run.started_at,
    }
    connection.execute(upsert(connection, "runs").on_conflict_do_nothing(index_elements=["run_id"]), [row])
    here = (runs.c.run_id == run.run_id, runs.c.owner == run.owner, runs.c.started_at == run.started_at)
    if connection.execute(select(runs.c.run_id).where(*here)).first() is None:
        raise StoreRefused(f"run id {run.run_id} is taken; give each run an id of its own")


def end_run(connection: Connection, run_id: str, values: Mapping[str, Any]) -> None:
    """Ends a run that has no end yet, or that another one took for dead."""
    open_ = or_(runs.c.ended_at.is_(None), runs.c.state == "dead")
    connection.execute(update(runs).where(runs.c.run_id == run_id, open_).values(dict(values)))


def stop_run(connection: Connection, run_id: str, reason: str) -> None:
    """Asks a run to stop; the first reason stays."""
    here = (runs.c.run_id == run_id, runs.c.stop_reason.is_(None))
    connection.execute(update(runs).where(*here).values(stop_reason=reason))


def read_runs(connection: Connection, *where: Any) -> list[Run]:
    """Runs in the order in which they started."""
    rows = connection.execute(select(runs).where(*where).order_by(runs.c.started_at, runs.c.run_id))
    return [
        Run(
            run_id=row.run_id,
            verb=row.verb,
            owner=row.owner,
            state=row.state,
            config_fingerprint=row.config_fingerprint,
            started_at=row.started_at,
            ended_at=row.ended_at,
            report=row.report,
            stop_reason=row.stop_reason or "",
        )
        for row in rows
    ]


def add_stats(connection: Connection, run_id: str, values: Mapping[str, float]) -> None:
    """Adds counters up, but keeps the largest of a ``peak.…`` and the last of a ``now.…``."""
    if not values:
        return
    # In one order, so that two processes never wait for each other.
    rows = [{"run_id": run_id, "name": name, "value": value} for name, value in sorted(values.items())]
    store = upsert(connection, "counters")
    mine, theirs = counters.c.value, store.excluded.value
    larger = case((mine > theirs, mine), else_=theirs)
    kept = ((counters.c.name.like("peak.%"), larger), (counters.c.name.like("now.%"), theirs))
    merged = case(*kept, else_=mine + theirs)
    connection.execute(store.on_conflict_do_update(index_elements=["run_id", "name"], set_={"value": merged}), rows)


def stats(connection: Connection, run_id: str) -> dict[str, float]:
    """The counters of a run."""
    query = select(counters.c.name, counters.c.value).where(counters.c.run_id == run_id)
    return {row.name: row.value for row in connection.execute(query)}


# ---------------------------------------------------------------- windows


def take(tx: Tx, run_id: str, limit: int, lease_s: float, listed_by: str = "") -> list[Document]:
    """Up to ``limit`` queued documents, large ones first, now held by the run; no two runs get the same.

    Of several that seem to be copies one goes ahead, the others wait in the queue once.
    """
    query = (
        select(jobs.c.document_id)
        .where(*_in_queue(tx, listed_by))
        .order_by(jobs.c.size.desc(), jobs.c.document_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    chosen = tx.connection.execute(query).scalars().all()
    held = Move(State.ADMITTED, {"run_id": run_id, "lease_until": tx.now + lease_s}, (State.QUEUED,))
    return read_documents(tx, move(tx, ahead(tx, chosen), held))


def queued(tx: Tx, listed_by: str = "") -> int:
    """Jobs in the queue."""
    return tx.connection.execute(select(func.count()).where(*_in_queue(tx, listed_by))).scalar_one()


def _in_queue(tx: Tx, listed_by: str) -> list[ColumnElement[bool]]:
    """All that is queued, or what the listing of the run ``listed_by`` named of it."""
    whole = [jobs.c.generation == tx.generation, jobs.c.state == State.QUEUED]
    return [*whole, jobs.c.listed_by == listed_by] if listed_by else whole


def requeue(tx: Tx, ids: Iterable[str], max_attempts: int, run_id: str) -> int:
    """How many jobs (of the run) went back into the queue: the unfinished ones, and those with a transient failure.

    One that was tried ``max_attempts`` times fails instead, or keeps its end. Segments that failed for a transient
    reason are open again.
    """
    mine, names = held_by(run_id), list(ids)
    worn = (*mine, jobs.c.tries >= max_attempts)
    end(tx, names, replace(ended(State.FAILED, failure("chunks_missing")), sources=IN_FLIGHT, guard=worn))
    unfinished = back_to_queue(tx, names, IN_FLIGHT, "unfinished", Again(jobs.c.tries + 1, mine))
    passing = (*mine, jobs.c.branch == Branch.TRANSIENT, jobs.c.tries < max_attempts)
    failed = back_to_queue(tx, names, (State.FAILED, State.PARTIAL), "retried", Again(jobs.c.tries + 1, passing))
    reopen_segments(tx, parser_of(tx), [*unfinished, *failed])
    return len(unfinished) + len(failed)


def give_back(tx: Tx, run_id: str) -> int:
    """How many jobs the run had in flight, which are queued again; no try of theirs is used up."""
    query = select(jobs.c.document_id).where(jobs.c.generation == tx.generation, jobs.c.run_id == run_id)
    held = tx.connection.execute(query.where(jobs.c.state.in_(IN_FLIGHT))).scalars().all()
    return len(back_to_queue(tx, held, IN_FLIGHT, "given back", Again(jobs.c.tries, held_by(run_id))))


def release(tx: Tx, dead: Collection[str], proven: Collection[str]) -> int:
    """Ends the runs that are dead; how many jobs came back from ended runs and from leases that ran out.

    Of the others, the ``proven`` ones are known to live and keep theirs: a lease decides only where nobody can ask.
    """
    for part in slices(dead):
        here = (runs.c.run_id.in_(part), runs.c.ended_at.is_(None))
        tx.connection.execute(update(runs).where(*here).values(state="dead", ended_at=tx.now))
    forget_begun(tx.connection, dead)
    found = tx.connection.execute(select(jobs.c.document_id).where(*_orphaned(tx, (), proven))).scalars().all()
    return len(back_to_queue(tx, found, IN_FLIGHT, "released"))


def orphans(tx: Tx, dead: Collection[str], proven: Collection[str]) -> dict[State, int]:
    """What ``release`` would bring back, by the state that it stands in."""
    query = select(jobs.c.state, func.count().label("number")).where(*_orphaned(tx, dead, proven))
    return {State(row.state): row.number for row in tx.connection.execute(query.group_by(jobs.c.state))}


def _orphaned(tx: Tx, dead: Collection[str], proven: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    live = select(runs.c.run_id).where(runs.c.ended_at.is_(None), runs.c.run_id.not_in(dead))
    lapsed = and_(jobs.c.lease_until < tx.now, jobs.c.run_id.not_in(proven))
    orphaned = or_(jobs.c.run_id.is_(None), jobs.c.run_id.not_in(live), lapsed)
    return (jobs.c.generation == tx.generation, jobs.c.state.in_(IN_FLIGHT), orphaned)


def held_by_others(tx: Tx, run_id: str) -> dict[str, int]:
    """Jobs in flight, by the other run that holds them."""
    query = (
        select(jobs.c.run_id, func.count().label("held"))
        .where(jobs.c.generation == tx.generation, jobs.c.state.in_(IN_FLIGHT))
        .where(jobs.c.run_id.is_not(None), jobs.c.run_id != run_id)
        .group_by(jobs.c.run_id)
    )
    return {row.run_id: row.held for row in tx.connection.execute(query)}


# ---------------------------------------------------------------- ends and ways back


def end(tx: Tx, ids: Iterable[str], change: Move) -> list[str]:
    """Moves to an end; where the newest version of a key can't be served, the one that serves is marked stale."""
    moved = move(tx, ids, change)
    if change.to in BROKEN:
        mark_stale(tx, moved)
    return moved


def mark_stale(tx: Tx, ids: Iterable[str]) -> int:
    """How many older versions still serve because these, the newest of their keys, can't."""
    marked = 0
    for part in slices(ids):
        broken = (
            select(jobs.c.key_hash)
            .join(documents, documents.c.document_id == jobs.c.document_id)
            .where(jobs.c.generation == tx.generation, jobs.c.document_id.in_(part))
            .where(jobs.c.state.in_(BROKEN), documents.c.is_newest)
        )
        hashes = tx.connection.execute(broken).scalars().all()
        here = (jobs.c.generation == tx.generation, jobs.c.key_hash.in_(hashes), jobs.c.document_id.not_in(part))
        serves = (jobs.c.state.in_(SERVING), jobs.c.in_index, ~jobs.c.stale)
        marked += tx.connection.execute(update(jobs).where(*here, *serves).values(stale=True)).rowcount
    return marked


def reopen(tx: Tx, ids: Iterable[str], why: str, all_versions: bool) -> int:
    """How many served documents went back into the queue because of ``why``.

    Unless ``all_versions``, an older version stays as it serves: from the queue it would only be superseded.
    """
    newest = select(documents.c.document_id).where(documents.c.document_id == jobs.c.document_id, documents.c.is_newest)
    guard = () if all_versions else (newest.correlate(jobs).exists(),)
    return len(back_to_queue(tx, ids, SERVING, why, Again(guard=guard)))


def forget(tx: Tx) -> int:
    """How many jobs went back into the queue because the index is gone; none holds a chunk any more."""
    query = select(jobs.c.document_id).where(jobs.c.generation == tx.generation, jobs.c.state.not_in(GONE))
    left = tuple(state for state in State if state not in (State.QUEUED, *GONE))
    moved = back_to_queue(tx, tx.connection.execute(query).scalars().all(), left, "index gone")
    blank = {
        "in_index": False, "access_changed": False, "attempt": 1, "chunk_count": None, "unchanged": 0, "found": None,
    }  # fmt: skip
    tx.connection.execute(update(jobs).where(jobs.c.generation == tx.generation).values(blank))
    return len(moved)
