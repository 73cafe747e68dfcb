"""Admit: a listing page becomes documents with revisions, and jobs for what is to be indexed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from ingest.config import SourceConfig
from ingest.errors import StoreError
from ingest.model import FORWARD, IN_FLIGHT, Branch, ObjectVersion, State, key_hash
from ingest.state.fanin import reopen_segments
from ingest.state.moves import GONE, Move, Tx, back_to_queue, move, slices, write_history
from ingest.state.numbering import Known, Numbering, number
from ingest.state.records import Admission
from ingest.state.tables import documents, generations, jobs
from ingest.state.windows import BROKEN

FRUITLESS = (*BROKEN, State.PARTIAL)  # ends that leave something missing
AT_REST = tuple(state for state in State if state is not State.QUEUED and state not in IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the page: its versions by document id, how they were numbered, which are to be indexed."""

    versions: Mapping[str, ObjectVersion]
    numbering: Numbering
    wanted: frozenset[str]

    @property
    def marker(self) -> str | None:
        """The delete marker that is the key's newest revision, if the page has it."""
        newest = self.numbering.newest
        return newest if self.numbering.newest_is_marker and newest in self.versions else None

    @property
    def has_new_marker(self) -> bool:
        return self.marker in self.numbering.added or self.marker in self.numbering.renumbered


def admit(tx: Tx, versions: Sequence[ObjectVersion], source: SourceConfig, listed_by: str = "") -> Admission:
    """Records the versions of a page (all of a key together, newest first) and queues what is to be indexed.

    Raises StoreError for a generation that is not in the ledger.
    """
    parser = _parser(tx)
    keys = _number(tx, versions, source.all_versions)
    _write_documents(tx, keys, source)
    wanted = {name: key.versions[name] for key in keys.values() for name in key.wanted}
    new, retried = _write_jobs(tx, wanted, parser)
    retried += _bring_back(tx, keys)
    _retire_others(tx, keys, source.all_versions)
    _note_access(tx, keys, source)
    if listed_by:
        _mark(tx, wanted, listed_by)
    deleted = sum(key.has_new_marker for key in keys.values())
    known = len(wanted) - new - retried + sum(key.marker is not None for key in keys.values()) - deleted
    total = sum(len(key.versions) for key in keys.values())
    return Admission(new, known, total - new - retried - known - deleted, deleted, retried)


def _parser(tx: Tx) -> str:
    query = select(generations.c.parser).where(generations.c.name == tx.generation)
    parser = tx.connection.execute(query).scalar()
    if parser is None:
        raise StoreError(f"generation {tx.generation} is not in the ledger: add it first")
    return str(parser)


def _number(tx: Tx, versions: Sequence[ObjectVersion], all_versions: bool) -> dict[str, Key]:
    """The page by key hash, in the order in which rows are locked."""
    pages: dict[tuple[str, str], dict[str, ObjectVersion]] = defaultdict(dict)
    for version in versions:
        pages[version.bucket, version.key].setdefault(version.document_id, version)
    hashed = dict(sorted((key_hash(*name), page) for name, page in pages.items()))
    known = _known(tx, hashed)
    return {name: _key(known.get(name, {}), page, all_versions) for name, page in hashed.items()}


def _known(tx: Tx, hashes: Collection[str]) -> dict[str, dict[str, Known]]:
    found: dict[str, dict[str, Known]] = defaultdict(dict)
    names = ("document_id", "revision", "last_modified", "is_newest", "is_delete_marker")
    for part in slices(hashes):
        query = select(documents.c.key_hash, *(documents.c[name] for name in names))
        for hashed, *row in tx.connection.execute(query.where(documents.c.key_hash.in_(part))):
            found[hashed][row[0]] = Known(*row)
    return found


def _key(known: Mapping[str, Known], versions: Mapping[str, ObjectVersion], all_versions: bool) -> Key:
    numbering = number(known, versions, all_versions)
    wanted = {name for name, version in versions.items() if not version.is_delete_marker}
    if numbering.newest_is_marker:
        wanted = set()
    elif all_versions:
        wanted &= set(numbering.added) | set(known)
    else:
        wanted &= {numbering.newest or ""}
    return Key(versions, numbering, frozenset(wanted))


