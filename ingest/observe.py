"""Log events with stable names, counters of a run, and durations as people read them."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

LOG = logging.getLogger("ingest")


class JsonLines(logging.Formatter):
    """One JSON object a line: ts, level, event and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        row = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str, ensure_ascii=False)


def configure_logging() -> None:
    """Sends events of level ``INGEST_LOG`` (default warning) and above to standard error, once per process."""
    if LOG.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    LOG.addHandler(handler)
    LOG.propagate = False
    LOG.setLevel(os.environ.get("INGEST_LOG", "warning").upper())


def event(name: str, *, level: int = logging.INFO, exc: BaseException | None = None, **fields: Any) -> None:
    """Logs the event ``name`` (``stage.what_happened``) with its fields."""
    LOG.log(level, name, extra={"fields": fields}, exc_info=exc)


class Stats:
    """Counters of one process since the last ``drain``; thread-safe.

    Names are ``stage.what``. Values add up, but of those that start with ``peak.`` the largest is kept, of ``now.`` the
    last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = defaultdict(float)

    def add(self, name: str, value: float = 1) -> None:
        """Adds to a counter."""
        with self._lock:
            self._values[name] += value

    def peak(self, name: str, value: float) -> None:
        """Keeps the largest value seen under ``peak.<name>``."""
        with self._lock:
            self._values[f"peak.{name}"] = max(self._values[f"peak.{name}"], value)

    def now(self, name: str, value: float) -> None:
        """Keeps the last value seen under ``now.<name>``."""
        with self._lock:
            self._values[f"now.{name}"] = value

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds one call and its seconds to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(f"{stage}.calls")
            self.add(f"{stage}.seconds", time.monotonic() - started)

    def drain(self) -> dict[str, float]:
        """The values since the last call."""
        with self._lock:
            values, self._values = dict(self._values), defaultdict(float)
        return values


def moment(at: float) -> str:
    """Seconds since 1970 as a person reads them: ``2026-11-30 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Seconds as a person reads them: ``48 s``, ``2 min 5 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
