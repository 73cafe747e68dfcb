"""Events are one JSON line each, counters lose nothing between threads, and times read as people say them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest import observe
from ingest.observe import LOG, JsonLines, Stats, configure_logging, duration, event


@pytest.fixture
def clean_log() -> Iterator[None]:
    """The logger as a new process has it, before and after."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    LOG.handlers[:] = []
    LOG.propagate = True  # else pytest adds a handler of its own
    LOG.setLevel(logging.NOTSET)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("clean_log")
def test_an_event_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    event("parse.segment_failed", level=logging.WARNING, key="Grüße.pdf", segment=3, path=sys)
    (row,) = lines(capsys.readouterr().err)
    assert list(row)[:3] == ["ts", "level", "event"]
    assert (row["level"], row["event"], row["key"], row["segment"]) == (
        "warning", "parse.segment_failed", "Grüße.pdf", 3,
    )  # fmt: skip
    assert str(row["path"]).startswith("<module")  # whatever JSON does not know becomes text


@pytest.mark.usefixtures("clean_log")
def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        event("construct.document_failed", level=logging.ERROR, exc=error)
    (row,) = lines(capsys.readouterr().err)
    assert "ValueError: two\nlines" in str(row["traceback"])


@pytest.mark.usefixtures("clean_log")
def test_a_process_that_configures_twice_says_things_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    configure_logging()
    event("x.y", level=logging.ERROR)
    assert len(lines(capsys.readouterr().err)) == 1


@pytest.mark.usefixtures("clean_log")
@pytest.mark.parametrize(("level", "seen"), [("", ["b"]), ("info", ["a", "b"]), ("error", [])])
def test_the_environment_decides_what_is_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, level: str, seen: list[str]
) -> None:
    monkeypatch.setenv("INGEST_LOG", level) if level else monkeypatch.delenv("INGEST_LOG", raising=False)
    configure_logging()
    event("a")
    event("b", level=logging.WARNING)
    assert [row["event"] for row in lines(capsys.readouterr().err)] == seen


def test_a_record_of_another_library_can_be_formatted() -> None:
    record = logging.LogRecord("boto", logging.INFO, "f", 1, "%s of %s", ("1", "2"), None)
    assert json.loads(JsonLines().format(record))["event"] == "1 of 2"


# ---------------------------------------------------------------- counters


def test_values_add_up_and_peaks_keep_the_largest() -> None:
    stats = Stats()
    for value in (3, 7, 5):
        stats.add("index.chunks", value)
        stats.peak("index.window", value)
    stats.add("index.requests")
    assert stats.drain() == {"index.chunks": 15, "peak.index.window": 7, "index.requests": 1}


def test_a_drain_takes_everything_away() -> None:
    stats = Stats()
    stats.add("a")
    stats.peak("b", 9)
    assert stats.drain()
    assert stats.drain() == {}
    stats.peak("b", 2)
    assert stats.drain() == {"peak.b": 2}


def test_threads_that_count_and_drain_lose_nothing() -> None:
    stats, total = Stats(), 0.0

    def work(number: int) -> dict[str, float]:
        for _ in range(500):
            stats.add("n")
        return stats.drain() if number % 3 == 0 else {}

    with ThreadPoolExecutor(8) as pool:
        for drained in pool.map(work, range(40)):
            total += drained.get("n", 0)
    assert total + stats.drain().get("n", 0) == 20_000


def test_a_call_that_fails_is_timed_too() -> None:
    stats = Stats()
    with pytest.raises(KeyError), stats.timed("embed"):
        raise KeyError
    with stats.timed("embed"):
        pass
    drained = stats.drain()
    assert drained["embed.calls"] == 2
    assert 0 <= drained["embed.seconds"] < 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"), (48, "48 s"), (89.4, "89 s"), (90, "1 min 30 s"), (599.4, "9 min 59 s"), (599.6, "10 min"),
        (720, "12 min"), (5369, "89 min"),
        (5400, "1 h 30 min"), (12_000, "3 h 20 min"), (86_400, "24 h 0 min"),
    ],
)  # fmt: skip
def test_a_duration_reads_as_people_say_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_module_has_one_logger() -> None:
    assert observe.LOG.name == "ingest"
