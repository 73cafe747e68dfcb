"""How many bulk requests may be in flight: one window for all writers, additive increase, multiplicative decrease."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from ingest.failure import Breaker

POLL_S = 0.02  # a bulk takes 50 ms and more
HISTORY = 1000


class Signal(StrEnum):
    """What a request told about the load of the cluster."""

    CLEAN = "clean"
    CONGESTED = "congested"  # 429 or timeout
    NEUTRAL = "neutral"  # an answer that has nothing to do with load
    DOWN = "down"  # no answer, or one of a proxy without a server behind it


@dataclass(frozen=True, slots=True)
class Window:
    """Size of the window. ``clean`` answers came since it last changed; ``epoch`` counts its decreases."""

    limit: int
    size: int
    clean: int = 0
    epoch: int = 0

    @classmethod
    def start(cls, limit: int) -> Window:
        return cls(limit, min(2, limit))

    def after(self, signal: Signal, epoch: int) -> Window:
        """The window after a request that was sent in ``epoch``.

        A round trip of the window without trouble adds one. Congestion halves it, once for all requests that were in
        flight together: a request of an earlier epoch met the load that the decrease has already answered.
        """
        if signal in (Signal.NEUTRAL, Signal.DOWN) or epoch != self.epoch:
            return self
        if signal is Signal.CONGESTED:
            return replace(self, size=max(1, self.size // 2), clean=0, epoch=self.epoch + 1)
        if self.clean + 1 < self.size:
            return replace(self, clean=self.clean + 1)
        return replace(self, size=min(self.limit, self.size + 1), clean=0)


class Gate(Protocol):
    """What a writer needs of the throttle; neither call waits, so an actor can stand behind it."""

    def acquire(self) -> int:
        """A token above 0, or 0: ask again later."""
        ...

    def release(self, token: int, signal: Signal) -> bool:
        """Gives the token back; True if no other request was in flight at the same time."""
        ...

    def report(self) -> ThrottleReport:
        """What the window did so far."""
        ...


def wait_turn(gate: Gate, sleep: Callable[[float], None]) -> int:
    """A token of ``gate``, as soon as there is one."""
    while not (token := gate.acquire()):
        sleep(POLL_S)
    return token


@dataclass(frozen=True, slots=True)
class ThrottleReport:
    """What the window did; ``history`` holds (seconds since the start, size) of its last changes."""

    limit: int
    window: int
    peak_window: int
    in_flight: int
    peak_in_flight: int
    decreases: int
    requests: int
    history: tuple[tuple[float, int], ...]


@dataclass(slots=True)
class _Grant:
    at: float
    epoch: int
    alone: bool


@dataclass(slots=True)
class _Seen:
    started: float
    peak: int = 0
    requests: int = 0
    tokens: int = 0
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    peak_window: int = 0


class Throttle:
    """The window, thread-safe. A token that is not released within ``lease_s`` is taken for dead with its writer.

    While the cluster does not answer, a breaker keeps all writers off it but one that tries now and then.
    """

    def __init__(self, limit: int, lease_s: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = Window.start(limit)
        self._lease_s = lease_s
        self._clock = clock
        self._grants: dict[int, _Grant] = {}
        self._breaker = Breaker()
        self._seen = _Seen(clock())
        self._lock = threading.Lock()
        self._seen.history.append((0.0, self._window.size))

    def acquire(self) -> int:
        """A token above 0 if there is room in the window, else 0."""
        with self._lock:
            now = self._clock()
            self._grants = {token: g for token, g in self._grants.items() if now - g.at < self._lease_s}
            if len(self._grants) >= self._window.size or self._breaker.wait(now):
                return 0
            for grant in self._grants.values():
                grant.alone = False
            self._seen.tokens += 1
            self._grants[self._seen.tokens] = _Grant(now, self._window.epoch, not self._grants)
            self._seen.peak = max(self._seen.peak, len(self._grants))
            return self._seen.tokens

    def release(self, token: int, signal: Signal) -> bool:
        """Gives ``token`` back with what its request told; True if it was alone in flight all the time."""
        with self._lock:
            grant = self._grants.pop(token, None)
            if grant is None:
                return False
            self._seen.requests += 1
            if signal is Signal.DOWN:
                self._breaker.failed(self._clock())
            else:
                self._breaker.passed()
            self._move(self._window.after(signal, grant.epoch))
            return grant.alone

    def report(self) -> ThrottleReport:
        with self._lock:
            window, seen = self._window, self._seen
            return ThrottleReport(
                limit=window.limit,
                window=window.size,
                peak_window=max(seen.peak_window, window.size),
                in_flight=len(self._grants),
                peak_in_flight=seen.peak,
                decreases=window.epoch,
                requests=seen.requests,
                history=tuple(seen.history),
            )

    def _move(self, window: Window) -> None:
        self._seen.peak_window = max(self._seen.peak_window, self._window.size)
        if window.size != self._window.size:
            self._seen.history.append((self._clock() - self._seen.started, window.size))
        self._window = window
