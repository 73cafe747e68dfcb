"""Engines that fail in the ways real ones do; a sandbox in a test runs them by name."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ingest.errors import ParseError
from ingest.model import Block, Page
from ingest.parse.result import ParsedPages

BAD_PAGE = 7


def _pages(first: int, last: int) -> ParsedPages:
    return ParsedPages(tuple(Page(n, (Block("text", f"page {n}"),)) for n in range(first, last + 1)), "fake")


def good(path: str, first: int, last: int) -> ParsedPages:
    return _pages(first, last)


def segv(path: str, first: int, last: int) -> ParsedPages:
    if first <= BAD_PAGE <= last:
        os.kill(os.getpid(), signal.SIGSEGV)
    return _pages(first, last)


def abort(path: str, first: int, last: int) -> ParsedPages:
    if first <= BAD_PAGE <= last:
        os.abort()
    return _pages(first, last)


def hang(path: str, first: int, last: int) -> ParsedPages:
    """Loops on the bad page, deaf to SIGTERM; starts a process and writes its id beside the document."""
    if first <= BAD_PAGE <= last:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(path + ".pid").write_text(str(sleeper.pid))
        while True:
            pass
    return _pages(first, last)


def hang_always(path: str, first: int, last: int) -> ParsedPages:
    while True:
        time.sleep(1)


def memory_error(path: str, first: int, last: int) -> ParsedPages:
    if last >= BAD_PAGE:
        raise MemoryError
    return _pages(first, last)


def hungry(path: str, first: int, last: int) -> ParsedPages:
    if first <= BAD_PAGE <= last:
        return ParsedPages((), "fake", title=str(len(bytearray(4 << 30))))
    return _pages(first, last)


def raises(path: str, first: int, last: int) -> ParsedPages:
    if first <= BAD_PAGE <= last:
        raise KeyError("no such thing")
    return _pages(first, last)


def calls_home(path: str, first: int, last: int) -> ParsedPages:
    """Reads what a server on loopback says, whose port stands beside the document."""
    port = int(Path(path + ".port").read_text())
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        return ParsedPages((), "fake", title=connection.recv(10).decode())


def halves(path: str, first: int, last: int) -> ParsedPages:
    """Gives text as a library in C may: a lone half, a pair in two halves, and a NUL."""
    text = "gain \udbff end \ud835\udf0e ok\0"
    return ParsedPages(tuple(Page(n, (Block("text", text),)) for n in range(first, last + 1)), "fake", title="a\udbffb")


def forgets(path: str, first: int, last: int) -> ParsedPages:
    """Leaves pages out and says nothing."""
    return _pages(first, last - 2)


def poison(path: str, first: int, last: int) -> ParsedPages:
    raise ParseError("corrupt_file", "nothing in it")


def prints(path: str, first: int, last: int) -> ParsedPages:
    """Writes to stdout by every way there is."""
    sys.stdout.write("noise\n")
    sys.stdout.flush()
    os.write(1, b"more noise\n")
    return _pages(first, last)


_kept: list[bytearray] = []


def leaks(path: str, first: int, last: int) -> ParsedPages:
    """Keeps a gigabyte of every document that it read."""
    _kept.append(bytearray(1 << 30))
    return _pages(first, last)
