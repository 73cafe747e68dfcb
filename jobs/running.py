"""What the verbs that run the spine do alike: checks, a run, and a report however it ends."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

from ingest import preflight, report
from ingest.config import Config, IndexConfig
from ingest.errors import IngestError, StoreError, exit_code_of
from ingest.failure import Backoff, with_retries
from ingest.index import generations
from ingest.index.client import connect
from ingest.index.sink import IndexSink
from ingest.observe import event
from ingest.pipeline import start_ray
from ingest.progress import Ticker
from ingest.report import Report
from ingest.runs import new_run_id, opened
from ingest.state import Ledger
from ingest.work import Run
from jobs import options

ASKING = Backoff(budget_s=5.0)  # a stopped job gets 30 s for its last words


@dataclass(frozen=True, slots=True)
class Opened:
    """A run that has begun, and what it counts in; ``skipped`` are listed rows left out, by reason."""

    run: Run
    ledger: Ledger
    sink: IndexSink
    ticker: Ticker
    skipped: Counter[str]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb that runs the spine: its name, what it does, and what it does with its report at the end."""

    name: str
    body: Callable[[Opened], None]
    is_narrowed: bool = False  # works on what it named itself, not on all that is queued
    at_the_end: Callable[[Run, Report], Report | None] = lambda run, result: result  # None: build the report again


def add_run_id(parser: argparse.ArgumentParser) -> None:
    """``--run-id``."""
    parser.add_argument("--run-id", help="name of the run; default: verb, time and four hex digits")


def carry_out(verb: Verb, args: argparse.Namespace, config: Config, started: float) -> int:
    """Runs the verb and returns its exit code; a report is written however it ends."""
    run_id = args.run_id or new_run_id(verb.name)
    job = _Job(verb, args, config, started, report.unopened(config, verb.name, run_id))
    try:
        _work(job)
    except BaseException as error:
        if error is not job.told:
            job.tell(replace(ended_early(job.result, error), wall_s=round(time.monotonic() - started, 1)))
        raise
    job.tell(job.result)
    return job.result.exit_code


@dataclass(slots=True)
class _Job:
    """What was asked for, what came of it so far, and the error that the report was given for already."""

    verb: Verb
    args: argparse.Namespace
    config: Config
    started: float
    result: Report
    told: BaseException | None = None

    def tell(self, result: Report) -> None:
        """Prints and writes the report, and keeps it in the ledger where that answers."""
        options.emit(self.args, result.as_json(), report.text(result))
        with suppress(IngestError), closing(Ledger(self.config.ledger.url)) as ledger:
            ledger.end_run(result.run_id, result.outcome, result.as_json())


def _work(job: _Job) -> None:
    """Does the work; where it breaks off, what was done is told before anything else can go wrong."""
    preflight.require(job.config)
    start_ray(job.config)
    signal.signal(signal.SIGTERM, _interrupt)  # after ray.init: a handler set before is replaced
    progress = sys.stderr if job.args.json else sys.stdout  # with --json stdout is JSON and nothing else
    verb, run_id = job.verb, job.result.run_id
    with opened(job.config, verb.name, run_id, is_narrowed=verb.is_narrowed) as (run, ledger, sink):
        ticker = Ticker(run, ledger, partial(print, file=progress, flush=True), job.started)
        there = Opened(run, ledger, sink, ticker, Counter())
        try:
            verb.body(there)
        except BaseException as error:
            with suppress(IngestError):  # the error itself says more than a report that could not be made
                job.result = _build(there, job.started)
                job.tell(ended_early(job.result, error))
                job.told = error
            raise
        job.result = _build(there, job.started)
        job.result = verb.at_the_end(run, job.result) or _build(there, job.started)


def ended_early(result: Report, error: BaseException) -> Report:
    """The report of a run that did not come to its end."""
    if isinstance(error, KeyboardInterrupt):
        return replace(result, outcome="interrupted", error="interrupted; the same command goes on", exit_code=130)
    text = str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {error}"
    return replace(result, outcome="stopped", error=text, exit_code=exit_code_of(error))


def _build(there: Opened, started: float) -> Report:
    run, ledger = there.run, there.ledger
    ledger.add_stats(run.run_id, there.ticker.stats.drain())
    return report.build(run, ledger, there.skipped, started, _serving(run.config.index))


def _serving(config: IndexConfig) -> str:
    """What the alias serves, empty where OpenSearch does not answer: a report must not be lost for that."""
    cluster = connect(config)
    try:
        return with_retries(lambda: generations.serving(cluster, config.alias), ASKING, time.sleep) or "nothing"
    except StoreError as error:
        event("report.alias_unknown", level=30, error=str(error))
        return ""


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
