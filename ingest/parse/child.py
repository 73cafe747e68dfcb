"""The process in which engines run: ``python -m ingest.parse.child MEMORY_MB TIMEOUT_S``, driven by ``sandbox.py``.

Messages come on stdin and go out on what was stdout; the end of stdin ends the process. What an engine prints goes to
stderr, so that it can't be taken for a message.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

from ingest.errors import ParseError
from ingest.parse.clean import whole
from ingest.parse.inspection import inspect, load
from ingest.parse.wire import encode_pages, pack, unpack

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_ROOM_MB = 128  # what a parse may have at least, however small the limit is


def main(memory_mb: int, timeout_s: float) -> None:
    """Answers messages until stdin ends."""
    network = _leave_network()
    _die_with_parent()  # after that: a change of credentials forgets it
    source, sink = sys.stdin.buffer, _take_stdout()
    _preload()
    _limit_memory(memory_mb)
    sink.write(pack({"ready": os.getpid(), "network": network}))
    sink.flush()
    while (request := unpack(source.read)) is not None:
        _limit_cpu(timeout_s)
        sink.write(pack(_answer(request)))
        sink.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "key" in request:
            found = inspect(request["path"], request["key"])
            return {"format": found.format, "pages": found.pages, "title": found.title}
        first, last = request["from"], request["to"]
        return encode_pages(whole(load(request["engine"])(request["path"], first, last), first, last))
    except ParseError as error:
        return {"error": error.reason, "detail": error.detail}
    except MemoryError:
        return {"error": "out_of_memory", "detail": ""}
    except Exception as error:  # noqa: BLE001 - an engine may raise anything, and the parent has to be told what
        memory = "malloc" in str(error) and "failed" in str(error)  # how MuPDF words it
        return {
            "error": "out_of_memory" if memory else "engine_crashed",
            "detail": f"{type(error).__name__}: {error}"[:300],
        }


def _take_stdout() -> BinaryIO:
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sink


def _leave_network() -> str:
    """How the engine is kept from the network: ``none`` is there for it, or ``refused`` by Python alone.

    A file must not make its reader call anybody. Where the kernel lets nobody leave, C code is not held.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0:
            return "none"
    sys.addaudithook(_refuse)
    return "refused"


def _refuse(event: str, _: Any) -> None:
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"):
        raise PermissionError(f"{event}: an engine has no network")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _preload() -> None:
    """The one import that takes long, done before the first document comes."""
    load("ingest.parse.pdf:parse")


def _limit_memory(memory_mb: int) -> None:
    """Address space of the process; what the engine's own code takes is always left to it, or it could not start."""
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = max(memory_mb << 20, taken + (_ROOM_MB << 20))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_cpu(timeout_s: float) -> None:
    """A second wall behind the parent's clock: holds even when the parent is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + 2 * timeout_s) + 2, hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
