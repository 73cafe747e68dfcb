from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.errors import ParseError
from ingest.parse.sandbox import Sandbox
from tests import corpus

TIMEOUT_S = 2.0


def sandbox(engine: str, timeout_s: float = TIMEOUT_S) -> Sandbox:
    return Sandbox(timeout_s, 2048, engines={"fake": f"tests.faulty_engines:{engine}"}, ladders={"text": ("fake",)})


def parsed(engine: str, path: str = "nowhere", pages: int = 12) -> tuple[list[int], dict[int, str]]:
    """Pages that were read, and reason per page that was not."""
    with sandbox(engine) as box:
        found = box.parse(path, "text", 1, pages)
    return [page.number for page in found.pages], {number: failure.reason for number, failure in found.failed_pages}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> bool:
    end = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


@pytest.fixture(scope="module")
def real() -> Iterator[Sandbox]:
    with Sandbox(20, 2048) as box:
        yield box


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("segv", "engine_crashed"),
        ("abort", "engine_crashed"),
        ("raises", "engine_crashed"),
        ("hungry", "out_of_memory"),
    ],
)
def test_one_bad_page_costs_one_page(engine: str, reason: str) -> None:
    assert parsed(engine) == ([1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], {7: reason})


def test_a_page_that_never_returns_is_killed_with_all_it_started(tmp_path: Path) -> None:
    started = time.monotonic()
    path = str(tmp_path / "document")
    assert parsed("hang", path) == ([1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], {7: "timeout"})
    assert time.monotonic() - started < 2 * TIMEOUT_S + 30
    assert wait_until_dead(int(Path(path + ".pid").read_text()))


def test_when_every_page_hangs_the_time_is_bounded_and_every_page_named() -> None:
    started = time.monotonic()
    with sandbox("hang_always", 0.5) as box:
        found = box.parse("nowhere", "text", 1, 20)
    assert {number: failure.reason for number, failure in found.failed_pages} == dict.fromkeys(range(1, 21), "timeout")
    assert time.monotonic() - started < 4 * 0.5 + 30


def test_memory_that_runs_out_on_late_pages_costs_exactly_these() -> None:
    assert parsed("memory_error") == ([1, 2, 3, 4, 5, 6], dict.fromkeys(range(7, 13), "out_of_memory"))


def test_a_single_bad_page_is_named_without_a_second_try() -> None:
    with sandbox("segv") as box:
        found = box.parse("nowhere", "text", 7, 7)
    assert [(number, failure.reason) for number, failure in found.failed_pages] == [(7, "engine_crashed")]


def test_a_file_that_is_poison_is_told_as_such() -> None:
    with sandbox("poison") as box, pytest.raises(ParseError) as caught:
        box.parse("nowhere", "text", 1, 12)
    assert (caught.value.reason, caught.value.detail) == ("corrupt_file", "nothing in it")


def test_what_an_engine_prints_is_no_answer() -> None:
    assert parsed("prints", pages=3) == ([1, 2, 3], {})


def test_the_child_lives_from_call_to_call_and_is_replaced_after_its_death() -> None:
    with sandbox("segv") as box:
        box.parse("nowhere", "text", 1, 2)
        first = box.pid
        box.parse("nowhere", "text", 3, 4)
        assert box.pid == first
        box.parse("nowhere", "text", 7, 7)
        box.parse("nowhere", "text", 8, 8)
        assert box.pid not in (0, first)
    assert wait_until_dead(first)


def test_no_child_outlives_its_sandbox() -> None:
    with sandbox("good") as box:
        box.parse("nowhere", "text", 1, 2)
        pid = box.pid
    assert box.pid == 0
    assert not is_alive(pid)


def test_a_busy_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys, threading, time\n"
        "from tests.integration.test_sandbox import sandbox\n"
        "box = sandbox('hang_always', 300)\n"
        "box.start()\n"
        "print(box.pid, flush=True)\n"
        "threading.Timer(2.0, lambda: os.kill(os.getpid(), 9)).start()\n"
        "box.parse('nowhere', 'text', 1, 2)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, timeout=60, check=False)
    assert parent.returncode == -9
    assert wait_until_dead(int(parent.stdout))


