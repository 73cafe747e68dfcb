"""A submitted job is watched until it has ended, whatever happens to the connection, and its output is shown once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import requests
from ray.job_submission import JobStatus

from ingest.failure import Backoff
from jobs.submit import Pace, ask_to_stop, follow

LINES = [f"line {number} äß\n" for number in range(60)]
TEXT = "".join(LINES)


@dataclass
class Info:
    status: JobStatus
    driver_exit_code: int | None
    message: str = "a message"


@dataclass
class FakeJobServer:
    """A job that writes a line whenever it is asked how it is, and has ended when all are written.

    A tail begins with the first line, as Ray's does, and is cut after ``cut_after`` pieces. Each of ``outages`` is
    raised once in place of an answer to the question for the status, before the others.
    """

    exit_code: int | None = 0
    cut_after: int = 1000
    cut_with: Exception | None = None
    no_tail: bool = False
    no_logs: bool = False
    outages: list[Exception] = field(default_factory=list)
    written: int = 0
    asked: int = 0
    tails: int = 0

    def get_job_info(self, job: str) -> Info:
        self.asked += 1
        if self.outages:
            raise self.outages.pop(0)
        self.written = min(self.written + 1, len(LINES))
        if self.written < len(LINES):
            return Info(JobStatus.RUNNING, None)
        return Info(JobStatus.FAILED if self.exit_code != 0 else JobStatus.SUCCEEDED, self.exit_code)

    def get_job_logs(self, job: str) -> str:
        if self.no_logs:
            raise RuntimeError("Request failed with status code 500: no agent.")
        return "".join(LINES[: self.written])

    def stop_job(self, job: str) -> bool:
        if self.outages:
            raise self.outages.pop(0)
        return True

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        self.tails += 1
        if self.no_tail:
            raise RuntimeError("no websockets here")
        sent = 0
        for _ in range(self.cut_after):
            while sent >= self.written:
                await asyncio.sleep(0)
            piece, sent = "".join(LINES[sent : self.written]), self.written
            yield piece
        if self.cut_with:
            raise self.cut_with


def followed(
    server: FakeJobServer, stop: threading.Event | None = None, patience_s: float = 30.0, pause_s: float = 0.001
) -> int:
    pace = Pace(0.001, Backoff(base_s=pause_s, budget_s=patience_s))
    return follow(cast("Any", server), "job-1", "http://head:8265", stop or threading.Event(), pace)


def test_output_and_exit_code_of_a_job_come_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert followed(FakeJobServer(exit_code=3)) == 3
    assert capsys.readouterr() == (TEXT, "")


@pytest.mark.parametrize(
    "cut_with", [None, RuntimeError("closed with 1006"), requests.ConnectionError("reset")], ids=str
)
@pytest.mark.parametrize("cut_after", [1, 2, 5])
def test_a_cut_tail_is_opened_again_and_nothing_is_lost_or_shown_twice(
    cut_with: Exception | None, cut_after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server = FakeJobServer(exit_code=3, cut_after=cut_after, cut_with=cut_with)
    assert followed(server) == 3
    assert server.tails > 2
    assert capsys.readouterr() == (TEXT, "")


@pytest.mark.parametrize("no_logs", [True, False])
def test_without_any_tail_the_output_is_had_by_asking(no_logs: bool, capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeJobServer(no_tail=True, no_logs=no_logs)
    assert followed(server) == 0
    told = capsys.readouterr()
    assert told.out == ("" if no_logs else TEXT)
    assert ("the end of the output may be missing" in told.err) == no_logs


@pytest.mark.parametrize(
    "outage",
    [
        ConnectionError("Failed to connect to Ray"),
        RuntimeError("Request failed with status code 503"),
        requests.ConnectionError("refused"),
        requests.Timeout("slow"),
        requests.JSONDecodeError("a proxy's page", "<html>", 0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_server_that_is_away_for_a_moment_is_asked_again(
    outage: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert followed(FakeJobServer(exit_code=4, outages=[outage] * 4)) == 4
    assert capsys.readouterr() == (TEXT, "")


def test_a_server_that_stays_away_ends_with_5_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeJobServer(outages=[ConnectionError("refused")] * 1000)
    assert followed(server, patience_s=0.1, pause_s=0.01) == 5
    assert server.asked > 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ingest: the job server does not answer (refused)")
    assert "ray job logs job-1 --address http://head:8265" in line


def test_output_that_nobody_reads_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _: str) -> None:
            raise BrokenPipeError("the reader has gone")

    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(BrokenPipeError):
        followed(FakeJobServer())


@pytest.mark.parametrize(("stopped", "code"), [(True, 130), (False, 1)])
def test_a_job_without_an_exit_code_is_told_with_its_message(
    stopped: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()
    if stopped:
        stop.set()
    assert followed(FakeJobServer(exit_code=None), stop) == code
    assert "job job-1 is FAILED: a message" in capsys.readouterr().err


def test_a_stop_that_the_server_did_not_hear_can_be_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    server, stop = FakeJobServer(outages=[ConnectionError("refused")]), threading.Event()
    stop.set()
    ask_to_stop(cast("Any", server), "job-1", stop)
    assert not stop.is_set()
    assert "job job-1 was not stopped (refused)" in capsys.readouterr().err
    stop.set()
    ask_to_stop(cast("Any", server), "job-1", stop)
    assert stop.is_set()
