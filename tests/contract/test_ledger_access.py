"""Tenant and principals: a change of them reaches every chunk that is in an index, whatever became of its document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, event

from ingest.config import SourceConfig
from ingest.failure import failure
from ingest.model import Document, State
from ingest.state import Ledger, Verified, admission, connect, settling
from ingest.state.moves import Tx
from tests.ledger_steps import (
    ALL,
    GEN,
    LATEST,
    add_generation,
    admitted,
    constructed,
    marker,
    ready,
    state_of,
    version,
)

CLOSED = LATEST.model_copy(update={"principals": ()})
BOARD = LATEST.model_copy(update={"principals": ("board",)})


def noted(ledger: Ledger, generation: str = GEN) -> list[tuple[str, str]]:
    return sorted((d.key, d.version) for d in ledger.access_changed(generation, 100))


@pytest.fixture(autouse=True)
def _generation(ledger: Ledger) -> None:
    add_generation(ledger)


def served_under_a_broken_one(ledger: Ledger) -> Document:
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    (new,) = ledger.take(GEN, "run-1", 9, 60)
    ledger.end(GEN, new.document_id, State.UNSUPPORTED, failure("truncated"))
    return old


def test_older_version_that_serves_under_a_broken_one_gets_the_new_principals(ledger: Ledger) -> None:
    served_under_a_broken_one(ledger)
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], CLOSED)
    (document,) = ledger.access_changed(GEN, 10)
    assert (document.version, document.principals) == ("v1", ())
    ledger.access_written(GEN, [document])
    assert noted(ledger) == []


def test_older_version_gets_the_new_tenant_where_the_listing_has_only_the_newest(ledger: Ledger) -> None:
    served_under_a_broken_one(ledger)
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST.model_copy(update={"tenant": "other"}))
    assert [(d.version, d.tenant) for d in ledger.access_changed(GEN, 10)] == [("v1", "other")]


def test_change_that_comes_with_a_newer_version_is_noted_for_the_one_that_still_serves(ledger: Ledger) -> None:
    ready(ledger, admitted(ledger, version("a.pdf", 1)))
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], CLOSED)
    assert noted(ledger) == [("a.pdf", "v1")]


def test_change_is_noted_for_what_serves_under_a_delete_marker(ledger: Ledger) -> None:
    ready(ledger, admitted(ledger, version("a.pdf", 1)))
    ledger.admit(GEN, [marker("a.pdf", 2)], CLOSED)
    assert noted(ledger) == [("a.pdf", "v1")]
    ledger.retire(GEN, [d.document_id for d in ledger.to_delete(GEN)], State.DELETED)
    assert noted(ledger) == []


def test_change_is_noted_in_every_generation(ledger: Ledger) -> None:
    old = served_under_a_broken_one(ledger)
    add_generation(ledger, "second")
    ledger.admit("second", [version("a.pdf", 2)], CLOSED)
    assert noted(ledger, "second") == [], "it holds nothing of the key yet"
    assert [d.document_id for d in ledger.access_changed(GEN, 10)] == [old.document_id]


@pytest.mark.parametrize("source", [LATEST, ALL], ids=["latest", "all"])
def test_chunks_of_a_document_that_waits_in_the_queue_are_rewritten_too(ledger: Ledger, source: SourceConfig) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [document])
    ledger.reopen(GEN, [document.document_id], "chunks are gone")
    ledger.admit(GEN, [version("a.pdf", 1)], source.model_copy(update={"principals": ("board",)}))
    assert [d.principals for d in ledger.access_changed(GEN, 10)] == [("board",)]


def test_chunks_of_a_superseded_version_that_were_never_counted_are_rewritten_too(ledger: Ledger) -> None:
    (old,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, old.document_id, 3)
    ledger.requeue(GEN, [old.document_id], max_attempts=2)
    ledger.admit(GEN, [version("a.pdf", 2)], LATEST)
    assert state_of(ledger, old.document_id) is State.SUPERSEDED
    ledger.admit(GEN, [version("a.pdf", 2)], CLOSED)
    assert noted(ledger) == [("a.pdf", "v1")]


def test_document_in_flight_waits_for_its_end(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    constructed(ledger, document.document_id, 3)
    ledger.admit(GEN, [version("a.pdf", 1)], CLOSED)
    assert noted(ledger) == []
    ledger.verified(GEN, [Verified(document.document_id, 3)])
    assert noted(ledger) == [("a.pdf", "v1")]


def test_changed_documents_come_page_by_page(ledger: Ledger) -> None:
    versions = [version(f"{n}.pdf", 1, size=n) for n in range(5)]
    ready(ledger, admitted(ledger, *versions))
    ledger.admit(GEN, versions, BOARD)
    pages, after = [], ""
    while page := ledger.access_changed(GEN, 2, after=after):
        pages.append([d.document_id for d in page])
        after = page[-1].document_id
    assert [len(page) for page in pages] == [2, 2, 1]
    names = [name for page in pages for name in page]
    assert names == sorted(one.document_id for one in versions), "in the order that the next page goes on from"


# ---------------------------------------------------------------- by index


@pytest.fixture
def explained(ledger_url: str) -> Iterator[Callable[[Callable[[Connection], object], str], str]]:
    """How the database does the statements of some work that begin with some words."""
    engine = connect.open_engine(ledger_url)
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _k: object, statement: str, values: Any, _x: object, many: bool) -> None:
        seen.append((statement, values[0] if many else values))

    def explain(work: Callable[[Connection], object], words: str) -> str:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":  # which reads small tables whole
                connection.exec_driver_sql("ANALYZE jobs")
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            event.listen(engine, "before_cursor_execute", note)
            work(connection)
            event.remove(engine, "before_cursor_execute", note)
            verb = "EXPLAIN" if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
            rows: list[Sequence[Any]] = [
                row
                for statement, values in seen
                if statement.startswith(words)
                for row in connection.exec_driver_sql(f"{verb} {statement}", values)
            ]
            return "\n".join(str(row[-1]) for row in rows)

    yield explain
    engine.dispose()


def test_changed_documents_are_noted_and_found_by_index(
    ledger: Ledger, explained: Callable[[Callable[[Connection], object], str], str]
) -> None:
    versions = [version(f"{n}.pdf", 1) for n in range(100)]
    ready(ledger, admitted(ledger, *versions)[:3])

    def admit(connection: Connection) -> None:
        admission.admit(Tx(connection, GEN, time.time()), versions[:2], BOARD)

    assert "jobs_document" in explained(admit, "UPDATE jobs SET access_changed")

    def look(connection: Connection) -> None:
        settling.access_changed(Tx(connection, GEN, time.time()), 10, "")

    assert "jobs_access" in explained(look, "SELECT jobs.document_id \nFROM jobs")
