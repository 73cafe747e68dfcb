"""What people and reports ask the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, select

from ingest.model import IN_FLIGHT, Branch, Failure, State
from ingest.state.moves import GONE, SERVING, Tx, parser_of
from ingest.state.records import (
    Change,
    Expected,
    FailureRow,
    SegmentCount,
    Slow,
    UnknownShare,
)
from ingest.state.tables import dead_letters, documents, history, jobs, segments


def _jobs(tx: Tx, run_id: str | None) -> tuple[ColumnElement[bool], ...]:
    mine = (jobs.c.generation == tx.generation,)
    return mine if run_id is None else (*mine, jobs.c.run_id == run_id)


def counts(tx: Tx, run_id: str | None) -> dict[State, int]:
    """Jobs by state; states without a job are left out."""
    query = select(jobs.c.state, func.count().label("number")).where(*_jobs(tx, run_id)).group_by(jobs.c.state)
    return {State(row.state): row.number for row in tx.connection.execute(query)}


def segment_counts(tx: Tx, run_id: str | None) -> list[SegmentCount]:
    """Segments by state and engine."""
    state = func.coalesce(segments.c.state, "open")
    engine = func.coalesce(segments.c.engine, "")
    query = (
        select(
            state,
            engine,
            func.count(),
            func.sum(segments.c.page_to - segments.c.page_from + 1),
            func.sum(segments.c.transient_retries),
            func.sum(segments.c.escalations),
        )
        .join(jobs, jobs.c.document_id == segments.c.document_id)
        .where(segments.c.parser == parser_of(tx), *_jobs(tx, run_id))
        .group_by(state, engine)
        .order_by(state, engine)
    )
    rows = tx.connection.execute(query)
    return [SegmentCount(s, e, n, int(pages), int(retries), int(up)) for s, e, n, pages, retries, up in rows]


# ---------------------------------------------------------------- failures


def failures(tx: Tx, run_id: str | None, limit: int) -> list[FailureRow]:
    """Failed documents, then failed segments, their failed pages, and buried chunks; at most ``limit``.

    Of documents that were superseded or deleted nothing is missing.
    """
    rows = chain(
        _failed_documents(tx, run_id, limit), _failed_segments(tx, run_id, limit), _failed_chunks(tx, run_id, limit)
    )
    return list(islice(rows, limit))


def failure_counts(tx: Tx) -> dict[Branch, int]:
    """Failed documents by branch; partial ones are left out, as in ``failures``."""
    own = (jobs.c.reason.is_not(None), jobs.c.state.not_in((State.PARTIAL, *GONE)))
    query = select(jobs.c.branch, func.count().label("number")).where(*_jobs(tx, None), *own).group_by(jobs.c.branch)
    return {Branch(row.branch): row.number for row in tx.connection.execute(query)}


def failure_reasons(tx: Tx, run_id: str | None) -> dict[str, int]:
    """Documents by the reason of their end, the commonest first; those that were superseded or deleted are left out."""
    own = (jobs.c.reason.is_not(None), jobs.c.state.not_in(GONE))
    query = select(jobs.c.reason, func.count().label("number")).where(*_jobs(tx, run_id), *own).group_by(jobs.c.reason)
    rows = tx.connection.execute(query.order_by(func.count().desc(), jobs.c.reason))
    return {row.reason: row.number for row in rows}


def _with_key(query: Select[Any], tx: Tx, run_id: str | None, limit: int) -> Select[Any]:
    """With key and version of its documents; those that were superseded or deleted are left out."""
    named = query.add_columns(documents.c.key, documents.c.version)
    joined = named.join(documents, documents.c.document_id == jobs.c.document_id)
    return joined.where(*_jobs(tx, run_id), jobs.c.state.not_in(GONE)).limit(limit)


def _failure(row: Any) -> Failure:
    return Failure(Branch(row.branch), row.reason, row.sentence)


def _failed_documents(tx: Tx, run_id: str | None, limit: int) -> Iterator[FailureRow]:
    columns = (jobs.c.document_id, jobs.c.branch, jobs.c.reason, jobs.c.sentence)
    query = _with_key(select(*columns), tx, run_id, limit)
    own = (jobs.c.reason.is_not(None), jobs.c.state != State.PARTIAL)  # a partial one's failures are its units'
    for row in tx.connection.execute(query.where(*own).order_by(documents.c.key, documents.c.revision)):
        yield FailureRow("document", row.document_id, row.key, row.version, _failure(row))


def _failed_segments(tx: Tx, run_id: str | None, limit: int) -> Iterator[FailureRow]:
    query = _with_key(select(segments).join(jobs, jobs.c.document_id == segments.c.document_id), tx, run_id, limit)
    broken = (segments.c.state == "failed") | (segments.c.failed_page_count > 0)
    query = query.where(segments.c.parser == parser_of(tx), broken)
    for row in tx.connection.execute(query.order_by(documents.c.key, documents.c.revision, segments.c.number)):
        who = (row.document_id, row.key, row.version)
        if row.reason:
            yield FailureRow("segment", *who, _failure(row), row.page_from, row.page_to)
        for page, branch, reason, sentence in row.failed_pages or ():
            yield FailureRow("page", *who, Failure(Branch(branch), reason, sentence), page, page)


def _failed_chunks(tx: Tx, run_id: str | None, limit: int) -> Iterator[FailureRow]:
    here = and_(dead_letters.c.document_id == jobs.c.document_id, dead_letters.c.generation == jobs.c.generation)
    query = _with_key(select(dead_letters).join(jobs, here), tx, run_id, limit)
    for row in tx.connection.execute(query.order_by(documents.c.key, documents.c.revision, dead_letters.c.chunk_id)):
        yield FailureRow("chunk", row.document_id, row.key, row.version, _failure(row), chunk_id=row.chunk_id)


# ---------------------------------------------------------------- what should be there


def expected_chunks(tx: Tx, in_flight: bool) -> int:
    """Chunks that the index should hold: of every document that serves, all but the dead letters.

    With ``in_flight`` also those that documents on their way were cut into.
    """
    states = (*SERVING, *IN_FLIGHT) if in_flight else SERVING
    there = func.coalesce(func.sum(jobs.c.chunk_count - jobs.c.failed_chunks), 0)
    return int(tx.connection.execute(select(there).where(*_jobs(tx, None), jobs.c.state.in_(states))).scalar_one())


def expected_documents(tx: Tx, after: str, limit: int) -> list[Expected]:
    """The next ``limit`` documents that serve, by document id; ``after`` is the last one of the page before."""
    query = (
        select(documents, jobs.c.chunk_count, jobs.c.failed_chunks)
        .join(jobs, jobs.c.document_id == documents.c.document_id)
        .where(*_jobs(tx, None), jobs.c.state.in_(SERVING), jobs.c.document_id > after)
        .order_by(jobs.c.document_id)
        .limit(limit)
    )
    return [
        Expected(row.document_id, row.bucket, row.key, row.version, row.revision, row.chunk_count, row.failed_chunks)
        for row in tx.connection.execute(query)
    ]


def slowest(tx: Tx, run_id: str | None, limit: int) -> list[Slow]:
    """The documents whose segments took longest to parse, failed and timed-out ones included."""
    seconds = func.sum(segments.c.seconds).label("seconds")
    pages = func.sum(segments.c.page_to - segments.c.page_from + 1).label("pages")
    chunks = func.coalesce(jobs.c.chunk_count, 0).label("chunks")
    query = (
        select(jobs.c.document_id, seconds, pages, chunks)
        .join(segments, segments.c.document_id == jobs.c.document_id)
        .where(segments.c.parser == parser_of(tx), segments.c.seconds > 0)
        .group_by(jobs.c.document_id, jobs.c.chunk_count, documents.c.key, documents.c.version)
    )
    rows = tx.connection.execute(_with_key(query, tx, run_id, limit).order_by(seconds.desc(), documents.c.key))
    return [Slow(row.document_id, row.key, round(row.seconds, 3), int(row.pages), row.chunks) for row in rows]


def unknown_token_shares(tx: Tx, run_id: str | None, above: float) -> list[UnknownShare]:
    """Documents of whose tokens more than ``above`` (a share) are unknown to the embedder, worst first."""
    share = _unknown_share().label("share")
    query = select(jobs.c.document_id, share).where(share > above)
    rows = tx.connection.execute(_with_key(query, tx, run_id, 1000).order_by(share.desc(), documents.c.key))
    return [UnknownShare(row.document_id, row.key, float(row.share)) for row in rows]


def unknown_token_count(tx: Tx, above: float) -> int:
    """How many documents ``unknown_token_shares`` tells of, however many they are."""
    here = (*_jobs(tx, None), jobs.c.state.not_in(GONE))
    query = select(func.count()).select_from(jobs).where(*here, _unknown_share() > above)
    return tx.connection.execute(query).scalar_one()


def _unknown_share() -> ColumnElement[Any]:
    return jobs.c.unknown_tokens * 1.0 / case((jobs.c.tokens > 0, jobs.c.tokens), else_=1)


def changes(tx: Tx, document_id: str) -> list[Change]:
    """All that happened to a document, in every generation, oldest first."""
    query = select(history).where(history.c.document_id == document_id).order_by(history.c.id)
    return [
        Change(
            row.generation,
            State(row.from_state) if row.from_state else None,
            State(row.to_state),
            row.at,
            row.run_id,
            row.reason,
        )
        for row in tx.connection.execute(query)
    ]
