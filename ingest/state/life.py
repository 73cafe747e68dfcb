"""The life of single documents, as people look at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, func, or_, select

from ingest.model import IN_FLIGHT, Branch, Failure, State
from ingest.state.moves import SERVING, Tx, parser_of, slices
from ingest.state.records import JobRow, Oldest
from ingest.state.tables import documents, jobs, segments


def oldest(tx: Tx) -> Oldest | None:
    """The document in flight that was taken first, or None."""
    columns = (documents.c.key, documents.c.version, jobs.c.state, jobs.c.run_id, jobs.c.admitted_at)
    query = select(*columns).join(jobs, jobs.c.document_id == documents.c.document_id)
    here = query.where(jobs.c.generation == tx.generation, jobs.c.state.in_(IN_FLIGHT))
    row = tx.connection.execute(here.order_by(jobs.c.admitted_at).limit(1)).first()
    return Oldest(row.key, row.version, State(row.state), row.run_id or "", row.admitted_at or 0.0) if row else None


def served(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Those of these documents that serve."""
    found: set[str] = set()
    for part in slices(ids):
        here = (jobs.c.generation == tx.generation, jobs.c.document_id.in_(part), jobs.c.state.in_(SERVING))
        found |= set(tx.connection.execute(select(jobs.c.document_id).where(*here)).scalars())
    return found


def to_retry(tx: Tx) -> int:
    """Segments of partial documents that failed, or of which a page did."""
    broken = or_(segments.c.state == "failed", segments.c.failed_page_count > 0)
    query = select(func.count()).join(jobs, jobs.c.document_id == segments.c.document_id)
    here = (jobs.c.generation == tx.generation, jobs.c.state == State.PARTIAL, segments.c.parser == parser_of(tx))
    return tx.connection.execute(query.where(*here, broken)).scalar_one()


def versions(tx: Tx, key: str) -> list[JobRow]:
    """All versions of the keys of this name, newest first."""
    mine = and_(jobs.c.document_id == documents.c.document_id, jobs.c.generation == tx.generation)
    own = (
        "state", "attempt", "run_id", "lease_until", "reason", "branch", "sentence", "chunk_count", "failed_chunks",
        "found", "stale", "language",
    )  # fmt: skip
    query = select(documents, *(jobs.c[name] for name in own)).outerjoin(jobs, mine).where(documents.c.key == key)
    rows = tx.connection.execute(query.order_by(documents.c.bucket, documents.c.revision.desc()))
    return [_row(row) for row in rows]


def _row(row: Any) -> JobRow:
    return JobRow(
        document_id=row.document_id,
        key=row.key,
        version=row.version,
        revision=row.revision,
        is_newest=row.is_newest,
        is_delete_marker=row.is_delete_marker,
        size=row.size,
        state=State(row.state) if row.state else None,
        attempt=row.attempt or 0,
        run_id=row.run_id or "",
        lease_until=row.lease_until,
        failure=Failure(Branch(row.branch), row.reason, row.sentence) if row.reason else None,
        chunk_count=row.chunk_count,
        failed_chunks=row.failed_chunks or 0,
        found=row.found,
        stale=bool(row.stale),
        principals=tuple(row.principals),
        tenant=row.tenant,
        language=row.language or "",
    )