# ---------------------------------------------------------------- documents


def _write_documents(tx: Tx, keys: Mapping[str, Key], source: SourceConfig) -> None:
    moved = [hashed for hashed, key in keys.items() if key.numbering.changed]
    for part in slices(moved):  # first, because only one row of a key may be the newest
        tx.connection.execute(
            update(documents).where(documents.c.key_hash.in_(part), documents.c.is_newest).values(is_newest=False)
        )
    access = {"tenant": source.tenant, "principals": list(source.principals)}
    rows = [
        _row(tx, hashed, name, keys[hashed].versions[name]) | {"revision": revision, **access}
        for hashed in moved
        for name, revision in keys[hashed].numbering.added.items()
    ]
    if rows:
        tx.connection.execute(insert(documents), rows)
    _renumber(tx, [keys[hashed] for hashed in moved])
    newest = [keys[hashed].numbering.newest or "" for hashed in moved]
    for part in slices(newest):
        tx.connection.execute(update(documents).where(documents.c.document_id.in_(part)).values(is_newest=True))


def _row(tx: Tx, hashed: str, document_id: str, version: ObjectVersion) -> dict[str, Any]:
    folder, _, name = version.key.rpartition("/")
    return {
        "document_id": document_id,
        "key_hash": hashed,
        "bucket": version.bucket,
        "key": version.key,
        "version": version.version,
        "version_id": version.version_id,
        "etag": version.etag,
        "size": version.size,
        "last_modified": version.last_modified,
        "is_newest": False,
        "is_delete_marker": version.is_delete_marker,
        "file_name": name,
        "folder": folder,
        "created_at": tx.now,
    }


def _renumber(tx: Tx, keys: Iterable[Key]) -> None:
    rows = [
        {"id_": name, "revision": revision, "last_modified": key.versions[name].last_modified}
        for key in keys
        for name, revision in key.numbering.renumbered.items()
    ]
    if rows:
        values: dict[str, Any] = {name: bindparam(name) for name in ("revision", "last_modified")}
        change = update(documents).where(documents.c.document_id == bindparam("id_"))
        tx.connection.execute(change.values(values), rows)


def _note_access(tx: Tx, hashes: Collection[str], source: SourceConfig) -> None:
    """Versions of the keys whose tenant or principals changed: their chunks, in every generation, carry the old ones.

    Not only the newest: an older one serves until that does, and for ever where that can't be read.
    """
    now = (source.tenant, list(source.principals))
    columns = (documents.c.document_id, documents.c.tenant, documents.c.principals)
    changed: list[str] = []
    for part in slices(hashes):
        rows = tx.connection.execute(select(*columns).where(documents.c.key_hash.in_(part)))
        changed += [row.document_id for row in rows if (row.tenant, row.principals) != now]
    values = {"tenant": source.tenant, "principals": list(source.principals)}
    for part in slices(changed):
        tx.connection.execute(update(documents).where(documents.c.document_id.in_(part)).values(values))
        # One in flight carries the old ones in its rows, so it is marked too.
        held = (jobs.c.document_id.in_(part), jobs.c.in_index | (jobs.c.state != State.QUEUED))
        tx.connection.execute(update(jobs).where(*held).values(access_changed=True))


# ---------------------------------------------------------------- jobs


