"""Who runs, whether it still does, and documents of which the index lost chunks behind our back."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ingest import runs
from ingest.config import Config, parse
from ingest.failure import failure
from ingest.index.sink import IndexSink
from ingest.model import ChunkFailure, Document, State
from ingest.runs import config_fingerprint, fingerprints_of, is_alive, new_run_id, owner, reopen_short
from ingest.state import Ledger, Verified
from ingest.work import Run
from tests.fakes import MemorySink
from tests.ledger_steps import FINGERPRINTS, GEN, admitted, constructed, ready, version
from tests.unit.test_verify import write

# ---------------------------------------------------------------- owners


def test_who_runs_now_is_alive() -> None:
    assert owner().startswith(f"{socket.gethostname()}:{os.getpid()}:")
    assert owner() == owner()
    assert is_alive(owner())


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """Another process, which says who it is."""
    code = "import time; from ingest.runs import owner; print(owner(), flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_run_is_dead_before_and_after_its_parent_noticed(sleeper: subprocess.Popen[str]) -> None:
    who = said(sleeper)
    assert is_alive(who)
    sleeper.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table as a zombie
    assert not is_alive(who)
    sleeper.wait()
    assert not is_alive(who)


def test_a_process_that_got_the_pid_of_a_dead_run_is_not_that_run() -> None:
    host, pid, started = owner().rsplit(":", 2)
    assert not is_alive(f"{host}:{pid}:{int(started) - 1}")


def test_a_run_on_another_host_is_believed_until_its_leases_end() -> None:
    assert is_alive("another-host:1:1")
    assert is_alive("host:with:colons:1:1")


def test_the_start_is_the_same_however_it_is_asked_for() -> None:
    """macOS has no /proc; what ps says must be as stable and as free of colons."""
    by_ps = runs._start_by_ps(os.getpid())
    assert by_ps == runs._start_by_ps(os.getpid())
    assert ":" not in by_ps
    assert runs._start_by_ps(2**22 + 1) == "gone"


# ---------------------------------------------------------------- names


def test_a_run_id_is_sortable_and_says_the_verb() -> None:
    made = [new_run_id("backfill") for _ in range(20)]
    assert all(re.fullmatch(r"backfill-\d{8}-\d{6}-[0-9a-f]{4}", name) for name in made)
    assert len(set(made)) > 15


def configured(tmp_path: Path, **sections: Any) -> Config:
    base: dict[str, Any] = {
        "source": {"bucket": "b"},
        "artifacts": {"bucket": "a"},
        "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
        "index": {"url": "http://127.0.0.1:9200"},
        "embed": {"model": "hashing:8"},
    }
    return parse({name: base.get(name, {}) | sections.get(name, {}) for name in base | sections})


def test_every_key_changes_the_fingerprint_of_the_configuration(tmp_path: Path) -> None:
    plain, other = configured(tmp_path), configured(tmp_path, verify={"every_s": 6})
    assert config_fingerprint(plain) == config_fingerprint(configured(tmp_path))
    assert config_fingerprint(plain) != config_fingerprint(other)


@pytest.mark.parametrize(
    ("sections", "changed"),
    [
        ({"chunk": {"size": 200}}, {"chunker"}),
        ({"chunk": {"strategy": "structure"}}, {"chunker"}),
        ({"embed": {"model": "hashing:8:other"}}, {"embedder"}),
        ({"embed": {"passage_prefix": "passage: "}}, {"embedder"}),
        ({"embed": {"model": "hashing:16"}}, {"embedder", "mapping"}),
        ({"index": {"m": 32}}, {"mapping"}),
        ({"index": {"replicas": 1, "refresh_interval": "30s"}}, set()),
        ({"parse": {"timeout_s": 5, "actors": 2}, "embed": {"batch": 48, "actors": 3}}, set()),
        ({"source": {"prefix": "x", "limit": 3}, "run": {"lease_s": 999}}, set()),
    ],
)
def test_what_changes_the_index_changes_its_fingerprint_and_nothing_else_does(
    tmp_path: Path, sections: dict[str, Any], changed: set[str]
) -> None:
    plain = fingerprints_of(configured(tmp_path))
    merged = {name: ({"model": "hashing:8"} if name == "embed" else {}) | keys for name, keys in sections.items()}
    other = fingerprints_of(configured(tmp_path, **merged))
    names = ("parser", "chunker", "embedder", "mapping")
    assert {name for name in names if getattr(plain, name) != getattr(other, name)} == changed


# ---------------------------------------------------------------- lost behind our back


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    opened.migrate()
    yield opened
    opened.close()


def reopened(tmp_path: Path, ledger: Ledger, sink: MemorySink) -> int:
    return reopen_short(Run("run-2", configured(tmp_path), GEN, FINGERPRINTS), ledger, cast(IndexSink, sink))


def filled(ledger: Ledger, sink: MemorySink) -> list[Document]:
    """Three documents of three chunks each, ready and in the index."""
    documents = admitted(ledger, *(version(key, 1) for key in "abc"))
    ready(ledger, documents)
    for document in documents:
        write(sink, document, range(3))
    return documents


def lose(sink: MemorySink, document: Document, count: int) -> None:
    ids = [name for name, (item, _, _) in sink.live.items() if item.document.document_id == document.document_id]
    for name in ids[:count]:
        del sink.live[name]


def test_an_index_that_is_as_expected_reopens_nothing(tmp_path: Path, ledger: Ledger) -> None:
    sink = MemorySink()
    filled(ledger, sink)
    assert reopened(tmp_path, ledger, sink) == 0
    assert ledger.queued(GEN) == 0


@pytest.mark.parametrize("lost", [1, 3])
def test_a_document_that_lost_chunks_is_queued_again_and_no_other(tmp_path: Path, ledger: Ledger, lost: int) -> None:
    sink = MemorySink()
    documents = filled(ledger, sink)
    lose(sink, documents[1], lost)
    assert reopened(tmp_path, ledger, sink) == 1
    (again,) = ledger.take(GEN, "run-2", 10, 3600)
    assert again.document_id == documents[1].document_id
    assert again.attempt == 2  # so that construct asks what is there and writes only what is missing


def test_every_page_of_a_long_list_is_counted(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "COUNTED_AT_ONCE", 2)
    sink = MemorySink()
    for document in filled(ledger, sink):
        lose(sink, document, 1)
    assert reopened(tmp_path, ledger, sink) == 3


def test_a_partial_document_is_expected_to_lack_its_buried_chunks(tmp_path: Path, ledger: Ledger) -> None:

    sink = MemorySink()
    (document,) = admitted(ledger, version("k", 1))
    constructed(ledger, document.document_id, 3)
    ledger.bury(GEN, [ChunkFailure("c" * 64, document.document_id, "embed", failure("bad_vector"))])
    write(sink, document, range(2))
    assert ledger.verified(GEN, [Verified(document.document_id, 2)]) == {document.document_id: State.PARTIAL}
    assert reopened(tmp_path, ledger, sink) == 0
    lose(sink, document, 1)
    assert reopened(tmp_path, ledger, sink) == 1


def test_chunks_that_are_not_refreshed_yet_are_not_called_lost(tmp_path: Path, ledger: Ledger) -> None:
    sink = MemorySink()
    filled(ledger, sink)
    assert sink.total() == 0
    assert reopened(tmp_path, ledger, sink) == 0
