"""One running child of the laptop stack: start it, know it again, end it with all it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from local.errors import StartFailed

# Whatever a service starts inherits this variable, so that nothing escapes `stop` by a new session or a dead parent.
MARK = "DOC_INGEST_SERVICE"
START_TIMEOUT_S = 90.0
LOG_TAIL_LINES = 25
REMAINDER_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class Command:
    """How a service is started; `home` holds its data and `<name>.log`."""

    name: str
    argv: Sequence[str]
    home: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """Where standard output and error go, begun anew with each start."""
        return self.home / f"{self.name}.log"


@dataclass(frozen=True, slots=True)
class Service:
    """A running service; `url` is what clients need, `created_s` tells a reused pid from ours."""

    name: str
    url: str
    pid: int
    home: Path
    created_s: float
    stop_signal: int = signal.SIGTERM
    child: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    def is_running(self) -> bool:
        """True while the process with this pid is still the one that was started."""
        return _process(self.pid, self.created_s) is not None

    def stop(self, grace_s: float = 15.0) -> None:
        """End the process and everything it started; returns when none is left. Repeating it is harmless."""
        leader = _process(self.pid, self.created_s)
        family = self._family(leader)
        if leader is not None:
            _signal(leader, self.stop_signal)
            psutil.wait_procs([leader], timeout=grace_s)
        # most end with their leader; what does not is told so, and then made to
        for number in (signal.SIGTERM, signal.SIGKILL):
            _, family = psutil.wait_procs({*family, *self._family(None)}, timeout=REMAINDER_GRACE_S)
            for process in family:
                _signal(process, number)
        psutil.wait_procs(family, timeout=grace_s)
        if self.child is not None:
            self.child.wait(grace_s)

    def _family(self, leader: psutil.Process | None) -> list[psutil.Process]:
        found = set(_marked(mark(self.name, self.home)))
        if leader is not None:
            found |= {leader, *_children(leader)}
        return list(found)

    def save(self, folder: Path) -> None:
        """Write the record that a later process finds this service by."""
        record = {
            "url": self.url,
            "pid": self.pid,
            "home": str(self.home),
            "created_s": self.created_s,
            "stop_signal": int(self.stop_signal),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(record))


def load(name: str, folder: Path) -> Service | None:
    """The recorded service of that name, running or not; None if there is no record."""
    path = folder / f"{name}.json"
    try:
        record = json.loads(path.read_text())
        return Service(name=name, **{**record, "home": Path(record["home"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        path.unlink(missing_ok=True)  # written by a process that was killed half-way; it cannot name a service
        return None


def mark(name: str, home: Path) -> str:
    """The value of MARK for a service: its home makes it unique on the machine."""
    return f"{name}@{home.resolve()}"


def spawn(command: Command) -> subprocess.Popen[bytes]:
    """Start a command in its own session, so that a Ctrl-C in the terminal does not reach it."""
    command.home.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **command.env, MARK: mark(command.name, command.home)}
    # Ray starts 15 Python processes: without cached bytecode a head takes 18 s instead of 8 s on two cores
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with command.log.open("wb") as log:
        return subprocess.Popen(
            list(command.argv),
            cwd=command.home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def start(command: Command, ready: Callable[[], str | None], timeout_s: float = START_TIMEOUT_S) -> Service:
    """Start a command and wait until `ready` gives its URL; StartFailed carries the log's tail and leaves nothing."""
    child = spawn(command)
    created_s = psutil.Process(child.pid).create_time()
    service = Service(command.name, "", child.pid, command.home, created_s, child=child)
    try:
        url = _wait(command, child, ready, timeout_s)
    except BaseException:
        service.stop(grace_s=5)
        raise
    return Service(command.name, url, child.pid, command.home, created_s, child=child)


def log_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log, or a word that there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) or "(the log is empty)"
    except FileNotFoundError:
        return "(no log)"


def _wait(command: Command, child: subprocess.Popen[bytes], ready: Callable[[], str | None], timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        url = ready()
        if url is not None:
            return url
        if child.poll() is not None:
            raise StartFailed(f"{command.name} ended with code {child.returncode}. {_log_report(command)}")
        time.sleep(0.1)
    raise StartFailed(f"{command.name} did not answer within {timeout_s:.0f} s. {_log_report(command)}")


def _log_report(command: Command) -> str:
    return f"The end of {command.log}:\n{log_tail(command.log)}"


def _process(pid: int, created_s: float) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        # the kernel's boot time drifts with the clock, hence the second of tolerance
        ours = abs(process.create_time() - created_s) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if ours else None


def _children(leader: psutil.Process) -> list[psutil.Process]:
    try:
        return leader.children(recursive=True)
    except psutil.Error:
        return []


def _marked(value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        return