def _write_jobs(tx: Tx, wanted: Mapping[str, ObjectVersion], parser: str) -> tuple[int, int]:
    """How many jobs were made, and how many went back into the queue."""
    existing: dict[str, Any] = {}
    for part in slices(wanted):
        query = select(jobs.c.document_id, jobs.c.state, jobs.c.branch).where(
            jobs.c.generation == tx.generation, jobs.c.document_id.in_(part)
        )
        existing |= {row.document_id: row for row in tx.connection.execute(query)}
    missing = [name for name in sorted(wanted) if name not in existing]
    _queue(tx, {name: wanted[name] for name in missing})
    transient = [
        row.document_id
        for row in existing.values()
        if row.state in (State.FAILED, State.PARTIAL) and row.branch == Branch.TRANSIENT
    ]
    retried = back_to_queue(tx, transient, (State.FAILED, State.PARTIAL), "retried")
    gone = [row.document_id for row in existing.values() if row.state in GONE]
    revived = back_to_queue(tx, gone, GONE, "newest again")
    reopen_segments(tx, parser, [*retried, *revived])
    return len(missing), len(retried) + len(revived)


def _bring_back(tx: Tx, keys: Mapping[str, Key]) -> int:
    """How many jobs went back into the queue because their version is the newest again.

    Its chunks may be gone or carry the old revision. What a run holds goes on: its content is right.
    """
    again = [name for key in keys.values() for name in key.numbering.renumbered if name in key.wanted]
    return len(back_to_queue(tx, again, AT_REST, "newest again"))


def _queue(tx: Tx, versions: Mapping[str, ObjectVersion]) -> None:
    if not versions:
        return
    rows = [
        {
            "generation": tx.generation,
            "document_id": name,
            "key_hash": key_hash(version.bucket, version.key),
            "size": version.size,
            "state": State.QUEUED,
            "queued_at": tx.now,
            "mirror_due": True,
        }
        for name, version in versions.items()
    ]
    tx.connection.execute(insert(jobs), rows)
    made = {"from_state": None, "to_state": State.QUEUED, "run_id": None, "reason": None}
    write_history(tx, [{"document_id": name, **made} for name in versions])


def _mark(tx: Tx, wanted: Collection[str], listed_by: str) -> None:
    for part in slices(wanted):
        mine = (jobs.c.generation == tx.generation, jobs.c.document_id.in_(part), jobs.c.state == State.QUEUED)
        tx.connection.execute(update(jobs).where(*mine).values(listed_by=listed_by))


def _retire_others(tx: Tx, keys: Mapping[str, Key], all_versions: bool) -> None:
    """Under a delete marker no job of the key goes on; under a newer version none that did not begin yet.

    Nor does one stay failed. But what was counted in the index serves until the newer version does, and what may have
    left chunks there keeps its state until they are deleted.
    """
    empty = (~jobs.c.in_index,)
    marked = [hashed for hashed, key in keys.items() if key.numbering.newest_is_marker]
    others = _other_jobs(tx, marked, (*FORWARD, *FRUITLESS))
    move(tx, others, Move(State.DELETED, {"lease_until": None}))
    move(tx, others, Move(State.DELETED, sources=FRUITLESS, guard=empty))
    if not all_versions:
        plain = [hashed for hashed, key in keys.items() if not key.numbering.newest_is_marker]
        others = _other_jobs(tx, plain, (State.QUEUED, *FRUITLESS))
        counted = (jobs.c.in_index, jobs.c.found > 0)
        move(tx, others, Move(State.PARTIAL, sources=(State.QUEUED,), note="overtaken", guard=counted))
        move(tx, others, Move(State.SUPERSEDED, sources=(State.QUEUED,)))
        move(tx, others, Move(State.SUPERSEDED, sources=FRUITLESS, guard=empty))


def _other_jobs(tx: Tx, hashes: Collection[str], states: Sequence[State]) -> list[str]:
    """Jobs in these states whose document is not the newest of its key."""
    found: list[str] = []
    for part in slices(hashes):
        older = select(documents.c.document_id).where(documents.c.key_hash.in_(part), ~documents.c.is_newest)
        # In two steps, and mostly only one: in a join SQLite walks through the whole queue.
        names = tx.connection.execute(older).scalars().all()
        for few in slices(names):
            query = select(jobs.c.document_id).where(jobs.c.generation == tx.generation, jobs.c.document_id.in_(few))
            found += tx.connection.execute(query.where(jobs.c.state.in_(states))).scalars()
    return found
