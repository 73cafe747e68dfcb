"""Plans, and the fan-in: every segment settles once, and the one that settled last carries its document on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, or_, select, tuple_, update

from ingest.errors import StoreError
from ingest.model import Branch, Failure, State
from ingest.state import twins
from ingest.state.moves import Move, Tx, failure_values, move, slices, upsert
from ingest.state.records import Plan, Planned, SegmentRow, Settled, Settlement
from ingest.state.tables import parses, segments


def plan(tx: Tx, parser: str, plans: Sequence[Plan]) -> None:
    """Stores plans and moves their jobs to parsing; a plan that is there already stays as it is.

    A segment of bytes that were read before, under another key, gets the artifact of that one to begin with.
    """
    if empty := [one.document_id for one in plans if not one.segments]:
        raise ValueError(f"a plan needs a segment: {empty}")
    by_id = {one.document_id: one for one in sorted(plans, key=lambda one: one.document_id)}
    if not by_id:
        return
    rows = [_parse_row(tx, parser, one) for one in by_id.values()]
    store = upsert(tx.connection, "parses").on_conflict_do_nothing(index_elements=["document_id", "parser"])
    stored = tx.connection.execute(store.returning(parses.c.document_id), rows).scalars().all()
    known = twins.artifacts(tx, parser, {name: by_id[name] for name in stored})
    fresh = [
        {
            "document_id": name,
            "parser": parser,
            "number": number,
            "page_from": low,
            "page_to": high,
            "artifact": known[name].get((number, low, high)),
        }
        for name in stored
        for number, (low, high) in enumerate(by_id[name].segments)
    ]
    if fresh:
        tx.connection.execute(insert(segments), fresh)
    move(tx, by_id, Move(State.PARSING))


def _parse_row(tx: Tx, parser: str, one: Plan) -> dict[str, Any]:
    return {
        "document_id": one.document_id,
        "parser": parser,
        "format": one.format,
        "lane": one.lane,
        "pages": one.pages,
        "title": one.title,
        "total": len(one.segments),
        "settled": 0,
        "content_hash": one.content_hash,
        "created_at": tx.now,
    }


def planned(connection: Connection, parser: str, ids: Iterable[str]) -> dict[str, Planned]:
    """The stored plans of these documents and how far they got."""
    found: dict[str, Planned] = {}
    for part in slices(ids):
        rows: dict[str, list[SegmentRow]] = defaultdict(list)
        query = select(segments).where(segments.c.parser == parser, segments.c.document_id.in_(part))
        for row in connection.execute(query.order_by(segments.c.document_id, segments.c.number)):
            rows[row.document_id].append(_segment(row))
        plans = select(parses).where(parses.c.parser == parser, parses.c.document_id.in_(part))
        for row in connection.execute(plans):
            name = row.document_id
            found[name] = Planned(name, row.format, row.lane, row.pages, row.title, row.settled, tuple(rows[name]))
    return found


def _segment(row: Any) -> SegmentRow:
    failure = Failure(Branch(row.branch), row.reason, row.sentence) if row.reason else None
    return SegmentRow(
        document_id=row.document_id,
        number=row.number,
        page_from=row.page_from,
        page_to=row.page_to,
        state=row.state or "open",
        ordinal=row.ordinal,
        engine=row.engine or "",
        artifact=row.artifact or "",
        failure=failure,
        failed_pages=tuple((page, Failure(Branch(b), r, s)) for page, b, r, s in row.failed_pages or ()),
        quality=row.quality,
        repairs=row.repairs,
        transient_retries=row.transient_retries,
        escalations=row.escalations,
        seconds=row.seconds,
        edition=row.edition,
    )


# ---------------------------------------------------------------- settle


def settle(tx: Tx, parser: str, settlements: Sequence[Settlement]) -> list[Settled]:
    """The ordinal of every settlement, in their order; the first call freezes it, a repeat changes nothing.

    Raises StoreError for a segment that was never planned.
    """
    if not settlements:
        return []
    wanted = {(one.document_id, one.number): one for one in reversed(settlements)}
    totals, counts = _lock(tx.connection, parser, {name for name, _ in wanted})
    ordinals = _ordinals(tx.connection, parser, wanted)
    if unknown := sorted(set(wanted) - set(ordinals)):
        raise StoreError(f"segment {unknown[0][1]} of document {unknown[0][0]} was never planned")
    fresh = {}
    for pair in sorted(pair for pair, ordinal in ordinals.items() if ordinal is None):
        counts[pair[0]] += 1
        fresh[pair] = counts[pair[0]]
    _freeze(tx, parser, [_frozen(wanted[pair], ordinal) for pair, ordinal in fresh.items()])
    _count(tx.connection, parser, {name: counts[name] for name, _ in fresh})
    known = {pair: fresh.get(pair) or ordinals[pair] or 0 for pair in ordinals}
    answers = [
        Settled(one.document_id, one.number, known[one.document_id, one.number], totals[one.document_id])
        for one in settlements
    ]
    move(tx, {answer.document_id for answer in answers if answer.is_closer}, Move(State.ASSEMBLING))
    return answers


def _lock(connection: Connection, parser: str, ids: Collection[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Totals and counts of the documents, whose rows nobody else changes until this transaction ends.

    READ COMMITTED lets two settles read one count; so the row is locked first, and read after that.
    """
    totals, counts = {}, {}
    for part in slices(ids):
        query = select(parses).where(parses.c.parser == parser, parses.c.document_id.in_(part))
        for row in connection.execute(query.order_by(parses.c.document_id).with_for_update()):
            totals[row.document_id], counts[row.document_id] = row.total, row.settled
    return totals, counts


