"""Faults inside a job's own processes: engines, chunker and embedder are wrapped when their modules are imported.

``INGEST_FAULTS`` names a JSON file with the list of faults, as ``faults.py`` writes it. No fingerprint changes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]


def install() -> None:
    """Wraps the plug-points of modules that are imported from now on."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in PATCHES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader, PATCHES[fullname])
        return spec


class _Patching(Loader):
    def __init__(self, real: Loader, patch: Patch) -> None:
        self._real = real
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        self._patch(module)


# ---------------------------------------------------------------- which fault is on


def _active(at: str) -> Iterator[dict[str, Any]]:
    for fault in json.loads(Path(os.environ["INGEST_FAULTS"]).read_text()):
        if fault["at"] == at:
            yield fault


def _use(fault: dict[str, Any]) -> int:
    """How often the fault was used, this time included; over all processes."""
    folder = Path(fault["counter"])
    number = 1
    while True:
        try:
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return number


def _may(fault: dict[str, Any]) -> bool:
    return fault.get("times") is None or _use(fault) <= fault["times"]


# ---------------------------------------------------------------- engines


def _engines(module: ModuleType) -> None:
    real = module.parse

    def parse(path: str, first: int, last: int) -> Any:
        for fault in _active("engine"):
            pages = set(fault["pages"]) & set(range(first, last + 1)) if fault["pages"] else {first}
            if pages and (not fault["ids"] or Path(path).name in fault["ids"]) and _may(fault):
                return _broken(fault, real, (path, first, last), pages)
        return real(path, first, last)

    module.parse = parse  # type: ignore[attr-defined]


def _broken(fault: dict[str, Any], real: Callable[..., Any], call: tuple[str, int, int], pages: set[int]) -> Any:
    from dataclasses import replace

    does = fault["does"]
    if does in FATAL:
        FATAL[does](fault)
    found = real(*call)
    if does == "text":
        return replace(found, pages=tuple(_with_text(page, fault["text"]) for page in found.pages))
    if does == "empty":
        return replace(found, pages=tuple(_with_text(p, "") if p.number in pages else p for p in found.pages))
    return replace(found, pages=tuple(page for page in found.pages if page.number not in pages))  # leave_out, no_output


def _with_text(page: Any, text: str) -> Any:
    from dataclasses import replace

    return replace(page, blocks=tuple(replace(block, text=text) for block in page.blocks[:1]))


def _hang(_: dict[str, Any]) -> None:
    while True:
        sum(range(10_000_000))  # one C call after the other, the interpreter's lock held


def _hang_deaf(_: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _hang(_)


def _memory_error(_: dict[str, Any]) -> None:
    raise MemoryError


FATAL: dict[str, Callable[[dict[str, Any]], None]] = {
    "segv": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": lambda _: os.abort(),
    "hang_holding_gil": _hang,
    "hang_ignoring_sigterm_with_child": _hang_deaf,
    "memory_error": _memory_error,
    "kill_parent": lambda _: os.kill(os.getppid(), signal.SIGKILL),
    "slow": lambda fault: time.sleep(fault["seconds"]),
}


# ---------------------------------------------------------------- chunker and embedder


def _chunker(module: ModuleType) -> None:
    for name in ("recursive", "structure"):
        setattr(module, name, _cutting(getattr(module, name)))


def _cutting(real: Callable[..., Any]) -> Callable[..., Any]:
    def cut(assembled: Any, *rest: Any) -> Any:
        for fault in _active("chunker"):
            if (not fault["ids"] or assembled.document.document_id in fault["ids"]) and _may(fault):
                raise RuntimeError("the chunker failed, as this scenario wants")
        return real(assembled, *rest)

    return cut


def _embedder(module: ModuleType) -> None:
    real = module.HashingEmbedder.embed

    def embed(self: Any, texts: Sequence[str]) -> Any:
        vectors = real(self, texts)
        for fault in _active("process"):
            if "fox jumps over the lazy dog" not in texts[0] and _use(fault) % fault["every"] == 0:
                os._exit(1)
        for fault in _active("embed"):
            chosen = [any(word in text for word in fault["texts"]) if fault["texts"] else True for text in texts]
            if any(chosen) and _may(fault):
                vectors = _bent(fault, vectors, chosen)
        return vectors

    module.HashingEmbedder.embed = embed


def _bent(fault: dict[str, Any], vectors: Any, chosen: list[bool]) -> Any:
    import numpy as np

    does = fault["does"]
    if does in ("error", "refuse_connection"):
        raise ConnectionRefusedError("nobody there") if does == "refuse_connection" else RuntimeError("it broke")
    if does == "one_row_fewer":
        return vectors[1:]
    rows = np.array(chosen)
    if does in ("nan", "inf", "zero"):
        vectors[rows] = {"nan": np.nan, "inf": np.inf, "zero": 0.0}[does]
    elif does == "scale":
        vectors[rows] *= fault["by"]
    elif does == "turn":
        vectors[rows] = [_turned(vector, fault["cosine"]) for vector in vectors[rows]]
    return vectors


def _turned(vector: Any, cosine: float) -> Any:
    """A unit vector at this cosine to ``vector``."""
    import numpy as np

    other = np.roll(vector, 1)
    other = other - (other @ vector) * vector
    return cosine * vector + (1 - cosine**2) ** 0.5 * other / np.linalg.norm(other)


PATCHES: dict[str, Patch] = {
    "ingest.parse.pdf": _engines,
    "ingest.parse.text": _engines,
    "ingest.parse.markdown": _engines,
    "ingest.parse.html": _engines,
    "ingest.chunk.recursive": _chunker,
    "ingest.embed.hashing": _embedder,
}
