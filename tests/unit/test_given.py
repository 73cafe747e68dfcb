"""Which server the laptop stack uses: one that the environment names, or its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from local import given
from local.layout import DATA
from local.service import Service

VARIABLE = {"opensearch": "OPENSEARCH_PORT", "moto": "MOTO_PORT"}


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where started services are recorded; and nothing in the environment."""
    monkeypatch.setattr(given, "RUN", tmp_path)
    for name in [name for name in os.environ if name.startswith(("AWS_", "OPENSEARCH", "LEDGER", "INGEST_", "MOTO_"))]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def listening() -> Iterator[ThreadingHTTPServer]:
    """Something that listens, as a container would."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", given.VARIABLES)
def test_our_own_is_used_where_nothing_is_named(name: str) -> None:
    assert given.server(name) is None


@pytest.mark.parametrize("name", given.VARIABLES)
def test_a_server_that_is_named_is_used_whether_it_answers_or_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(given.VARIABLES[name], "https://search.example.com/")
    assert given.server(name) == "https://search.example.com"


@pytest.mark.parametrize("name", given.VARIABLES)
def test_our_own_address_means_our_own_while_nobody_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE[name], "1")
    monkeypatch.setenv(given.VARIABLES[name], given.our_url(name))
    assert given.server(name) is None


@pytest.mark.parametrize("name", given.VARIABLES)
def test_what_listens_at_our_address_is_the_users_unless_we_started_it(
    name: str, run: Path, listening: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE[name], str(listening.server_port))
    monkeypatch.setenv(given.VARIABLES[name], given.our_url(name))
    assert given.server(name) == given.our_url(name)

    ours = psutil.Process()
    Service(name, given.our_url(name), ours.pid, run, ours.create_time()).save(run)
    assert given.server(name) is None


def test_a_ledger_that_is_named_is_used_unless_it_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, found in (
        ("", None),
        (given.our_ledger(), None),
        (f"postgresql+psycopg://postgres@/postgres?host={DATA}/postgres", None),
        (f"postgresql+psycopg://postgres@/postgres?host={str(DATA).replace('/', '%2F')}%2Fpostgres", None),
        ("postgresql+psycopg://me:secret@db/ingest", "postgresql+psycopg://me:secret@db/ingest"),
    ):
        monkeypatch.setenv("LEDGER_URL", url)
        assert given.ledger() == found


def test_keys_of_the_users_own_store_are_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("INGEST_BUCKET", "papers")
    assert given.object_store() == {
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_DEFAULT_REGION": "us-east-1",
        "INGEST_BUCKET": "papers",
        "INGEST_ARTIFACTS": "artifacts",
        "INGEST_QUEUE": "documents-events",
    }


def test_our_own_store_has_its_own_keys_and_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("INGEST_BUCKET", "papers")
    found = given.object_store()
    assert (found["AWS_ACCESS_KEY_ID"], found["INGEST_BUCKET"]) == ("local", "documents")
