"""A run from its first check to its last word: generation, leases of dead runs, bulk settings on and off again."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from ingest import observe
from ingest.chunk import chunker_fingerprint
from ingest.config import Config
from ingest.embed import describe_embedder
from ingest.failure import Backoff, with_retries
from ingest.index import generations
from ingest.index.client import Cluster, connect
from ingest.index.mapping import index_body, mapping_fingerprint
from ingest.index.sink import Counted, IndexSink, open_sink
from ingest.index.throttle import Throttle
from ingest.model import Fingerprints, fingerprint
from ingest.parse import parser_fingerprint
from ingest.state import Expected, Generation, Ledger
from ingest.work import Run

T = TypeVar("T")
STARTING = Backoff(budget_s=60.0)  # a cluster that restarts, or answers 429 because others load it
RESTORING = Backoff(budget_s=15.0)  # a stopped job gets 30 s for its last words
COUNTED_AT_ONCE = 5000  # documents in one count query; the server takes 65,536 terms


def new_run_id(verb: str) -> str:
    """Sortable and readable: ``backfill-20261130-120000-4f2a``."""
    return f"{verb}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def config_fingerprint(config: Config) -> str:
    """Short name of the whole resolved configuration."""
    return fingerprint("config", "1", config.model_dump(mode="json"))


def fingerprints_of(config: Config) -> Fingerprints:
    """The fingerprints of everything that decides what the index holds; loads no weights."""
    embedder = describe_embedder(config.embed)
    return Fingerprints(
        parser=parser_fingerprint(config.parse),
        chunker=chunker_fingerprint(config.chunk, embedder.tokenizer),
        embedder=embedder.fingerprint,
        mapping=mapping_fingerprint(config.index, embedder.dimension),
    )


@contextmanager
def opened(
    config: Config, verb: str, run_id: str, *, is_narrowed: bool = False
) -> Iterator[tuple[Run, Ledger, IndexSink]]:
    """A run with its ledger and sink; on the way out, however that comes, the index gets its settings back.

    Whoever opened it ends it in the ledger, with its report: what goes wrong on the way out belongs into that too.
    """
    ledger = Ledger(config.ledger.url)
    ledger.migrate()
    ledger.start_run(run_id, verb, owner(), config_fingerprint(config))
    try:
        fingerprints = fingerprints_of(config)
        generation = patiently(lambda: ensure_generation(config, ledger, fingerprints))
        run = Run(run_id, config, generation.name, fingerprints, is_narrowed)
        sink = open_sink(config.index, generation.name, Throttle(1), generation.uuid)
        ledger.release_dead(is_alive, generation.name)
        reopen_short(run, ledger, sink)
        with bulk_settings(config, ledger, generation.name):
            yield run, ledger, sink
    finally:
        ledger.close()


def ensure_generation(config: Config, ledger: Ledger, fingerprints: Fingerprints) -> Generation:
    """The generation of these fingerprints: the one known, or a new index. A thrown-away index is built again.

    It is claimed in the ledger before its index is made, so two first runs make one, and a kill in between is seen by
    its missing uuid.
    """
    cluster, alias = connect(config.index), config.index.alias
    generations.serving(cluster, alias)  # refuses an ambiguous or taken name before anything is made
    claimed = ledger.claim_generation(Generation(_new_name(config), alias, fingerprints, ""))
    if not (claimed.uuid and generations.exists(cluster, claimed.name, claimed.uuid)):
        claimed = _make(cluster, config, ledger, claimed)
    generations.ensure_alias(cluster, alias, claimed.name)
    return claimed


def _make(cluster: Cluster, config: Config, ledger: Ledger, claimed: Generation) -> Generation:
    if claimed.uuid:
        observe.event("generation.rebuilt", level=logging.WARNING, index=claimed.name, why="the index was gone")
        ledger.forget_jobs(claimed.name)
        ledger.set_uuid(claimed.name, "")
    prints = claimed.fingerprints
    meta = {"generation": claimed.name, **{k: getattr(prints, k) for k in ("parser", "chunker", "embedder")}}
    body = index_body(config.index, describe_embedder(config.embed).dimension, meta)
    uuid = generations.create_or_adopt(cluster, claimed.name, body)
    ledger.set_uuid(claimed.name, uuid)
    return replace(claimed, uuid=uuid)


def _new_name(config: Config) -> str:
    model = describe_embedder(config.embed).model
    return generations.index_name(config.index.alias, config.chunk.strategy, model, time.time())


def reopen_short(run: Run, ledger: Ledger, sink: IndexSink) -> int:
    """Queues documents again that the ledger calls served but of which the index holds another number of chunks."""
    sink.refresh()
    if sink.total() == ledger.expected_chunks(run.generation):
        return 0
    reopened, after = 0, ""
    while batch := ledger.expected_documents(run.generation, after, COUNTED_AT_ONCE):
        found = sink.count_by_document([row.document_id for row in batch])
        short = [row.document_id for row in batch if not _is_whole(row, found[row.document_id])]
        reopened += ledger.reopen(
            run.generation,
            short,
            "the index holds another number of chunks",
            all_versions=run.config.source.all_versions,
        )
        after = batch[-1].document_id
    return reopened


def _is_whole(row: Expected, found: Counted) -> bool:
    return found.chunks == row.chunk_count - row.failed_chunks and found.last < row.chunk_count


@contextmanager
def bulk_settings(config: Config, ledger: Ledger, index: str) -> Iterator[None]:
    """Refresh and replicas off while the body fills an index that nobody reads yet; on again however it ends.

    What a killed run left off is put right by the next one.
    """
    cluster = connect(config.index)
    saved = ledger.saved_settings(index)
    if not saved and patiently(lambda: _is_read(cluster, config.index.alias, index)):
        yield
        return
    if not saved:
        found = patiently(lambda: generations.settings(cluster, index))
        saved = ledger.keep_settings(index, found)  # before they change, and those of the first where two runs begin
    patiently(lambda: generations.bulk_settings_on(cluster, index))
    try:
        yield
    finally:
        with_retries(lambda: generations.restore_settings(cluster, index, saved), RESTORING, time.sleep)
        ledger.forget_settings(index)


def _is_read(cluster: Cluster, alias: str, index: str) -> bool:
    """Whether readers find something in it: then it keeps its replicas, or a lost node takes the search down."""
    if generations.serving(cluster, alias) != index:
        return False
    return bool(cluster.call("GET", f"/{index}/_count")["count"])


def patiently(call: Callable[[], T]) -> T:
    """The answer to a call that a run begins with; each of them may be repeated."""
    return with_retries(call, STARTING, time.sleep)


def owner() -> str:
    """Who runs this: ``host:pid:start``; the start time guards against a pid that was given away again."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"


def is_alive(who: str) -> bool:
    """Whether an owner still runs; one on another host is believed to, until its leases end."""
    host, pid, started = who.rsplit(":", 2)
    return host != socket.gethostname() or _start_of(int(pid)) == started


def _start_of(pid: int) -> str:
    if not Path("/proc/self").exists():
        return _start_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if fields[0] in "ZX" else fields[19]  # a zombie runs no more, whenever its parent looks


def _start_by_ps(pid: int) -> str:  # macOS has no /proc
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip().replace(":", ".") or "gone"
