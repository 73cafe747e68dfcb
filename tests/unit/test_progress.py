"""The ticker: what it verifies, when it stops the run, and the line a person reads."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest

from ingest.config import Config, parse
from ingest.errors import StoreRefused, StoreUnavailable
from ingest.model import Fingerprints, Receipt
from ingest.progress import Ticker
from ingest.state import Generation, Ledger
from ingest.verify import Verifier
from ingest.work import Run

PRINTS = Fingerprints("p", "c", "e", "m")


class FakeVerifier:
    """Remembers what it was asked to verify; raises ``error`` once if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[set[str]] = []
        self.error = error

    def window(self, document_ids: Collection[str]) -> int:
        self.asked.append(set(document_ids))
        error, self.error = self.error, None
        if error:
            raise error
        return 0


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return parse(
        {
            "source": {"bucket": "b"},
            "artifacts": {"bucket": "a"},
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "index": {"url": "http://unused:1"},
            "verify": {"every_s": 0.02},
        }
    )


@pytest.fixture
def ledger(config: Config) -> Ledger:
    opened = Ledger(config.ledger.url)
    opened.migrate()
    opened.add_generation(Generation("g", "documents", PRINTS, "uuid"))
    opened.start_run("r", "backfill", "host:1:1", "config")
    return opened


def ticker(config: Config, ledger: Ledger, lines: list[str]) -> Ticker:
    return Ticker(Run("r", config, "g", PRINTS), ledger, lines.append, time.monotonic() - 100)


def watch(one: Ticker, verifier: FakeVerifier) -> None:
    with one.watching(cast(Verifier, verifier)):
        deadline = time.monotonic() + 5
        while not verifier.asked and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.06)


def test_documents_with_a_receipt_are_verified_once(config: Config, ledger: Ledger) -> None:
    verifier, lines = FakeVerifier(), list[str]()
    one = ticker(config, ledger, lines)
    one.received([Receipt("a", written=3, is_last=True), Receipt("b", written=1, is_last=True)])
    one.received([Receipt("c", written=9)])  # more of it is on its way
    watch(one, verifier)

    assert verifier.asked == [{"a", "b"}]
    assert "0/0 documents" in lines[0]
    assert 99 < ledger.stats("r")["peak.first_chunk_s"] < 110  # counted from the job's start


def test_an_index_that_is_away_for_a_moment_stops_nothing(config: Config, ledger: Ledger) -> None:
    verifier = FakeVerifier(StoreUnavailable("away"))
    one = ticker(config, ledger, [])
    one.received([Receipt("a", written=1, is_last=True)])
    watch(one, verifier)

    assert verifier.asked


def test_a_line_that_takes_long_to_count_comes_less_often(config: Config, ledger: Ledger) -> None:
    class SlowLine(Ticker):
        def line(self) -> str:
            time.sleep(0.2)
            return "a line"

    verifier, lines = FakeVerifier(), list[str]()
    one = SlowLine(Run("r", config, "g", PRINTS), ledger, lines.append, time.monotonic())
    with one.watching(cast(Verifier, verifier)):
        for number in range(5):
            one.received([Receipt(str(number), written=1, is_last=True)])
            deadline = time.monotonic() + 5
            while len(verifier.asked) <= number and time.monotonic() < deadline:
                time.sleep(0.01)
    assert len(verifier.asked) == 5
    assert lines == ["a line"]


def test_an_interrupted_run_does_not_wait_for_a_tick_that_waits(config: Config, ledger: Ledger) -> None:
    class HangingVerifier(FakeVerifier):
        def window(self, document_ids: Collection[str]) -> int:
            super().window(document_ids)
            time.sleep(60)
            return 0

    verifier, one = HangingVerifier(), ticker(config, ledger, [])
    one.received([Receipt("a", written=1, is_last=True)])
    began = time.monotonic()

    def interrupted() -> None:
        with one.watching(cast(Verifier, verifier)):
            while not verifier.asked:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with patch("ingest.progress.LAST_TICK_S", 0.1), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 30


def test_a_stage_that_stopped_the_run_stops_the_driver(config: Config, ledger: Ledger) -> None:
    one = ticker(config, ledger, [])
    ledger.stop_run("r", "403: no right to write")
    with pytest.raises(StoreRefused, match="no right to write"), one.watching(cast(Verifier, FakeVerifier())):
        pass
