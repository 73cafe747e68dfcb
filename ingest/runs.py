"""A run from its first check to its last word: generation, leases of dead runs, bulk settings on and off again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ingest import observe
from ingest.chunk import chunker_fingerprint
from ingest.config import Config
from ingest.embed import describe_embedder
from ingest.index import generations
from ingest.index.client import connect
from ingest.index.mapping import index_body, mapping_fingerprint
from ingest.index.sink import OpenSearchSink
from ingest.model import Fingerprints, fingerprint
from ingest.parse.sandbox import parser_fingerprint
from ingest.stages import Run
from ingest.state import Generation, Ledger

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
        parser=parser_fingerprint(config.segments.pages),
        chunker=chunker_fingerprint(config.chunk, embedder.tokenizer),
        embedder=embedder.fingerprint,
        mapping=mapping_fingerprint(config.index, embedder.dimension),
    )


@contextmanager
def opened(config: Config, verb: str, run_id: str) -> Iterator[tuple[Run, Ledger, OpenSearchSink]]:
    """A run with its ledger and sink; on the way out, however that comes, the index gets its settings back."""
    ledger = Ledger(config.ledger.url)
    ledger.migrate()
    ledger.start_run(run_id, verb, owner(), config_fingerprint(config))
    outcome = "failed"
    try:
        fingerprints = fingerprints_of(config)
        generation = ensure_generation(config, ledger, fingerprints)
        run = Run(run_id, config, generation.name, fingerprints)
        sink = OpenSearchSink(config.index, generation.name)
        ledger.release_dead(is_alive, generation.name)
        reopen_short(run, ledger, sink)
        with bulk_settings(config, ledger, generation.name):
            yield run, ledger, sink
        outcome = "ended"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        ledger.end_run(run_id, outcome)
        ledger.close()


def ensure_generation(config: Config, ledger: Ledger, fingerprints: Fingerprints) -> Generation:
    """The generation of these fingerprints: the one known, or a new index. A thrown-away index is built again."""
    client = connect(config.index)
    known = ledger.generation(config.index.alias, fingerprints)
    if known and generations.uuid(client, known.name) == known.uuid:
        generations.ensure_alias(client, config.index.alias, known.name)
        return known
    embedder = describe_embedder(config.embed)
    name = known.name if known else generations.index_name(
        config.index.alias, config.chunk.strategy, embedder.model, datetime.now(UTC)
    )
    meta = {"generation": name, **{k: getattr(fingerprints, k) for k in ("parser", "chunker", "embedder", "mapping")}}
    generations.create(client, name, index_body(config.index, embedder.dimension, meta))
    generation = Generation(name, config.index.alias, fingerprints, generations.uuid(client, name))
    if known:
        observe.event("generation.rebuilt", level=30, index=name, why="the index was gone or replaced")
        ledger.forget_jobs(name)
    ledger.add_generation(generation)
    generations.ensure_alias(client, config.index.alias, name)
    return generation


def reopen_short(run: Run, ledger: Ledger, sink: OpenSearchSink) -> int:
    """Queues documents again that the ledger calls served but of which the index holds another number of chunks."""
    sink.refresh()
    if sink.total() == ledger.expected_chunks(run.generation):
        return 0
    reopened, after = 0, ""
    while batch := ledger.expected_documents(run.generation, after, COUNTED_AT_ONCE):
        found = sink.count_by_document([row.document_id for row in batch])
        short = [r.document_id for r in batch if found.get(r.document_id, 0) != r.chunk_count - r.failed_chunks]
        reopened += ledger.reopen(run.generation, short, "the index holds another number of chunks")
        after = batch[-1].document_id
    return reopened


@contextmanager
def bulk_settings(config: Config, ledger: Ledger, index: str) -> Iterator[None]:
    """Refresh and replicas off while the body runs; what a crash left off is put right by the next run."""
    client = connect(config.index)
    saved = ledger.saved_settings(index) or generations.serving_settings(config.index)
    ledger.save_settings(index, saved)
    generations.bulk_settings_on(client, index)
    try:
        yield
    finally:
        generations.restore_settings(client, index, saved)
        ledger.save_settings(index, None)


def owner() -> str:
    """Who runs this: ``host:pid:start``; the start time guards against a pid that was given away again."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_of(os.getpid())}"


def is_alive(who: str) -> bool:
    """Whether an owner still runs; one on another host is believed to, until its leases end."""
    host, pid, started = who.rsplit(":", 2)
    return host != socket.gethostname() or _start_of(int(pid)) == started


def _start_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else "gone"
    return _start_by_ps(pid)


def _start_by_ps(pid: int) -> str:  # macOS has no /proc
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip().replace(":", ".") or "gone"
