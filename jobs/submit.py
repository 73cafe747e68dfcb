"""Runs a verb as a Ray job, shows its output as it comes, and gives back its exit code.

`ray job submit` itself only tells 0 or 1; the real code stands in the job's record.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ingest.errors import PreflightError
from ingest.failure import Backoff, with_retries

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

T = TypeVar("T")
STOP_WAIT_S = "30"  # what a stopped job gets to restore the index's settings; Ray's own default is 3 s
PATIENCE = Backoff(base_s=4.0, cap_s=30.0, budget_s=90.0)  # for a head that restarts, a proxy that reloads
REOPEN_POLLS = 10  # a tail that was cut comes back with the whole output: not every second
PASSING = (OSError, RuntimeError)  # what the client raises for a lost connection (requests' errors too) and for a 5xx
# Names of places, never a secret: a job's environment is shown on the dashboard. Credentials are the cluster's own.
CARRIED = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "OPENSEARCH_URL", "INGEST_")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two questions for the job's state, and how long the server may be away."""

    poll_s: float = 1.0
    patience: Backoff = PATIENCE


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS"), help="job server; default $RAY_ADDRESS")
    parser.add_argument("--working-dir", help="folder shipped with the job; needed where the project isn't installed")
    parser.add_argument("--submission-id", help="name of the job; a name is taken once")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- VERB and its options")


def run(args: argparse.Namespace) -> int:
    """Submits, tails and returns the job's exit code."""
    from ray.job_submission import JobSubmissionClient

    if not args.address:
        raise PreflightError("no job server: give --address or set RAY_ADDRESS (`make up` starts one, `. .local/env`)")
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    environment = {k: v for k, v in os.environ.items() if k.startswith(CARRIED)}
    if "@" not in (ledger := os.environ.get("LEDGER_URL", "@")):
        environment["LEDGER_URL"] = ledger
    try:
        client = JobSubmissionClient(args.address)
    except (ConnectionError, RuntimeError) as error:
        raise PreflightError(
            f"{args.address} takes no jobs ({error}); start the cluster or correct --address"
        ) from error
    job = client.submit_job(
        entrypoint=shlex.join(["python", "-m", "jobs", *command]),
        submission_id=args.submission_id,
        runtime_env={
            "env_vars": {**environment, "RAY_JOB_STOP_WAIT_TIME_S": STOP_WAIT_S},
            **({"working_dir": args.working_dir} if args.working_dir else {}),
        },
    )
    print(f"job {job} at {args.address}", flush=True)
    return _follow(client, job, args.address)


def _follow(client: JobSubmissionClient, job: str, address: str) -> int:
    """Shows the job's output till it ends; Ctrl-C stops the job and waits for its last words."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: _stop(client, job, stop))
    signal.signal(signal.SIGTERM, lambda *_: _stop(client, job, stop))
    return follow(client, job, address, stop)


def follow(client: JobSubmissionClient, job: str, address: str, stop: threading.Event, pace: Pace | None = None) -> int:
    """Shows the job's output till it ends and returns its exit code; 5 where the job server is lost."""
    try:
        info = asyncio.run(_watched(client, job, pace or Pace()))
    except ServerLostError as error:
        _complain(f"{error}; job {job} may run on without being watched: {_by_hand(job, address)}")
        return 5
    if info.driver_exit_code is None:
        _complain(f"job {job} is {info.status}: {info.message}")
        return 130 if stop.is_set() else 1
    return int(info.driver_exit_code) % 256


class ServerLostError(Exception):
    """The job server did not answer for so long that nobody knows what became of the job."""


class _Output:
    """The job's output, told from its first line each time somebody asks, and shown once."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, text: str, start: int = 0) -> None:
        """Shows what is new in ``text``, which begins at character ``start`` of the output."""
        new = text[max(0, self._shown - start) :]
        if new:
            sys.stdout.write(new)
            sys.stdout.flush()
            self._shown += len(new)


async def _watched(client: JobSubmissionClient, job: str, pace: Pace) -> JobDetails:
    """The record of the job when it has ended, and all its output shown.

    The tail alone can't tell the end: it notices it up to four seconds late, and a proxy cuts it while the job runs.
    """
    output = _Output()
    tail, reopen_at = asyncio.create_task(_tail(client, job, output)), 0.0
    try:
        while not (info := await _asked(client.get_job_info, job, pace.patience)).status.is_terminal():
            await asyncio.sleep(pace.poll_s)
            if tail.done() and time.monotonic() >= reopen_at:
                tail.exception()  # why it ended is nobody's business, but asyncio wants it looked at
                output.show(await _logs_or_nothing(client, job))  # all there is where no tail comes through
                tail = asyncio.create_task(_tail(client, job, output))
                reopen_at = time.monotonic() + REOPEN_POLLS * pace.poll_s
    finally:
        tail.cancel()
        await asyncio.gather(tail, return_exceptions=True)
    try:
        output.show(await _asked(client.get_job_logs, job, pace.patience))
    except ServerLostError as error:
        _complain(f"{error}; the end of the output may be missing")
    return info


async def _tail(client: JobSubmissionClient, job: str, output: _Output) -> None:
    passed = 0
    async for lines in client.tail_job_logs(job):
        output.show(lines, passed)
        passed += len(lines)


async def _asked(call: Callable[[str], T], job: str, patience: Backoff) -> T:
    """The job server's answer, asked again while it is away. Raises ServerLostError."""
    try:
        return await asyncio.to_thread(with_retries, partial(call, job), patience, time.sleep, passing=PASSING)
    except PASSING as error:
        raise ServerLostError(f"the job server does not answer ({error})") from error


async def _logs_or_nothing(client: JobSubmissionClient, job: str) -> str:
    try:
        return await asyncio.to_thread(client.get_job_logs, job)
    except PASSING:
        return ""


def _stop(client: JobSubmissionClient, job: str, stop: threading.Event) -> None:
    if not stop.is_set():
        stop.set()
        print(f"stopping job {job} …", file=sys.stderr, flush=True)
        threading.Thread(target=ask_to_stop, args=(client, job, stop), daemon=True).start()


def ask_to_stop(client: JobSubmissionClient, job: str, stop: threading.Event) -> None:
    """Asks the job to end; where the server does not hear it, ``stop`` is cleared and the next Ctrl-C asks again."""
    try:
        client.stop_job(job)
    except PASSING as error:
        stop.clear()
        _complain(f"job {job} was not stopped ({error}); press Ctrl-C again")


def _by_hand(job: str, address: str) -> str:
    return f"`ray job logs {job} --address {address} --follow`, `ray job status {job} --address {address}`"


def _complain(text: str) -> None:
    print(f"ingest: {text}", file=sys.stderr, flush=True)
