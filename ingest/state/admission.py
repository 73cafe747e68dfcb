"""Admit: a listing page becomes documents with revisions, and jobs for what is to be indexed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from ingest.config import SourceConfig
from ingest.errors import StoreError
from ingest.model import FORWARD, Branch, ObjectVersion, State, key_hash
from ingest.state.fanin import reopen_segments
from ingest.state.moves import Move, Tx, back_to_queue, move, slices, write_history
from ingest.state.numbering import Known, Numbering, number
from ingest.state.records import Admission
from ingest.state.tables import documents, generations, jobs

LOST = (State.SUPERSEDED, State.DELETED)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the page: what it brought and how it was numbered."""

    versions: tuple[ObjectVersion, ...]
    numbering: Numbering
    wanted: frozenset[str]


def admit(tx: Tx, versions: Sequence[ObjectVersion], source: SourceConfig) -> Admission:
    """Records the versions of a page (all of a key together, newest first) and queues what is to be indexed.

    Raises StoreError for a generation that is not in the ledger.
    """
    parser = _parser(tx)
    keys = _number(tx, versions, source.all_versions)
    _write_documents(tx, keys, source)
    wanted = {
        version.document_id: version
        for key in keys.values()
        for version in key.versions
        if version.document_id in key.wanted
    }
    new, retried = _write_jobs(tx, wanted, keys, parser)
    _retire_queued(tx, keys, source.all_versions)
    _note_access(tx, wanted, source)
    markers = _new_markers(keys)
    total = sum(len(key.versions) for key in keys.values())
    known = len(wanted) - new - retried + _known_markers(keys)
    return Admission(new, known, total - new - retried - known - markers, markers, retried)


def _parser(tx: Tx) -> str:
    query = select(generations.c.parser).where(generations.c.name == tx.generation)
    parser = tx.connection.execute(query).scalar()
    if parser is None:
        raise StoreError(f"generation {tx.generation} is not in the ledger: add it first")
    return str(parser)


def _number(tx: Tx, versions: Sequence[ObjectVersion], all_versions: bool) -> dict[str, Key]:
    pages: dict[str, dict[str, ObjectVersion]] = defaultdict(dict)
    for version in versions:
        pages[key_hash(version.bucket, version.key)].setdefault(version.document_id, version)
    known = _known(tx, pages)
    return {
        hashed: _key(known.get(hashed, {}), tuple(pages[hashed].values()), all_versions) for hashed in sorted(pages)
    }


def _known(tx: Tx, hashes: Collection[str]) -> dict[str, dict[str, Known]]:
    found: dict[str, dict[str, Known]] = defaultdict(dict)
    for part in slices(hashes):
        for row in tx.connection.execute(select(documents).where(documents.c.key_hash.in_(part))):
            found[row.key_hash][row.document_id] = Known(
                row.document_id, row.revision, row.last_modified, row.is_newest, row.is_delete_marker
            )
    return found


def _key(known: Mapping[str, Known], versions: tuple[ObjectVersion, ...], all_versions: bool) -> Key:
    numbering = number(known, versions, all_versions)
    there = {version.document_id for version, _ in numbering.added} | set(known)
    wanted = {v.document_id for v in versions if not v.is_delete_marker and v.document_id in there}
    if numbering.newest_is_marker:
        wanted = set()
    elif not all_versions:
        wanted &= {numbering.newest or ""}
    return Key(versions, numbering, frozenset(wanted))


def _new_markers(keys: Mapping[str, Key]) -> int:
    """Keys whose newest is a delete marker that this page brought."""
    return sum(
        version.document_id == key.numbering.newest and version.is_delete_marker
        for key in keys.values()
        for version, _ in (*key.numbering.added, *key.numbering.renumbered)
    )


def _known_markers(keys: Mapping[str, Key]) -> int:
    listed = sum(
        version.document_id == key.numbering.newest and version.is_delete_marker
        for key in keys.values()
        for version in key.versions
    )
    return listed - _new_markers(keys)


# ---------------------------------------------------------------- documents


def _write_documents(tx: Tx, keys: Mapping[str, Key], source: SourceConfig) -> None:
    moved = [hashed for hashed, key in keys.items() if key.numbering.changed]
    for part in slices(moved):  # first, because only one row of a key may be the newest
        tx.connection.execute(
            update(documents).where(documents.c.key_hash.in_(part), documents.c.is_newest).values(is_newest=False)
        )
    rows = [
        _row(tx, hashed, version, revision) | {"tenant": source.tenant, "principals": list(source.principals)}
        for hashed in moved
        for version, revision in keys[hashed].numbering.added
    ]
    if rows:
        tx.connection.execute(insert(documents), rows)
    _renumber(tx, [pair for hashed in moved for pair in keys[hashed].numbering.renumbered])
    newest = [keys[hashed].numbering.newest or "" for hashed in moved]
    for part in slices(newest):
        tx.connection.execute(update(documents).where(documents.c.document_id.in_(part)).values(is_newest=True))


