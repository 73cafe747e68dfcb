"""What every stage of one run knows and does alike."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from ingest import failure, metrics, observe
from ingest.config import Config
from ingest.errors import StoreRefused
from ingest.model import Document, Failure, Fingerprints
from ingest.state import Ledger

DEATHS_ALONE = 2  # of actors that worked on one unit and nothing else, before that is to blame


@dataclass(frozen=True, slots=True)
class Run:
    """What every stage of one run knows."""

    run_id: str
    config: Config
    generation: str  # name of the physical index
    fingerprints: Fingerprints
    is_narrowed: bool = False  # works on what it named itself, not on all that is queued

    @property
    def listed_by(self) -> str:
        """The run itself where it works on what it named itself, empty where on all that is queued."""
        return self.run_id if self.is_narrowed or self.config.source.is_narrowed else ""


def hand_over(ledger: Ledger, run: Run, stats: observe.Stats) -> None:
    """Adds the process's counters to those of the run, and tells them to Ray's exporter."""
    values = stats.drain()
    ledger.add_stats(run.run_id, values)
    metrics.export(values)


def end_document(ledger: Ledger, run: Run, document: Document, what: Failure) -> None:
    """Ends a document that has nothing to serve; an older version that serves stays and is marked stale."""
    observe.event("document.ended", level=logging.WARNING, key=document.key, reason=what.reason, sentence=what.sentence)
    ledger.end(run.generation, document.document_id, failure.end_state(what), what)


class Stop:
    """Whether the run is to stop or to pause: because this process met a refusal, or because the ledger says so."""

    def __init__(self, ledger: Ledger, run: Run, every_s: float = 5.0) -> None:
        self._ledger = ledger
        self._run = run
        self._every_s = every_s
        self._asked_at = float("-inf")
        self._is_set = False

    def is_set(self) -> bool:
        """Asks the ledger every ``every_s`` seconds at most; once true it stays true."""
        now = time.monotonic()
        if not self._is_set and now - self._asked_at >= self._every_s:
            self._asked_at = now
            self._is_set = bool(self._ledger.stop_reason(self._run.run_id, self._run.config.index.alias))
        return self._is_set

    def set(self, stage: str, error: StoreRefused) -> None:
        """Stops the run for every process; no document is blamed."""
        self._is_set = True
        observe.event(f"{stage}.run_stopped", level=logging.CRITICAL, error=str(error))
        self._ledger.stop_run(self._run.run_id, str(error))


class Watch:
    """What one call works on. Where an actor died on it before, unit by unit, until the guilty one is known."""

    def __init__(self, ledger: Ledger, run: Run, units: Collection[str]) -> None:
        self._ledger = ledger
        self._run_id = run.run_id
        self._units = units
        self._lost: Mapping[str, int] = {}

    def __enter__(self) -> Self:
        if self._units:
            self._lost = self._ledger.begin(self._run_id, self._units)
        return self

    def __exit__(self, *_: object) -> None:
        if self._units:
            self._ledger.came_through(self._run_id, self._units)

    @property
    def is_careful(self) -> bool:
        """Whether an actor died on these units: each is to be settled before the next is begun."""
        return bool(self._lost)

    def is_guilty(self, unit: str) -> bool:
        """Whether ``unit`` killed its actor each time it was worked on alone; else it may be begun now."""
        if not self._lost:
            return False
        if self._lost.get(unit, 0) >= DEATHS_ALONE:
            return True
        self._ledger.begin_alone(self._run_id, unit)
        return False


class InFlight:
    """Counts the calls that run at the same time in this process and keeps the peak."""

    def __init__(self, stats: observe.Stats, name: str) -> None:
        self._stats = stats
        self._name = name
        self._lock = threading.Lock()
        self._now = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self._stats.peak(self._name, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1
