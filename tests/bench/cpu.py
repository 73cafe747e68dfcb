"""Who used the CPU while something ran: process trees sampled with psutil, summed up by what a process is."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

EVERY_S = 0.5
STORE = "OpenSearch"
# The first row whose pattern is found in a command line names the process.
ROLES: tuple[tuple[str, str], ...] = (
    (r"ingest\.parse\.child", "parse child"),
    (r"MapBatches\((\w+)\)", "actor {}"),
    (r"ray::JobSupervisor", "job supervisor"),
    (r"ray::(?!IDLE)([\w.]+)", "task {}"),
    (r"-m jobs submit", "submit command"),
    (r"-m jobs", "driver"),
    (r"ingest\.embed\.convert", "model conversion"),
    (r"moto\.server", "moto"),
    (r"java", STORE),
    (r"raylet/raylet", "raylet"),
    (r"gcs_server", "gcs"),
    (r"dashboard/agent\.py", "dashboard agent"),
    (r"runtime_env/agent", "runtime env agent"),
    (r"dashboard/", "dashboard"),
    (r"log_monitor|monitor\.py", "monitors"),
    (r"ray\.util\.client", "client server"),
    (r"ray::IDLE|default_worker", "idle worker"),
    (r"ray\.scripts", "ray start"),
)
GENERIC = ("idle worker", "")


@dataclass(slots=True)
class Seen:
    """One process: when it was met first, took its role and was met last, its CPU seconds, its largest RSS in MiB."""

    role: str
    first_s: float
    role_s: float
    cpu_before: float
    last_s: float = 0.0
    cpu: float = 0.0
    rss_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """All processes of a role."""

    role: str
    processes: int
    cpu_s: float
    rss_mb: float
    first_s: float  # when the first of them took the role
    last_s: float  # when one was met last


@dataclass(slots=True)
class Watch:
    """Samples these trees until the body of ``watching`` ends; ``probe`` is asked at each turn until it is true."""

    roots: list[int]
    probe: Callable[[], bool] | None = None
    seen: dict[tuple[int, float], Seen] = field(default_factory=dict)
    probed_s: float = 0.0
    machine_s: float = 0.0  # busy seconds of all cores, whoever used them
    _started: float = 0.0

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Samples in a thread while the body runs, and once more at its end."""
        self._started = time.monotonic()
        done = threading.Event()
        self._sample()
        busy = _busy_s()
        thread = threading.Thread(target=self._loop, args=(done,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()
            self._sample()
            self.machine_s = _busy_s() - busy

    def add_root(self, pid: int) -> None:
        """Watches one more tree."""
        self.roots.append(pid)

    def rows(self) -> list[Row]:
        """By role, the largest first."""
        roles = sorted({seen.role for seen in self.seen.values()})
        found = [_row(role, [seen for seen in self.seen.values() if seen.role == role]) for role in roles]
        return sorted(found, key=lambda row: -row.cpu_s)

    def _loop(self, done: threading.Event) -> None:
        while not done.wait(EVERY_S):
            self._sample()
            if self.probe and not self.probed_s and self.probe():
                self.probed_s = time.monotonic() - self._started

    def _sample(self) -> None:
        now = time.monotonic() - self._started
        for process in _family(tuple(self.roots)):
            try:
                self._note(process, now)
            except psutil.Error:
                continue

    def _note(self, process: psutil.Process, now: float) -> None:
        key = (process.pid, process.create_time())
        times = process.cpu_times()
        cpu = times.user + times.system
        role = role_of(" ".join(process.cmdline()))
        if key not in self.seen:
            self.seen[key] = Seen(role, now, now, cpu if not self._is_new(process, now) else 0.0)
        seen = self.seen[key]
        if role not in GENERIC and seen.role != role:
            seen.role, seen.role_s = role, now
        seen.last_s = now
        seen.cpu = cpu - seen.cpu_before
        seen.rss_mb = max(seen.rss_mb, process.memory_info().rss / (1 << 20))

    def _is_new(self, process: psutil.Process, now: float) -> bool:
        return time.time() - process.create_time() < now


def role_of(command: str) -> str:
    """What a command line is, or its first word."""
    for pattern, role in ROLES:
        if found := re.search(pattern, command):
            return role.format(*found.groups()).lower() if found.groups() else role
    return command.split(" ", 1)[0].rpartition("/")[2][:24]


def _row(role: str, members: Sequence[Seen]) -> Row:
    return Row(
        role=role,
        processes=len(members),
        cpu_s=sum(seen.cpu for seen in members),
        rss_mb=sum(seen.rss_mb for seen in members),
        first_s=min(seen.role_s for seen in members),
        last_s=max(seen.last_s for seen in members),
    )


def _family(roots: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in roots:
        try:
            root = psutil.Process(pid)
            yield root
            yield from root.children(recursive=True)
        except psutil.Error:
            continue


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _busy_s() -> float:
    times = psutil.cpu_times()
    # Ray runs its workers at a niceness of 15, which the kernel counts apart
    return float(
        times.user
        + getattr(times, "nice", 0.0)
        + times.system
        + getattr(times, "irq", 0.0)
        + getattr(times, "softirq", 0.0)
    )
