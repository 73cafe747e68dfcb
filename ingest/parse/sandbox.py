"""Runs engines in a child process, with a clock and a memory limit that hold whatever the engine does.

The child is killed from outside, with all that it started. macOS has no working RLIMIT_AS: there only the clock holds.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ingest.errors import ParseError
from ingest.failure import failure
from ingest.model import Failure, Page
from ingest.parse import ENGINES, LADDERS
from ingest.parse.result import Inspection, ParsedPages
from ingest.parse.wire import decode_pages, pack, unpack

_START_S = 60.0  # a cold disk and a busy machine: the import alone took 12 s once
_MAX_DEATHS = 4  # of the child over one range: the range as a whole, then three guilty pages
_LOST = ("timeout", "engine_crashed", "out_of_memory")


class Sandbox:
    """One child process, started by ``start`` or the first call, and again after it was killed.

    Not for several threads at once: one document per process is what MuPDF allows. The child dies with the *thread*
    that started it (PR_SET_PDEATHSIG), so start it from one that lasts.
    """

    def __init__(
        self,
        timeout_s: float,
        memory_mb: int,
        *,
        engines: Mapping[str, str] = ENGINES,
        ladders: Mapping[str, tuple[str, ...]] = LADDERS,
    ) -> None:
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._engines = engines
        self._ladders = ladders
        self._child: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._is_busy = False
        self._network = ""
        self._served = 0  # requests to this child

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the child, 0 while there is none."""
        return self._child.pid if self._child else 0

    @property
    def network(self) -> str:
        """What the child has of the network: ``none``, ``refused`` by Python alone, or "" before its first answer."""
        return self._network

    def start(self) -> None:
        """Starts the child and returns at once; it loads its engine meanwhile."""
        if self._child is None:
            command = [sys.executable, "-m", "ingest.parse.child", str(self._memory_mb), str(self._timeout_s)]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), start_new_session=True
            )
            self._is_ready, self._served = False, 0

    def close(self) -> None:
        """Ends the child and everything it started."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def inspect(self, path: str, key: str) -> Inspection:
        """Format by content, page count and title of a file. Raises ParseError."""
        plain = self._call({"path": path, "key": key}, self._timeout_s)
        return Inspection(plain["format"], plain["pages"], plain["title"])

    def parse(self, path: str, kind: str, page_from: int, page_to: int) -> ParsedPages:
        """Pages ``page_from`` to ``page_to`` by the first engine for this format.

        When the engine is lost on the range, its pages are read one by one: only the guilty ones are in
        ``failed_pages``. Takes at most ``(1 + 3) * timeout_s`` and the time to start a child as often. Raises
        ParseError when the file as a whole can't be read.
        """
        try:
            return self._read(path, kind, page_from, page_to)
        except ParseError as error:
            if error.reason not in _LOST:
                raise
            if page_from == page_to:
                return ParsedPages((), failed_pages=((page_from, failure(error.reason, error.detail)),))
        return self._page_by_page(path, kind, page_from, page_to)

    def _page_by_page(self, path: str, kind: str, page_from: int, page_to: int) -> ParsedPages:
        read: list[ParsedPages] = []
        failed: list[tuple[int, Failure]] = []
        deaths, deadline = 1, time.monotonic() + (_MAX_DEATHS - 1) * self._timeout_s
        lost = failure("timeout")
        for page in range(page_from, page_to + 1):
            left = deadline - time.monotonic()
            if deaths >= _MAX_DEATHS or left <= 0:
                failed.append((page, lost))
                continue
            before = self.pid
            try:
                read.append(self._read(path, kind, page, page, min(left, self._timeout_s)))
            except ParseError as error:
                if error.reason == "internal_error":  # not the page's fault, and an artifact is written once
                    raise
                lost = failure(error.reason, error.detail)
                failed.append((page, lost))
                deaths += self.pid != before or not self.pid
        return _merge(read, failed)

    def _read(self, path: str, kind: str, first: int, last: int, limit_s: float = 0.0) -> ParsedPages:
        engine = self._engines[self._ladders[kind][0]]
        request = {"path": path, "engine": engine, "from": first, "to": last}
        return decode_pages(self._call(request, limit_s or self._timeout_s))

    # ------------------------------------------------------------ the child

    def _call(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The child's answer. Raises ParseError ``timeout``, ``engine_crashed``, ``out_of_memory`` or what it says."""
        if self._is_busy:
            raise RuntimeError("a sandbox reads one document at a time; give each thread a sandbox of its own")
        self._is_busy = True
        try:
            answer = self._ask(request, limit_s)
            if answer.get("error") == "out_of_memory" and self._served > 1:
                self.close()  # what others left behind counted against this one, which may well fit alone
                answer = self._ask(request, limit_s)
        finally:
            self._is_busy = False
        if answer.get("error") == "out_of_memory":
            self.close()  # what the failed parse has left behind would count against the next one
        if "error" in answer:
            raise ParseError(answer["error"], answer["detail"])
        return answer

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        child = self._ready_child()
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            child.stdin.write(pack(request))
            child.stdin.flush()
        self._served += 1
        return self._receive(child, limit_s)

    def _ready_child(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self.close()
        self.start()
        assert self._child is not None
        if not self._is_ready:
            try:
                self._network = self._receive(self._child, _START_S)["network"]
            except ParseError as error:  # no document is to blame
                raise ParseError("internal_error", f"the engine's process did not start: {error}") from error
            self._is_ready = True
        return self._child

    def _receive(self, child: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any]:
        assert child.stdout is not None
        stream = _Stream(child.stdout.fileno(), time.monotonic() + limit_s)
        try:
            answer = unpack(stream.read)
        except TimeoutError:
            self.close()
            raise ParseError("timeout", f"{limit_s:g} s") from None
        except ValueError as error:
            self.close()
            raise ParseError("engine_crashed", f"it sent what is no message: {error}") from error
        if answer is None:
            self.close()
            raise _death(child.returncode)
        return answer


class _Stream:
    """Reads a pipe until a deadline."""

    def __init__(self, fd: int, deadline: float) -> None:
        self._fd = fd
        self._deadline = deadline

    def read(self, count: int) -> bytes:
        """``count`` bytes, fewer at the end of the stream. Raises TimeoutError."""
        parts: list[bytes] = []
        while count > 0:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self._fd, min(count, 1 << 20))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _death(code: int) -> ParseError:
    """What the end of the child says; a C++ library that gets no memory aborts, so SIGABRT alone does not tell."""
    if code < 0:
        name = signal.Signals(-code).name
        return ParseError("timeout" if -code == signal.SIGXCPU else "engine_crashed", f"it ended by {name}")
    return ParseError("engine_crashed", f"it ended with exit code {code}")


def _merge(read: list[ParsedPages], failed: list[tuple[int, Failure]]) -> ParsedPages:
    pages: list[Page] = [page for part in read for page in part.pages]
    failed = sorted(failed + [item for part in read for item in part.failed_pages], key=lambda item: item[0])
    return ParsedPages(
        pages=tuple(pages),
        engine=next((part.engine for part in read), ""),
        title=next((part.title for part in read if part.title), ""),
        outline=tuple(entry for part in read for entry in part.outline),
        failed_pages=tuple(failed),
        repairs=sum(part.repairs for part in read),
    )


def _environment() -> dict[str, str]:
    """The child finds the same modules, and its libraries start no threads of their own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
