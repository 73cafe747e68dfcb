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
from typing import TYPE_CHECKING

from ingest.errors import PreflightError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

STOP_WAIT_S = "30"  # what a stopped job gets to restore the index's settings; Ray's own default is 3 s
END_POLL_S = 1.0
# Names of places, never a secret: a job's environment is shown on the dashboard. Credentials are the cluster's own.
CARRIED = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "OPENSEARCH_URL", "INGEST_")


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
    return _follow(client, job)


def _follow(client: JobSubmissionClient, job: str) -> int:
    """Shows the job's output till it ends; Ctrl-C stops the job and waits for its last words."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: _stop(client, job, stop))
    signal.signal(signal.SIGTERM, lambda *_: _stop(client, job, stop))
    asyncio.run(_tail_to_end(client, job))
    info = client.get_job_info(job)
    if info.driver_exit_code is None:
        print(f"ingest: job {job} is {info.status}: {info.message}", file=sys.stderr)
        return 130 if stop.is_set() else 1
    return int(info.driver_exit_code) % 256


async def _tail_to_end(client: JobSubmissionClient, job: str) -> None:
    """Shows the output until the job has ended: Ray's own tail notices the end up to four seconds late."""
    shown = [0]
    tail = asyncio.create_task(_tail(client, job, shown))
    while not tail.done():
        await asyncio.wait([tail], timeout=END_POLL_S)
        if (await asyncio.to_thread(client.get_job_status, job)).is_terminal():
            break
    tail.cancel()
    rest = await asyncio.to_thread(client.get_job_logs, job)
    sys.stdout.write(rest[shown[0] :])
    sys.stdout.flush()


async def _tail(client: JobSubmissionClient, job: str, shown: list[int]) -> None:
    async for lines in client.tail_job_logs(job):
        sys.stdout.write(lines)
        sys.stdout.flush()
        shown[0] += len(lines)


def _stop(client: JobSubmissionClient, job: str, stop: threading.Event) -> None:
    if not stop.is_set():
        stop.set()
        print(f"stopping job {job} …", file=sys.stderr, flush=True)
        threading.Thread(target=client.stop_job, args=(job,), daemon=True).start()
