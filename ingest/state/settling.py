"""From construct to the end: chunk counts, dead letters, verification, and what a new version replaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, func, or_, select, update

from ingest.model import ENDS, FORWARD, IN_FLIGHT, Branch, ChunkFailure, Document, Failure, State, key_hash
from ingest.state.batches import forget as forget_shares
from ingest.state.moves import (
    GONE,
    SERVING,
    Move,
    Tx,
    ended,
    failure_values,
    forget_letters,
    held_by,
    move,
    parser_of,
    read_documents,
    slices,
    upsert,
)
from ingest.state.records import ConstructRecord, Pending, Verified
from ingest.state.tables import dead_letters, documents, jobs, segments
from ingest.state.windows import BROKEN, end

AWAITED = (State.EMBEDDING, State.INDEXING, State.VERIFYING)


def record_chunks(tx: Tx, records: Sequence[ConstructRecord], run_id: str) -> None:
    """Writes down what construct made, by assignment, and moves on: to verifying where nothing has to be written."""
    if not records:
        return
    names = ("chunk_count", "unchanged", "tokens", "unknown_tokens", "language")
    rows = [
        {"id_": one.document_id, **{name: getattr(one, name) for name in names}}
        for one in sorted(records, key=lambda one: one.document_id)
    ]
    here = (jobs.c.generation == tx.generation, jobs.c.document_id == bindparam("id_"))
    # Before the first write and in any state: who deletes a document must know that there may be chunks of it.
    for part in slices(row["id_"] for row in rows):
        tx.connection.execute(update(jobs).where(*_here(tx, part)).values(in_index=True))
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    mine = held_by(run_id)
    tx.connection.execute(update(jobs).where(*here, *mine).values(values), rows)
    whole = [one.document_id for one in records if one.unchanged == one.chunk_count]
    move(tx, whole, Move(State.VERIFYING, guard=mine))
    move(tx, {one.document_id for one in records} - set(whole), Move(State.EMBEDDING, guard=mine))


def bury(tx: Tx, failures: Sequence[ChunkFailure]) -> None:
    """Stores dead letters; the number of failed chunks is counted, so a repeat adds nothing."""
    if not failures:
        return
    ids = {one.document_id for one in failures}
    for part in slices(ids):  # locked first: two burials at once would not see each other's rows
        tx.connection.execute(
            select(jobs.c.document_id).where(*_here(tx, part)).order_by(jobs.c.document_id).with_for_update()
        )
    rows = {
        one.chunk_id: {
            "generation": tx.generation,
            "chunk_id": one.chunk_id,
            "document_id": one.document_id,
            "stage": one.stage,
            **failure_values(one.failure),
            "created_at": tx.now,
        }
        for one in failures
    }
    store = upsert(tx.connection, "dead_letters").on_conflict_do_nothing(index_elements=["generation", "chunk_id"])
    tx.connection.execute(store, [rows[name] for name in sorted(rows)])
    letters = select(func.count()).where(
        dead_letters.c.generation == tx.generation, dead_letters.c.document_id == jobs.c.document_id
    )
    for part in slices(ids):
        tx.connection.execute(update(jobs).where(*_here(tx, part)).values(failed_chunks=letters.scalar_subquery()))


def _here(tx: Tx, part: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return (jobs.c.generation == tx.generation, jobs.c.document_id.in_(part))


# ---------------------------------------------------------------- verify


def to_verify(tx: Tx, run_id: str, ids: Collection[str] | None) -> list[Pending]:
    """Documents of the run (all, or of these) whose chunks are on their way or written."""
    here = (jobs.c.generation == tx.generation, jobs.c.run_id == run_id)
    query = select(jobs).where(*here, jobs.c.state.in_(AWAITED), jobs.c.chunk_count.is_not(None))
    if ids is None:
        return _pending(tx, tx.connection.execute(query).all())
    found = [row for part in slices(ids) for row in tx.connection.execute(query.where(jobs.c.document_id.in_(part)))]
    return _pending(tx, found)


def _pending(tx: Tx, rows: Sequence[Any]) -> list[Pending]:
    by_id = {row.document_id: row for row in rows}
    parts = _segment_counts(tx, by_id)
    return [
        Pending(document, by_id[name].chunk_count, by_id[name].failed_chunks, *parts.get(name, (0, 0)))
        for document in read_documents(tx, by_id)
        for name in (document.document_id,)
    ]


def _segment_counts(tx: Tx, ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """(failed, all) segments by document."""
    broken = or_(segments.c.state == "failed", segments.c.failed_page_count > 0)
    failed = func.sum(case((broken, 1), else_=0)).label("failed")
    query = select(segments.c.document_id, failed, func.count().label("all_")).group_by(segments.c.document_id)
    parser = parser_of(tx)
    return {
        row.document_id: (int(row.failed), row.all_)
        for part in slices(ids)
        for row in tx.connection.execute(query.where(segments.c.parser == parser, segments.c.document_id.in_(part)))
    }


def decide(pending: Pending, found: int) -> State | None:
    """The end that a count in the index proves, or None while it proves none.

    Where more was found than the dead letters leave, a repeat wrote a buried chunk after all: the count is right.
    """
    lost = pending.failed_chunks
    if pending.chunk_count == 0 or found not in (pending.chunk_count, pending.chunk_count - lost):
        return None
    if found == 0:
        return State.FAILED
    whole = found == pending.chunk_count and pending.failed_segments == 0
    return State.READY if whole else State.PARTIAL


def verified(tx: Tx, counts: Sequence[Verified]) -> dict[str, State]:
    """Ends the documents whose number of chunks found proves one; the state each of these came to."""
    found = {one.document_id: one.found for one in counts}
    rows = [
        row
        for part in slices(found)
        for row in tx.connection.execute(
            select(jobs).where(*_here(tx, part), jobs.c.state.in_(AWAITED), jobs.c.chunk_count.is_not(None))
        )
    ]
    ends: dict[State, list[Pending]] = defaultdict(list)
    for pending in _pending(tx, rows):
        if to := decide(pending, found[pending.document.document_id]):
            ends[to].append(pending)
    _note_found(tx, found)
    settled: dict[str, State] = {}
    for to, members in ends.items():
        settled |= dict.fromkeys(_finish(tx, to, members, found), to)
    return settled


def _note_found(tx: Tx, found: dict[str, int]) -> None:
    by_count: dict[int, list[str]] = defaultdict(list)
    for name, number in found.items():
        by_count[number].append(name)
    for number, names in sorted(by_count.items()):
        for part in slices(names):
            tx.connection.execute(update(jobs).where(*_here(tx, part)).values(found=number))


def _finish(tx: Tx, to: State, members: Sequence[Pending], found: dict[str, int]) -> list[str]:
    ids = [one.document.document_id for one in members]
    risen = [
        p.document.document_id for p in members if p.failed_chunks and found[p.document.document_id] == p.chunk_count
    ]
    forget_letters(tx, risen)
    for part in slices(risen):
        tx.connection.execute(update(jobs).where(*_here(tx, part)).values(failed_chunks=0))
    forget_shares(tx, ids)
    if to is State.READY:
        return end(tx, ids, ended(to, None))
    by_failure: dict[Failure | None, list[str]] = defaultdict(list)
    causes = _causes(tx, ids)
    for name in ids:
        by_failure[causes.get(name)].append(name)
    return [name for what, names in by_failure.items() for name in end(tx, names, ended(to, what))]


def _causes(tx: Tx, ids: Collection[str]) -> dict[str, Failure]:
    """One failure for each document: a transient one if it has one, since that is worth another try."""
    found: dict[str, list[Failure]] = defaultdict(list)
    parser = parser_of(tx)
    for part in slices(ids):
        letters = select(dead_letters).where(
            dead_letters.c.generation == tx.generation, dead_letters.c.document_id.in_(part)
        )
        for row in tx.connection.execute(letters.order_by(dead_letters.c.chunk_id)):
            found[row.document_id].append(Failure(Branch(row.branch), row.reason, row.sentence))
        broken = or_(segments.c.state == "failed", segments.c.failed_page_count > 0)
        query = select(segments).where(segments.c.parser == parser, segments.c.document_id.in_(part), broken)
        for row in tx.connection.execute(query.order_by(segments.c.number)):
            if row.reason:
                found[row.document_id].append(Failure(Branch(row.branch), row.reason, row.sentence))
            pages = row.failed_pages or ()
            found[row.document_id] += [Failure(Branch(b), reason, text) for _, b, reason, text in pages]
    return {name: min(all_, key=lambda one: one.branch != Branch.TRANSIENT) for name, all_ in found.items() if all_}


# ---------------------------------------------------------------- what a new version replaces


def superseded(tx: Tx, ids: Iterable[str], all_versions: bool) -> set[str]:
    """Those of these documents that must not be in the index: overtaken by a newer version or a delete marker."""
    newest = documents.alias("newest")
    gone = and_(newest.c.key_hash == documents.c.key_hash, newest.c.is_newest, newest.c.is_delete_marker)
    marked: ColumnElement[bool] = select(newest.c.document_id).where(gone).exists()
    overtaken = marked if all_versions else ~documents.c.is_newest
    found: set[str] = set()
    for part in slices(ids):
        query = select(documents.c.document_id).where(documents.c.document_id.in_(part), overtaken)
        found |= set(tx.connection.execute(query).scalars())
        ended_ = jobs.c.state.in_(GONE)
        found |= set(tx.connection.execute(select(jobs.c.document_id).where(*_here(tx, part), ended_)).scalars())
    return found


def older(tx: Tx, ids: Iterable[str] | None, limit: int | None) -> list[Document]:
    """Earlier versions that may hold chunks, idle, where the new one serves: of these keys, or ``limit`` of all."""
    new, old_document = jobs.alias("new"), documents.alias("old_document")
    found: list[str] = []
    for part in [None] if ids is None else slices(ids):
        these = () if part is None else (new.c.document_id.in_(part),)
        serves = (new.c.generation == tx.generation, new.c.state.in_(SERVING), *these)
        query = (
            select(jobs.c.document_id)
            .join(old_document, old_document.c.document_id == jobs.c.document_id)
            .join(new, and_(new.c.key_hash == jobs.c.key_hash, new.c.generation == jobs.c.generation))
            .join(documents, documents.c.document_id == new.c.document_id)
            .where(jobs.c.generation == tx.generation, jobs.c.in_index, jobs.c.state.not_in(IN_FLIGHT), *serves)
            .where(old_document.c.revision < documents.c.revision)
            .limit(limit if part is None else None)
        )
        found += tx.connection.execute(query).scalars()
    return read_documents(tx, found)


def to_delete(tx: Tx, limit: int) -> list[Document]:
    """The next that may hold chunks and that no run works on, whose key's newest revision is a delete marker."""
    query = (
        select(jobs.c.document_id)
        .join(documents, documents.c.key_hash == jobs.c.key_hash)
        .where(jobs.c.generation == tx.generation, jobs.c.in_index, jobs.c.state.not_in(IN_FLIGHT))
        .where(documents.c.is_newest, documents.c.is_delete_marker)
        .limit(limit)
    )
    return read_documents(tx, tx.connection.execute(query).scalars().all())


