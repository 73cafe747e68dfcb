"""Brings a database to the newest schema: an empty one at once, an older one step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, func, insert, inspect, select, text

from ingest.errors import StoreError
from ingest.state import tables

Step = Callable[[Connection], None]

# Number -> what changes a database of the number before into this one. A new one also changes ``tables.py``.
STEPS: Mapping[int, Step] = {
    1: tables.metadata.create_all,
    2: lambda connection: _add(connection, "segments", "seconds FLOAT DEFAULT 0 NOT NULL"),
    3: lambda connection: _add(connection, "jobs", "listed_by VARCHAR(128)", "jobs_listed"),
    4: lambda connection: _add(connection, "segments", "edition INTEGER DEFAULT 0 NOT NULL"),
    5: lambda connection: _create(connection, "samples", "begun", "pauses", "batches", "shares"),
    6: lambda connection: _add(connection, "jobs", "settled_chunks INTEGER DEFAULT 0 NOT NULL"),
    7: lambda connection: _add(connection, "jobs", "mirror_due BOOLEAN DEFAULT false NOT NULL", "jobs_mirror"),
    8: lambda connection: _add(connection, "parses", "content_hash VARCHAR(64) DEFAULT '' NOT NULL", "parses_content"),
    9: lambda connection: _add(connection, "jobs", "waited BOOLEAN DEFAULT false NOT NULL"),
}

_LOCK = 0x1ED6E5  # any number that only the ledger uses: two processes may migrate at the same time


def migrate(connection: Connection, now: float, steps: Mapping[int, Step] = STEPS) -> list[int]:
    """Numbers of the steps that were applied; an empty database takes the newest schema as it is in ``tables``.

    Raises StoreError where the database is newer than this program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    newest = max(steps)
    current = _current(connection)
    if current > newest:
        raise StoreError(f"the ledger has schema {current}, this program knows {newest}: use a newer program")
    missing = sorted(number for number in steps if number > current)
    if current == 0:
        tables.metadata.create_all(connection)
    else:
        for number in missing:
            steps[number](connection)
    if missing:
        connection.execute(insert(tables.migrations), [{"number": n, "applied_at": now} for n in missing])
    return missing


def _add(connection: Connection, table: str, column: str, index: str = "") -> None:
    connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {column}"))
    for found in tables.metadata.tables[table].indexes:
        if found.name == index:
            found.create(connection)


def _create(connection: Connection, *names: str) -> None:
    for name in names:
        tables.metadata.tables[name].create(connection)


def _current(connection: Connection) -> int:
    if not inspect(connection).has_table(tables.migrations.name):
        return 0
    return connection.execute(select(func.max(tables.migrations.c.number))).scalar() or 0