def test_a_second_thread_is_refused_with_the_reason() -> None:
    with sandbox("hang_always", 3) as box:
        first = threading.Thread(target=box.parse, args=("nowhere", "text", 1, 1))
        first.start()
        time.sleep(0.5)
        with pytest.raises(RuntimeError, match="one document at a time"):
            box.parse("nowhere", "text", 2, 2)
        first.join()


def test_a_process_that_cannot_start_blames_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ParseError, match="internal_error"):
        sandbox("good").parse("nowhere", "text", 1, 1)


def test_a_process_that_cannot_start_again_fails_no_page_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    with sandbox("segv") as box:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(ParseError, match="internal_error"):
            box.parse("nowhere", "text", 1, 12)


def test_a_small_memory_limit_still_lets_the_engine_start(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(corpus.make_pdf(2))
    with Sandbox(20, 256) as box:
        assert len(box.parse(str(path), "pdf", 1, 2).pages) == 2


# ---------------------------------------------------------------- with the real engines

BROKEN = [pytest.param(name, data, reasons, id=name) for name, (data, reasons) in corpus.broken().items()]
SOUND = [pytest.param(name, data, id=name) for name, data in [*corpus.awkward().items(), *corpus.healthy(8).items()]]


def reasons_of(box: Sandbox, path: Path, name: str) -> set[str]:
    try:
        found = box.inspect(str(path), name)
    except ParseError as error:
        return {error.reason}
    return {failure.reason for _, failure in box.parse(str(path), found.format, 1, found.pages).failed_pages}


@pytest.mark.parametrize(("name", "data", "reasons"), BROKEN)
def test_broken_documents_end_with_a_reason_that_tells_why(
    name: str, data: bytes, reasons: set[str], real: Sandbox, tmp_path: Path
) -> None:
    path = tmp_path / "document"
    path.write_bytes(data)
    assert reasons_of(real, path, name) & reasons


@pytest.mark.parametrize(("name", "data"), SOUND)
def test_sound_documents_are_read_to_the_last_page(name: str, data: bytes, real: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(data)
    found = real.inspect(str(path), name)
    pages = real.parse(str(path), found.format, 1, found.pages)
    assert [page.number for page in pages.pages] == list(range(1, found.pages + 1))
    assert not pages.failed_pages
    assert any(block.text.strip() for page in pages.pages for block in page.blocks)


def test_an_engine_reaches_nobody_and_its_parent_still_does(tmp_path: Path) -> None:
    path = str(tmp_path / "document")
    with socket.create_server(("127.0.0.1", 0)) as server, sandbox("calls_home") as box:
        Path(path + ".port").write_text(str(server.getsockname()[1]))
        found = box.parse(path, "text", 1, 1)
        assert [(page, failure.reason) for page, failure in found.failed_pages] == [(1, "engine_crashed")]
        assert any(word in found.failed_pages[0][1].sentence for word in ("unreachable", "has no network"))
        assert box.network in ("none", "refused")
        with socket.create_connection(server.getsockname(), timeout=5):
            connection, _ = server.accept()
            connection.close()


def test_what_others_left_in_the_engines_memory_is_not_blamed_on_the_next_document() -> None:
    with sandbox("leaks", 20.0) as box:  # 2 GiB are allowed, and each document leaves one
        found = [box.parse("nowhere", "text", 1, 3) for _ in range(5)]
    assert [[page.number for page in one.pages] for one in found] == [[1, 2, 3]] * 5
    assert [one.failed_pages for one in found] == [()] * 5


def test_what_an_engine_leaves_in_its_text_is_repaired_and_counted() -> None:
    with sandbox("halves") as box:
        found = box.parse("nowhere", "text", 1, 2)
    assert [page.blocks[0].text for page in found.pages] == ["gain  end \U0001d70e ok"] * 2
    assert (found.repairs, found.title) == (4, "ab")


def test_pages_that_an_engine_leaves_out_are_missing_by_name() -> None:
    assert parsed("forgets") == (list(range(1, 11)), {11: "pages_missing", 12: "pages_missing"})