def broken(tx: Tx, limit: int) -> list[Document]:
    """The next that may hold chunks although they failed, so that nothing of them is served."""
    query = select(jobs.c.document_id).where(jobs.c.generation == tx.generation, jobs.c.in_index)
    found = tx.connection.execute(query.where(jobs.c.state.in_(BROKEN)).limit(limit)).scalars().all()
    return read_documents(tx, found)


def retire(tx: Tx, ids: Collection[str], state: State) -> list[str]:
    """The documents hold no chunks any more: those that served, failed, waited or were in flight end in ``state``.

    A ``state`` of failure ends none: what is ``broken`` has its end already.
    """
    sources = (*FORWARD, *SERVING, *BROKEN)
    moved = [] if state in BROKEN else move(tx, ids, Move(state, {"lease_until": None}, sources))
    for part in slices(ids):
        ended_ = jobs.c.state.in_(ENDS)
        gone = {"in_index": False, "stale": False, "access_changed": False}
        tx.connection.execute(update(jobs).where(*_here(tx, part), ended_).values(gone))
    return moved


def newest_revisions(tx: Tx, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The newest revision of each (bucket, key) that the ledger knows."""
    by_hash = {key_hash(bucket, key): (bucket, key) for bucket, key in keys}
    return {
        by_hash[row.key_hash]: row.revision
        for part in slices(by_hash)
        for row in tx.connection.execute(
            select(documents.c.key_hash, documents.c.revision).where(
                documents.c.key_hash.in_(part), documents.c.is_newest
            )
        )
    }


def access_changed(tx: Tx, limit: int, after: str) -> list[Document]:
    """The next ``limit`` documents whose chunks carry another tenant or other principals than they should, by id.

    Of every state but in flight: chunks that wait to be replaced or deleted are found by readers until then.
    """
    here = (jobs.c.generation == tx.generation, jobs.c.document_id > after)
    query = select(jobs.c.document_id).where(*here, jobs.c.access_changed, jobs.c.in_index)
    idle = query.where(jobs.c.state.not_in(IN_FLIGHT)).order_by(jobs.c.document_id).limit(limit)
    found = read_documents(tx, tx.connection.execute(idle).scalars().all())
    return sorted(found, key=lambda document: document.document_id)


def access_written(tx: Tx, written: Sequence[Document]) -> None:
    """Their chunks carry these tenants and principals now; a document that changed again meanwhile stays listed."""
    want = {document.document_id: (document.tenant, document.principals) for document in written}
    now = read_documents(tx, want)
    done = [one.document_id for one in now if (one.tenant, one.principals) == want[one.document_id]]
    for part in slices(done):
        tx.connection.execute(update(jobs).where(*_here(tx, part)).values(access_changed=False))