def _row(tx: Tx, hashed: str, version: ObjectVersion, revision: int) -> dict[str, Any]:
    folder, _, name = version.key.rpartition("/")
    return {
        "document_id": version.document_id,
        "key_hash": hashed,
        "bucket": version.bucket,
        "key": version.key,
        "version": version.version,
        "version_id": version.version_id,
        "etag": version.etag,
        "size": version.size,
        "last_modified": version.last_modified,
        "revision": revision,
        "is_newest": False,
        "is_delete_marker": version.is_delete_marker,
        "file_name": name,
        "folder": folder,
        "created_at": tx.now,
    }


def _renumber(tx: Tx, pairs: Sequence[tuple[ObjectVersion, int]]) -> None:
    if pairs:
        change = update(documents).where(documents.c.document_id == bindparam("id_"))
        rows = [{"id_": v.document_id, "revision": n, "last_modified": v.last_modified} for v, n in pairs]
        values: dict[str, Any] = {"revision": bindparam("revision"), "last_modified": bindparam("last_modified")}
        tx.connection.execute(change.values(values), rows)


def _note_access(tx: Tx, wanted: Iterable[str], source: SourceConfig) -> None:
    """Known documents whose tenant or principals changed: their chunks, in every generation, carry the old ones."""
    for part in slices(wanted):
        rows = tx.connection.execute(select(documents).where(documents.c.document_id.in_(part)))
        now = (source.tenant, list(source.principals))
        changed = [row.document_id for row in rows if (row.tenant, row.principals) != now]
        if changed:
            values = {"tenant": source.tenant, "principals": list(source.principals)}
            tx.connection.execute(update(documents).where(documents.c.document_id.in_(changed)).values(values))
            # One in flight carries the old ones in its rows, so it is marked too.
            held = (jobs.c.document_id.in_(changed), jobs.c.in_index | (jobs.c.state != State.QUEUED))
            tx.connection.execute(update(jobs).where(*held).values(access_changed=True))


# ---------------------------------------------------------------- jobs


def _write_jobs(tx: Tx, wanted: Mapping[str, ObjectVersion], keys: Mapping[str, Key], parser: str) -> tuple[int, int]:
    """How many jobs were made, and how many went back into the queue."""
    existing: dict[str, Any] = {}
    for part in slices(wanted):
        query = select(jobs.c.document_id, jobs.c.state, jobs.c.branch).where(
            jobs.c.generation == tx.generation, jobs.c.document_id.in_(part)
        )
        existing |= {row.document_id: row for row in tx.connection.execute(query)}
    missing = [wanted[name] for name in sorted(wanted) if name not in existing]
    _queue(tx, missing)
    transient = [
        row.document_id
        for row in existing.values()
        if row.state in (State.FAILED, State.PARTIAL) and row.branch == Branch.TRANSIENT
    ]
    retried = back_to_queue(tx, transient, (State.FAILED, State.PARTIAL), "retried")
    reopen_segments(tx.connection, parser, retried, (Branch.TRANSIENT,))
    lost = [row.document_id for row in existing.values() if row.state in LOST]
    revived = back_to_queue(tx, lost, LOST, "newest again")
    return len(missing), len(retried) + len(revived)


def _queue(tx: Tx, versions: Sequence[ObjectVersion]) -> None:
    if not versions:
        return
    rows = [
        {
            "generation": tx.generation,
            "document_id": version.document_id,
            "key_hash": key_hash(version.bucket, version.key),
            "size": version.size,
            "state": State.QUEUED,
            "queued_at": tx.now,
        }
        for version in versions
    ]
    tx.connection.execute(insert(jobs), rows)
    lines = [
        {"document_id": v.document_id, "from_state": None, "to_state": State.QUEUED, "run_id": None, "reason": None}
        for v in versions
    ]
    write_history(tx, lines)


def _retire_queued(tx: Tx, keys: Mapping[str, Key], all_versions: bool) -> None:
    """Under a delete marker no job of the key goes on; under a newer version none that did not begin yet."""
    marked = [hashed for hashed, key in keys.items() if key.numbering.newest_is_marker]
    move(tx, _other_jobs(tx, marked, FORWARD), Move(State.DELETED, {"lease_until": None}))
    if not all_versions:
        plain = [hashed for hashed, key in keys.items() if not key.numbering.newest_is_marker]
        move(tx, _other_jobs(tx, plain, (State.QUEUED,)), Move(State.SUPERSEDED, sources=(State.QUEUED,)))


def _other_jobs(tx: Tx, hashes: Collection[str], states: Sequence[State]) -> list[str]:
    """Jobs in these states whose document is not the newest of its key."""
    found: list[str] = []
    for part in slices(hashes):
        query = (
            select(jobs.c.document_id)
            .join(documents, documents.c.document_id == jobs.c.document_id)
            .where(jobs.c.generation == tx.generation, jobs.c.key_hash.in_(part))
            .where(jobs.c.state.in_(states), ~documents.c.is_newest)
        )
        found += tx.connection.execute(query).scalars()
    return found
