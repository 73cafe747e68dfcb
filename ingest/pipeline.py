"""The spine: list → admit → triage → parse → construct → embed → index → verify.

The only file that imports ray.data. What flows are references and chunks; what is true is in the ledger and the index.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import RayError

from ingest import rows
from ingest.config import Config
from ingest.errors import ConfigError, PreflightError, StoreUnavailable
from ingest.failure import Backoff, with_retries
from ingest.index.sink import Sink
from ingest.index.throttle import Gate, Signal, Throttle, ThrottleReport
from ingest.model import Document, Receipt
from ingest.observe import Stats
from ingest.progress import Ticker
from ingest.source import s3
from ingest.source.listing import selected
from ingest.stages import Embed, Index, Parse, Triage
from ingest.state import Ledger
from ingest.verify import Verifier
from ingest.work import Run

RETRY_PAUSE = Backoff(base_s=5.0)  # between two tries of documents that failed for a passing reason
# Asked often: the actors of a job that just ended go one after the other, and tasks hold a CPU for moments only.
ROOM = Backoff(base_s=0.3, cap_s=0.3, budget_s=20.0)
LAST_PUSH = Backoff(budget_s=30.0)
DOCUMENTS_PER_BLOCK = 32  # a triage call; a block costs Ray 20-40 ms, an inspection 1-100 ms


def backfill(run: Run, ledger: Ledger, sink: Sink, ticker: Ticker, skipped: Counter[str]) -> None:
    """Brings the generation in line with the bucket; counts in ``skipped`` the listed rows left out, by reason."""
    for batch in selected(s3.connect(run.config.source.listing_threads), run.config.source, skipped):
        ledger.admit(run.generation, batch, run.config.source, listed_by=run.listed_by)
    go_on(run, ledger, sink, ticker)


def go_on(run: Run, ledger: Ledger, sink: Sink, ticker: Ticker) -> None:
    """Works on the queue, window by window, until it is empty."""
    verifier = Verifier(run, ledger, sink, ticker.stats)
    verifier.finish_deletes()
    verifier.write_access()
    while documents := take(run, ledger, ticker):
        with ticker.watching(verifier):
            for receipts in spine(run, documents, ticker.stats):
                ticker.received(receipts)
        taken = [document.document_id for document in documents]
        verifier.window(taken)
        if ledger.paused(run.config.index.alias):
            ledger.give_back(run.generation, run.run_id)
        elif ledger.requeue(run.generation, taken, run.config.run.max_attempts, run_id=run.run_id):
            time.sleep(next(RETRY_PAUSE.pauses(), 0.0))
    verifier.delete_broken()
    verifier.write_access()  # of those that were in flight when it changed
    ticker.push_status(LAST_PUSH)


def take(run: Run, ledger: Ledger, ticker: Ticker) -> list[Document]:
    """The next window of documents, none when the queue is empty; while an operator paused the alias, it waits."""
    ticker.wait_while_paused()
    config = run.config.run
    return ledger.take(run.generation, run.run_id, config.window_documents, config.lease_s, listed_by=run.listed_by)


def spine(run: Run, documents: Sequence[Document], stats: Stats) -> Iterator[list[Receipt]]:
    """One execution over these documents, large ones first; yields what the index answered, call by call."""
    config = run.config
    _prepare(config, stats)
    chunks = (
        # from_arrow would start a worker only to ask for the schema: 4 s on 2 cores
        ray.data.from_blocks(blocks(documents, config))
        .map_batches(Triage, fn_constructor_args=(run,), **pool(config.triage))
        .repartition(target_num_rows_per_block=config.run.segments_per_block, strict=True)
        .map_batches(Parse, fn_constructor_args=(run,), **pool(config.parse))
    )
    receipts = (
        chunks.repartition(target_num_rows_per_block=config.embed.batch * config.embed.calls_per_task, strict=True)
        .map_batches(Embed, fn_constructor_args=(run,), **pool(config.embed, batch_size=config.embed.batch))
        .map_batches(Index, fn_constructor_args=(run, shared_gate(config)), **pool(config.index))
    )
    with translated():
        for table in receipts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield rows.receipts(table)


@contextmanager
def translated() -> Iterator[None]:
    """Ray's errors as ours: what an actor's constructor refused, or that nothing moved any more."""
    try:
        yield
    except ExecutionTimeoutError as error:
        raise StoreUnavailable(
            f"no block moved for {DataContext.get_current().execution_no_progress_timeout_s:g} s; a pool may have no "
            "place on the cluster, or a stage hangs: see the Ray dashboard; the same command goes on"
        ) from error
    except RayError as error:
        refused = re.search(r"(?:PreflightError|ConfigError|StoreRefused): (.+)", str(error))
        if refused:
            raise PreflightError(refused[1]) from error
        raise StoreUnavailable(f"Ray gave up: {str(error).strip().splitlines()[-1]}") from error


def blocks(documents: Sequence[Document], config: Config) -> list[pa.Table]:
    """The documents as one table a triage call, small enough that every triage actor gets some.

    Large documents first, or the largest would end alone; but the smallest go ahead of them, so that the model has
    something to do while the largest is still being parsed.
    """
    size = max(1, min(DOCUMENTS_PER_BLOCK, len(documents) // (4 * config.triage.actors)))
    tables = [rows.documents_to_table(documents[low : low + size]) for low in range(0, len(documents), size)]
    return tables[-1:] + tables[:-1]


def pool(section: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Arguments of ``map_batches`` for a pool of fixed size, so that pending actors show what the cluster lacks."""
    concurrency = getattr(section, "concurrency", 1)
    strategy = ActorPoolStrategy(
        size=section.actors,
        max_concurrent_calls_per_actor=concurrency,
        enable_true_multi_threading=concurrency > 1,
    )
    resources = {"num_cpus": section.cpus} | ({"num_gpus": section.gpus} if getattr(section, "gpus", 0) else {})
    return {"compute": strategy, "batch_size": batch_size, "batch_format": "pyarrow", **resources}


