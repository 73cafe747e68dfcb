"""The one seam to SQLAlchemy: engines, transactions, and what a database error means."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ingest.errors import ConfigError, StoreError, StoreRefused, StoreUnavailable
from ingest.failure import Backoff, with_retries

T = TypeVar("T")

BUSY_TIMEOUT_S = 30.0
CONFLICTS = Backoff(base_s=0.01, cap_s=1.0, budget_s=20.0)
OUTAGE = Backoff(base_s=0.5, cap_s=5.0, budget_s=60.0)  # a server that restarts is back within seconds
NO_OUTAGE = Backoff(budget_s=-1.0)


class Conflict(StoreUnavailable):
    """Two transactions met; the same one passes when it starts over."""


# The first row whose prefix fits the SQLSTATE of PostgreSQL, or the error name of SQLite.
ERRORS: tuple[tuple[str, type[StoreError]], ...] = (
    ("40", Conflict),  # serialization failure, deadlock
    ("55P03", Conflict),  # lock not available
    ("23505", Conflict),  # unique violation: somebody else inserted it since we looked
    ("08", StoreUnavailable),  # connection
    ("53", StoreUnavailable),  # too many connections, disk full, out of memory
    ("57", StoreUnavailable),  # shutdown, crash, cancelled
    ("28", StoreRefused),  # password
    ("3D", StoreRefused),  # no such database
    ("42501", StoreRefused),  # no privilege
    ("25006", StoreRefused),  # read only
    ("SQLITE_BUSY", Conflict),
    ("SQLITE_LOCKED", Conflict),
    ("SQLITE_CONSTRAINT_UNIQUE", Conflict),
    ("SQLITE_CONSTRAINT_PRIMARYKEY", Conflict),
    ("SQLITE_IOERR", StoreUnavailable),
    ("SQLITE_FULL", StoreUnavailable),
    ("SQLITE_CANTOPEN", StoreRefused),
    ("SQLITE_READONLY", StoreRefused),
    ("SQLITE_PERM", StoreRefused),
    ("SQLITE_NOTADB", StoreRefused),
)


def open_engine(url: str) -> Engine:
    """An engine for ``sqlite:///FILE`` or ``postgresql+psycopg://…``; ConfigError for anything else."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(f"ledger.url is no database URL: {error}") from error
    if parsed.get_backend_name() == "postgresql":
        # Every actor has an engine of its own, so the server sees actors x pool_size connections.
        return create_engine(parsed, pool_pre_ping=True, pool_size=1, max_overflow=7, pool_timeout=BUSY_TIMEOUT_S)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise ConfigError("ledger.url must be sqlite:///FILE or postgresql+psycopg://…")
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # else the driver decides when a transaction begins
    for pragma in (f"busy_timeout={int(BUSY_TIMEOUT_S * 1000)}", "journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once with SQLITE_BUSY if another wrote in between.
    write = connection.get_execution_options().get("write", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def transact(engine: Engine, work: Callable[[Connection], T], *, write: bool = True, outage: Backoff = OUTAGE) -> T:
    """The result of ``work`` in a transaction of its own, started over when it met another or lost the database.

    A commit whose answer was lost is done twice: counters may then count twice, and taken documents wait for release.
    """
    once = partial(_once, engine, work, write)
    settled = partial(with_retries, once, CONFLICTS, time.sleep, passing=(Conflict,))
    return with_retries(settled, outage, time.sleep, passing=(StoreUnavailable,))


def _once(engine: Engine, work: Callable[[Connection], T], write: bool) -> T:
    try:
        with engine.execution_options(write=write).begin() as connection:
            return work(connection)
    except SQLAlchemyError as error:
        raise translate(error) from error


def translate(error: SQLAlchemyError) -> StoreError:
    """What a database error means, by ``ERRORS``; the statement's values stay out of the message."""
    if isinstance(error, PoolTimeout):
        return StoreUnavailable(f"ledger: {error}")
    if not isinstance(error, DBAPIError):
        return StoreError(f"ledger: {type(error).__name__}: {error}")
    code = _code(error.orig)
    kind = next((kind for prefix, kind in ERRORS if code.startswith(prefix)), None)
    if kind is None:
        lost = error.connection_invalidated or (not code and _is_operational(error.orig))
        kind = StoreUnavailable if lost else StoreError
    return kind(f"ledger: {code or type(error.orig).__name__}: {error.orig}")


def _code(error: BaseException | None) -> str:
    if isinstance(error, sqlite3.Error):
        return str(getattr(error, "sqlite_errorname", None) or "")
    return str(getattr(error, "sqlstate", None) or "")


def _is_operational(error: BaseException | None) -> bool:
    return type(error).__name__ in {"OperationalError", "InterfaceError"}
