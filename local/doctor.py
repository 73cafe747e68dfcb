"""What a machine needs for the laptop stack, looked at before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from local import net, opensearch, stack
from local.errors import PortTaken, StackError
from local.layout import CACHE, ROOT, ports

GIB = 1024**3
# OpenSearch 1 GiB heap, Ray 0.5 GiB object store, moto, and a pool of parse and embed processes
MEMORY_GIB = 6
DISK_GIB = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `level` is ok, warn or FAIL."""

    level: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<5}{self.text}"


def examine() -> list[Finding]:
    """Look at everything; starts nothing and writes nothing."""
    return [*_python(), *_java(), *_size(), *_downloads(), *_ports()]


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11) and sys.platform in ("linux", "darwin")
    yield Finding("ok" if ok else "FAIL", f"Python {platform.python_version()} on {sys.platform} {platform.machine()}")


def _java() -> Iterator[Finding]:
    try:
        done = subprocess.run([str(opensearch.java()), "-version"], capture_output=True, text=True, check=True)
    except (StackError, OSError, subprocess.CalledProcessError) as error:
        yield Finding("FAIL", f"Java runtime: {error}")
    else:
        yield Finding("ok", f"Java runtime of the wheel: {done.stderr.splitlines()[0]}")


def _size() -> Iterator[Finding]:
    cpus, memory, disk = os.cpu_count() or 1, psutil.virtual_memory().total / GIB, shutil.disk_usage(ROOT).free / GIB
    yield Finding("ok" if cpus >= 2 else "warn", f"{cpus} CPUs (2 or more keep Ray from sharing one)")
    yield Finding("ok" if memory >= MEMORY_GIB else "warn", f"{memory:.0f} GiB memory (recommended: {MEMORY_GIB})")
    yield Finding("ok" if disk >= DISK_GIB else "warn", f"{disk:.0f} GiB disk free (recommended: {DISK_GIB})")


def _downloads() -> Iterator[Finding]:
    if opensearch.is_prepared():
        yield Finding("ok", f"OpenSearch artifacts are in {CACHE}; no network is needed")
    else:
        yield Finding(
            "warn", "OpenSearch artifacts are not there yet; the first `make up` fetches them from Maven Central"
        )


def _ports() -> Iterator[Finding]:
    chosen = ports()
    wanted = (
        ("opensearch", chosen.opensearch, "OPENSEARCH_PORT"),
        ("moto", chosen.moto, "MOTO_PORT"),
        ("ray", chosen.ray, "RAY_PORT"),
        ("ray", chosen.ray_dashboard, "RAY_DASHBOARD_PORT"),
        ("ray", chosen.ray_agent, "RAY_DASHBOARD_PORT"),
    )
    running = {s.name for s in stack.status() if s.state != "down"}
    for name, port, variable in wanted:
        if name in running:
            yield Finding("ok", f"port {port}: {name} is up")
            continue
        try:
            net.require_free(port, name, variable)
            yield Finding("ok", f"port {port} is free for {name}")
        except PortTaken as error:
            yield Finding("FAIL", str(error))