def _ordinals(
    connection: Connection, parser: str, wanted: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int | None]:
    found = {}
    for part in slices(wanted):
        pair = tuple_(segments.c.document_id, segments.c.number)
        query = select(segments.c.document_id, segments.c.number, segments.c.ordinal)
        for row in connection.execute(query.where(segments.c.parser == parser, pair.in_(part))):
            found[row.document_id, row.number] = row.ordinal
    return found


def _frozen(one: Settlement, ordinal: int) -> dict[str, Any]:
    pages = [(page, what.branch, what.reason, what.sentence) for page, what in one.failed_pages]
    return {
        "id_": one.document_id,
        "number_": one.number,
        "state": "failed" if one.failure else "parsed",
        "ordinal": ordinal,
        "engine": one.engine,
        "artifact": one.artifact,
        **failure_values(one.failure),
        "failed_pages": pages,
        "failed_page_count": len(pages),
        "transient_retries": one.transient_retries,
        "escalations": one.escalations,
        "quality": one.quality,
        "repairs": one.repairs,
        "seconds": one.seconds,
    }


def _freeze(tx: Tx, parser: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    names = [name for name in rows[0] if not name.endswith("_")]
    here = (segments.c.document_id == bindparam("id_"), segments.c.number == bindparam("number_"))
    change = update(segments).where(*here, segments.c.parser == parser, segments.c.ordinal.is_(None))
    values = {name: bindparam(name, type_=segments.c[name].type) for name in names} | {"settled_at": tx.now}
    tx.connection.execute(change.values(values), list(rows))


def _count(connection: Connection, parser: str, counts: Mapping[str, int]) -> None:
    if counts:
        change = update(parses).where(parses.c.parser == parser, parses.c.document_id == bindparam("id_"))
        rows = [{"id_": name, "settled": number} for name, number in sorted(counts.items())]
        connection.execute(change.values(settled=bindparam("settled")), rows)


def passing(row: SegmentRow) -> bool:
    """Whether a segment failed for a reason that may be gone by now."""
    return row.failure is not None and row.failure.branch is Branch.TRANSIENT


def reopen_segments(tx: Tx, parser: str, ids: Collection[str], lost: Callable[[SegmentRow], bool] = passing) -> int:
    """Opens the ``lost`` ones of the segments of documents that no run works on; the others close up in order.

    One of which some pages could be read keeps its artifact, so that only the failed ones are read again.
    """
    if not ids:
        return 0
    _lock(tx.connection, parser, ids)
    reopened = 0
    for name, one in sorted(planned(tx.connection, parser, ids).items()):
        gone = [row.number for row in one.rows if row.ordinal and lost(row)]
        if gone:
            kept = sorted((row.ordinal, row.number) for row in one.rows if row.ordinal and row.number not in gone)
            _close_up(tx.connection, (name, parser), gone, [number for _, number in kept])
            reopened += len(gone)
    return reopened


def _close_up(connection: Connection, parse: tuple[str, str], lost: Sequence[int], kept: Sequence[int]) -> None:
    here = (segments.c.document_id == parse[0], segments.c.parser == parse[1])
    gone: dict[str, Any] = {"state": None, "ordinal": None, "settled_at": None, **failure_values(None)}
    again = {"edition": segments.c.edition + 1}
    connection.execute(update(segments).where(*here, segments.c.number.in_(lost)).values(gone | again))
    for ordinal, number in enumerate(kept, start=1):  # each moves down, into a place that is free by then
        moved = or_(segments.c.ordinal.is_(None), segments.c.ordinal != ordinal)
        change = update(segments).where(*here, segments.c.number == number, moved)
        connection.execute(change.values(ordinal=ordinal))
    here_too = (parses.c.document_id == parse[0], parses.c.parser == parse[1])
    connection.execute(update(parses).where(*here_too).values(settled=len(kept)))
