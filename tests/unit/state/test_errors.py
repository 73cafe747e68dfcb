"""Every database error has one meaning, decided by a table; decisions about a count are pure too."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ingest.errors import StoreError, StoreRefused, StoreUnavailable
from ingest.model import Document, State
from ingest.state import Pending
from ingest.state.connect import Conflict, translate
from ingest.state.settling import decide


def postgres_error(code: str) -> DBAPIError:
    error = psycopg.errors.lookup(code)("refused")
    return DBAPIError("SELECT secret", {"password": "hunter2"}, error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("40001", Conflict),
        ("40P01", Conflict),
        ("55P03", Conflict),
        ("23505", Conflict),
        ("08006", StoreUnavailable),
        ("53300", StoreUnavailable),
        ("57P01", StoreUnavailable),
        ("28P01", StoreRefused),
        ("3D000", StoreRefused),
        ("42501", StoreRefused),
        ("25006", StoreRefused),
        ("42P01", StoreError),
        ("22021", StoreError),
    ],
)
def test_postgresql_errors_have_one_meaning(code: str, kind: type[StoreError]) -> None:
    assert type(translate(postgres_error(code))) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_BUSY", Conflict),
        ("SQLITE_BUSY_SNAPSHOT", Conflict),
        ("SQLITE_LOCKED", Conflict),
        ("SQLITE_CONSTRAINT_UNIQUE", Conflict),
        ("SQLITE_CONSTRAINT_NOTNULL", StoreError),
        ("SQLITE_FULL", StoreUnavailable),
        ("SQLITE_CANTOPEN", StoreRefused),
        ("SQLITE_NOTADB", StoreRefused),
        ("SQLITE_ERROR", StoreError),
    ],
)
def test_sqlite_errors_have_one_meaning(name: str, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("refused")
    error.sqlite_errorname = name
    assert type(translate(DBAPIError("SELECT 1", None, error))) is kind


def test_lost_connection_without_a_code_is_unavailable() -> None:
    assert type(translate(DBAPIError("x", None, psycopg.OperationalError("connection refused")))) is StoreUnavailable
    assert type(translate(PoolTimeout("all in use"))) is StoreUnavailable
    assert type(translate(InvalidRequestError("misuse"))) is StoreError


def test_message_holds_no_values() -> None:
    assert "hunter2" not in str(translate(postgres_error("42P01")))


@pytest.mark.parametrize(
    ("chunks", "failed_chunks", "failed_segments", "found", "end"),
    [
        (3, 0, 0, 3, State.READY),
        (3, 0, 0, 2, None),
        (3, 0, 0, 4, None),
        (3, 0, 1, 3, State.PARTIAL),
        (3, 1, 0, 2, State.PARTIAL),
        (3, 1, 0, 3, State.READY),
        (3, 2, 0, 2, None),
        (3, 3, 0, 0, State.FAILED),
        (3, 0, 0, 0, None),
        (0, 0, 0, 0, None),
    ],
)
def test_count_decides_the_end(
    chunks: int, failed_chunks: int, failed_segments: int, found: int, end: State | None
) -> None:
    document = Document("d", "b", "k", "v", "v", 1, 1)
    assert decide(Pending(document, chunks, failed_chunks, failed_segments, 5), found) is end
