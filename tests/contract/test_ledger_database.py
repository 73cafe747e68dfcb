"""The database below: schema, errors, and how fast segments settle."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from ingest.errors import ConfigError, StoreError, StoreRefused, StoreUnavailable
from ingest.failure import Backoff
from ingest.state import Ledger, Settlement, connect, migrations, tables
from tests.ledger_steps import GEN, PARSER, admitted, open_segments, plan_of, version

# What the first schema did not have.
LATER_TABLES = ("samples", "begun", "pauses", "batches", "shares")
LATER_COLUMNS = (
    ("segments", "seconds"),
    ("segments", "edition"),
    ("jobs", "listed_by"),
    ("jobs", "settled_chunks"),
    ("jobs", "mirror_due"),
    ("jobs", "waited"),
    ("parses", "content_hash"),
)


def test_empty_database_gets_the_newest_schema(empty_database_url: str) -> None:
    ledger = Ledger(empty_database_url)
    assert ledger.migrate() == sorted(migrations.STEPS)
    assert ledger.migrate() == []
    assert ledger.runs() == []
    ledger.close()


def test_processes_that_migrate_at_the_same_time_do_it_once(empty_database_url: str) -> None:
    ledgers = [Ledger(empty_database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        applied = [number for numbers in pool.map(Ledger.migrate, ledgers) for number in numbers]
    for ledger in ledgers:
        ledger.close()
    assert applied == sorted(migrations.STEPS)


def test_older_schema_is_brought_up_step_by_step(ledger_url: str) -> None:
    engine = connect.open_engine(ledger_url)
    more = max(migrations.STEPS) + 1
    steps = {
        **migrations.STEPS,
        more: lambda c: c.execute(text("ALTER TABLE runs ADD COLUMN note TEXT")) and None,
        more + 1: lambda c: c.execute(text("UPDATE runs SET note = ''")) and None,
    }
    assert connect.transact(engine, lambda c: migrations.migrate(c, 0.0, steps)) == [more, more + 1]
    assert connect.transact(engine, lambda c: migrations.migrate(c, 0.0, steps)) == []
    with pytest.raises(StoreError, match="use a newer program"):
        connect.transact(engine, lambda c: migrations.migrate(c, 0.0))
    engine.dispose()


def test_schema_of_the_first_version_becomes_the_newest(ledger_url: str) -> None:
    engine = connect.open_engine(ledger_url)

    def forget(connection: Connection) -> None:
        for index in ("jobs_listed", "jobs_mirror", "parses_content"):
            connection.execute(text(f"DROP INDEX {index}"))
        for table, column in LATER_COLUMNS:
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        for table in LATER_TABLES:
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DELETE FROM migrations WHERE number > 1"))

    connect.transact(engine, forget)
    assert connect.transact(engine, lambda c: migrations.migrate(c, 0.0)) == sorted(migrations.STEPS)[1:]
    for name, table in tables.metadata.tables.items():
        columns = {column["name"]: column["nullable"] for column in inspect(engine).get_columns(name)}
        assert columns == {column.name: column.nullable for column in table.columns}, name
        assert {index["name"] for index in inspect(engine).get_indexes(name)} >= {i.name for i in table.indexes}, name
    engine.dispose()


def test_missing_table_is_a_store_error(empty_database_url: str) -> None:
    ledger = Ledger(empty_database_url)
    with pytest.raises(StoreError) as caught:
        ledger.runs()
    assert not isinstance(caught.value, StoreUnavailable)
    ledger.close()


def test_server_that_is_not_there_is_unavailable() -> None:
    ledger = Ledger("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(StoreUnavailable, match="ledger"):
        ledger.migrate()
    ledger.close()


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/no/ledger.db")
    with pytest.raises(StoreRefused, match="ledger"):
        ledger.migrate()
    ledger.close()


@pytest.mark.parametrize("url", ["", "mysql://host/db", "sqlite://", "nonsense"])
def test_other_databases_are_refused_with_the_config(url: str) -> None:
    with pytest.raises(ConfigError, match=r"ledger\.url"):
        Ledger(url)


def test_failed_verb_leaves_nothing_behind(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [plan_of(document.document_id, 2)])
    with pytest.raises(StoreError):
        ledger.settle(GEN, PARSER, [Settlement(document.document_id, 0), Settlement(document.document_id, 9)])
    assert open_segments(ledger, document.document_id) == (0, 1)


def test_verb_waits_for_a_database_that_restarts(ledger_url: str) -> None:
    engine = connect.open_engine(ledger_url)
    answers = iter([StoreUnavailable("shutting down"), StoreUnavailable("starting up")])

    def work(connection: Connection) -> int:
        for error in answers:
            raise error
        return int(connection.execute(text("SELECT 7")).scalar_one())

    soon = Backoff(base_s=0.01, cap_s=0.01, budget_s=1.0)
    assert connect.transact(engine, work, outage=soon) == 7
    engine.dispose()


def test_outage_that_lasts_is_raised(ledger_url: str) -> None:
    engine = connect.open_engine(ledger_url)
    calls = []

    def work(_: Connection) -> None:
        calls.append(1)
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable, match="gone"):
        connect.transact(engine, work, outage=Backoff(base_s=0.01, cap_s=0.01, budget_s=0.05))
    assert len(calls) > 1
    engine.dispose()


def test_settle_rate(ledger: Ledger, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(50)))
    ledger.plan(GEN, PARSER, [plan_of(d.document_id, 16) for d in documents])
    todo = [Settlement(d.document_id, n, engine="pymupdf", artifact="a" * 80) for d in documents for n in range(16)]
    started = time.perf_counter()
    answers = [a for low in range(0, len(todo), 8) for a in ledger.settle(GEN, PARSER, todo[low : low + 8])]
    seconds = time.perf_counter() - started
    rate, call_ms = len(todo) / seconds, 8000 * seconds / len(todo)
    with capsys.disabled():
        print(f"\n{request.node.name}: {rate:,.0f} segments/s, {call_ms:.1f} ms a call of 8")
    assert sum(answer.is_closer for answer in answers) == 50
