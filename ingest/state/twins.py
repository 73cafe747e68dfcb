"""Equal bytes under several keys: read once and embedded once; each key still has its own segments and chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import aliased

from ingest.state.moves import Tx, parser_of, slices
from ingest.state.records import Plan
from ingest.state.tables import documents, jobs, parses, segments

RELATIVES = 4  # are enough: equal bytes have equal chunks, and of a key mostly one other version is there
Part = tuple[int, int, int]  # number, page_from, page_to of a segment


def ahead(tx: Tx, chosen: Sequence[str]) -> list[str]:
    """``chosen`` without those of whose bytes another one goes ahead, by ETag and size; each waits once at most."""
    waiting = _later_copies(tx, chosen)
    for part in slices(waiting):
        tx.connection.execute(
            update(jobs).where(jobs.c.generation == tx.generation, jobs.c.document_id.in_(part)).values(waited=True)
        )
    return [name for name in chosen if name not in waiting]


def _later_copies(tx: Tx, chosen: Collection[str]) -> set[str]:
    joined = jobs.join(documents, jobs.c.document_id == documents.c.document_id)
    query = select(documents.c.document_id, documents.c.etag, documents.c.size, jobs.c.waited).select_from(joined)
    query = query.where(jobs.c.generation == tx.generation)
    rows = [row for part in slices(chosen) for row in tx.connection.execute(query.where(jobs.c.document_id.in_(part)))]
    seen: set[tuple[str, int]] = set()
    later: set[str] = set()
    for row in sorted(rows, key=lambda row: (not row.waited, row.document_id)):
        if row.size and (row.etag, row.size) in seen and not row.waited:
            later.add(row.document_id)
        seen.add((row.etag, row.size))
    return later


def artifacts(tx: Tx, parser: str, plans: Mapping[str, Plan]) -> dict[str, dict[Part, str]]:
    """By document: the artifacts of the segments that were parsed of equal bytes."""
    wanted = {one.content_hash for one in plans.values() if one.content_hash}
    found: dict[tuple[str, str], dict[Part, str]] = {}  # by content and format
    for part in slices(wanted):
        for row in _settled(tx, parser, part):
            parts = found.setdefault((row.content_hash, row.format), {})
            parts.setdefault((row.number, row.page_from, row.page_to), row.artifact)
    return {name: found.get((one.content_hash, one.format), {}) for name, one in plans.items()}


def _settled(tx: Tx, parser: str, hashes: Sequence[str]) -> Iterable[Any]:
    whole = (parses.c.document_id == segments.c.document_id, parses.c.parser == segments.c.parser)
    columns = (parses.c.content_hash, parses.c.format, segments.c.number, segments.c.page_from, segments.c.page_to)
    query = select(*columns, segments.c.artifact).where(*whole, parses.c.parser == parser)
    query = query.where(parses.c.content_hash.in_(hashes), parses.c.content_hash != "", segments.c.state == "parsed")
    return tx.connection.execute(query.order_by(segments.c.document_id))


def relatives(tx: Tx, document_id: str) -> list[str]:
    """Other documents with chunks in the index that may have equal ones: other versions of the key, equal bytes."""
    mine, others = aliased(parses), aliased(parses)
    own_key = select(jobs.c.key_hash).where(jobs.c.generation == tx.generation, jobs.c.document_id == document_id)
    here = (mine.c.document_id == document_id, mine.c.parser == parser_of(tx), mine.c.content_hash != "")
    same = (others.c.content_hash == mine.c.content_hash, others.c.parser == mine.c.parser)
    twins = select(others.c.document_id).where(*here, *same)
    query = select(jobs.c.document_id).where(
        jobs.c.generation == tx.generation,
        jobs.c.document_id != document_id,
        jobs.c.in_index,
        jobs.c.found > 0,
        or_(jobs.c.key_hash == own_key.scalar_subquery(), jobs.c.document_id.in_(twins)),
    )
    return list(tx.connection.execute(query.order_by(jobs.c.document_id).limit(RELATIVES)).scalars())