def shared_gate(config: Config) -> Callable[[], Gate]:
    """What gives an index actor its gate: with several actors the one window lives in an actor of its own."""
    limits = (config.index.in_flight, 2 * config.index.timeout_s)  # a bulk of a living writer has ended by then
    if config.index.actors == 1:
        return partial(Throttle, *limits)
    window = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Throttle).remote(*limits)
    return partial(RemoteGate, window)


class RemoteGate:
    """The window of all index actors, asked over Ray."""

    def __init__(self, window: Any) -> None:
        self._window = window

    def acquire(self) -> int:
        """See Gate."""
        return int(ray.get(self._window.acquire.remote()))

    def release(self, token: int, signal: Signal) -> bool:
        """See Gate."""
        return bool(ray.get(self._window.release.remote(token, signal)))

    def report(self) -> ThrottleReport:
        """See Gate."""
        report: ThrottleReport = ray.get(self._window.report.remote())
        return report


class Watch(ExecutionCallback):
    """Counts what an execution costs Ray: tasks by operator, and the object store's peak.

    Ray makes the instances, without arguments, so the driver's counters hang on the class.
    """

    stats = Stats()

    def on_execution_step(self, executor: Any) -> None:
        """Called at each turn of the scheduling loop."""
        used = executor._resource_manager.get_global_usage().object_store_memory or 0
        self.stats.peak("object_store_mb", used / (1 << 20))

    def after_execution_succeeds(self, executor: Any) -> None:
        """Called at the end, before the operators go."""
        self._count(executor)

    def after_execution_fails(self, executor: Any, error: Exception) -> None:
        """Called at the end of one that broke off."""
        self._count(executor)

    def _count(self, executor: Any) -> None:
        for operator in executor._topology:
            name = operator.name.removeprefix("MapBatches(").split("[")[0].rstrip(")")
            self.stats.add(f"blocks.{name.lower()}", operator.metrics.num_tasks_finished)


def _prepare(config: Config, stats: Stats) -> None:
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    Watch.stats = stats
    context.custom_execution_callback_classes = [Watch]
    context.execution_no_progress_timeout_s = config.run.no_progress_s


def start_ray(config: Config) -> None:
    """Joins the cluster of the Ray job this runs in, else starts one; raises ConfigError where the pools don't fit."""
    _join_or_start()
    resources: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]
    if nodes > 1 and config.ledger.url.startswith("sqlite"):
        raise ConfigError(f"ledger.url: SQLite works on one node and this cluster has {nodes}; use PostgreSQL")
    if nodes >= config.run.nodes:  # a smaller cluster may still grow into what the pools ask for
        config.check_cluster(resources.get("CPU", 0), resources.get("GPU", 0))
        with_retries(partial(require_room, config), ROOM, time.sleep, passing=(PreflightError,))


def require_room(config: Config) -> None:
    """Raises PreflightError where other jobs hold what the pools need: both would wait for each other."""
    resources: Mapping[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    free = resources.get("CPU", 0)
    if config.pool_cpus > free - 1:
        raise PreflightError(
            f"{free:g} CPUs of the cluster are free; the pools hold {config.pool_cpus:g} and one must stay free: wait "
            "for the other jobs to end (`ray job list`), or lower actors or cpus of triage, parse, embed or index"
        )


def _join_or_start() -> None:
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):  # the job server's address is for `ray job submit`, not for a driver
        del os.environ["RAY_ADDRESS"]
        address = ""
    if ray.is_initialized():
        return
    if address:
        ray.init(logging_level=logging.WARNING)
    else:
        ray.init(
            address="local",
            num_cpus=max(2, os.cpu_count() or 2),
            include_dashboard=False,
            object_store_memory=512 << 20,
            logging_level=logging.WARNING,
        )
