"""Brings the index in line with the bucket."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ingest import preflight, report
from ingest.config import Config, IndexConfig
from ingest.errors import ConfigError, IngestError, StoreError, exit_code_of
from ingest.failure import Backoff, with_retries
from ingest.index import generations
from ingest.index.client import connect
from ingest.observe import event
from ingest.pipeline import backfill, start_ray
from ingest.progress import Ticker
from ingest.report import Report
from ingest.runs import new_run_id, opened
from ingest.state import Ledger
from ingest.work import Run
from jobs import options

ASKING = Backoff(budget_s=5.0)  # a stopped job gets 30 s for its last words


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("--prefix", help="only keys that start with this")
    parser.add_argument("--limit", type=int, help="at most this many document versions")
    parser.add_argument("--since", help="only versions modified at or after this ISO date")
    parser.add_argument("--include", action="append", help="glob a key must match; may be repeated")
    parser.add_argument("--exclude", action="append", help="glob whose keys are left out; may be repeated")
    parser.add_argument("--all-versions", action="store_const", const=True, help="index older versions too")
    parser.add_argument("--promote", action="store_true", help="let the alias serve this index if nothing is missing")
    parser.add_argument("--run-id", help="name of the run; default: verb, time and four hex digits")


def run(args: argparse.Namespace) -> int:
    """Runs the job and returns its exit code; a report is written however it ends, once the configuration is read."""
    started = time.monotonic()
    if args.report:
        Path(args.report).unlink(missing_ok=True)  # an old one must not be taken for this run's
    config = options.load(
        args,
        source__prefix=args.prefix,
        source__limit=args.limit,
        source__since=args.since,
        source__include=args.include,
        source__exclude=args.exclude,
        source__all_versions=args.all_versions,
    )
    if args.promote:
        _require_whole_corpus(args, config)
    run_id = args.run_id or new_run_id("backfill")
    job = _Job(args, config, started, report.unopened(config, "backfill", run_id))
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
    with opened(job.config, "backfill", job.result.run_id) as (run, ledger, sink):
        ticker = Ticker(run, ledger, partial(print, file=progress, flush=True), job.started)
        skipped: Counter[str] = Counter()
        try:
            backfill(run, ledger, sink, ticker, skipped)
        except BaseException as error:
            with suppress(IngestError):  # the error itself says more than a report that could not be made
                job.result = _build(run, ledger, ticker, skipped, job.started)
                job.tell(ended_early(job.result, error))
                job.told = error
            raise
        job.result = _build(run, ledger, ticker, skipped, job.started)
        if job.args.promote:
            job.result = _promoted(run, job.result) or _build(run, ledger, ticker, skipped, job.started)


def _require_whole_corpus(args: argparse.Namespace, config: Config) -> None:
    """Readers must not be led to a part of the corpus because one run was narrowed. Raises ConfigError."""
    narrowed = [f"--{name}" for name in ("prefix", "limit", "since", "include", "exclude") if getattr(args, name)]
    narrowed += [f"source.{name}" for name in ("limit", "since") if getattr(config.source, name)]
    if narrowed:
        raise ConfigError(f"--promote is for a run over the whole corpus: leave out {', '.join(narrowed)}")


def _promoted(run: Run, result: Report) -> Report | None:
    """Lets the alias serve the run's index; the report that says why not, where that would harm readers."""
    if why := report.why_not_promoted(result.documents):
        return replace(result, warnings=[f"not promoted: {why}", *result.warnings])
    generations.promote(connect(run.config.index), run.config.index.alias, run.generation)
    return None


def ended_early(result: Report, error: BaseException) -> Report:
    """The report of a run that did not come to its end."""
    if isinstance(error, KeyboardInterrupt):
        return replace(result, outcome="interrupted", error="interrupted; the same command goes on", exit_code=130)
    text = str(error) if isinstance(error, IngestError) else f"{type(error).__name__}: {error}"
    return replace(result, outcome="stopped", error=text, exit_code=exit_code_of(error))


def _build(run: Run, ledger: Ledger, ticker: Ticker, skipped: Counter[str], started: float) -> Report:
    ledger.add_stats(run.run_id, ticker.stats.drain())
    return report.build(run, ledger, skipped, started, _serving(run.config.index))


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
