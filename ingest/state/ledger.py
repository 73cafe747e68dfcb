"""The ledger: what is true about every document version, in SQLite or PostgreSQL.

Every verb is one transaction and may be repeated. States move strictly forward, guarded in the statement.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from ingest.config import SourceConfig
from ingest.model import Branch, ChunkFailure, Document, Failure, Fingerprints, ObjectVersion, State
from ingest.state import (
    admission,
    batches,
    connect,
    fanin,
    generations,
    migrations,
    reports,
    settling,
    twins,
    watching,
    windows,
)
from ingest.state.moves import Move, Tx, ended, held_by, move
from ingest.state.records import (
    Admission,
    Batch,
    Change,
    ConstructRecord,
    Expected,
    FailureRow,
    Generation,
    Pause,
    Pending,
    Plan,
    Planned,
    Run,
    Sample,
    SegmentCount,
    SegmentRow,
    Settled,
    Settlement,
    Verified,
)
from ingest.state.tables import generations as generation_table
from ingest.state.tables import runs

P = ParamSpec("P")
T = TypeVar("T")


class Ledger:
    """The engine's memory. Pickles as its url, so every process opens its own connections; safe for threads.

    A verb waits up to a minute for a database that went away. One that takes a ``run_id`` moves no job that another run
    holds. Raises StoreUnavailable, StoreRefused or StoreError, never an error of SQLAlchemy.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = connect.open_engine(url)

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        return Ledger, (self.url,)

    def read(self, work: Callable[[Connection], T]) -> T:
        return connect.transact(self._engine, work, write=False)

    def write(self, work: Callable[[Connection], T]) -> T:
        return connect.transact(self._engine, work)

    # A verb of a module of this folder, in a transaction of its own; ``Operator`` adds what people ask and order.

    def ask(self, generation: str, verb: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.read(lambda connection: verb(Tx(connection, generation, time.time()), *args, **kwargs))

    def do(self, generation: str, verb: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.write(lambda connection: verb(Tx(connection, generation, time.time()), *args, **kwargs))

    def migrate(self) -> list[int]:
        """Brings an empty or older database to the newest schema; the numbers of the steps applied.

        Comes first, so it does not wait for a database that is not there.
        """
        work = partial(migrations.migrate, now=time.time())
        return connect.transact(self._engine, work, outage=connect.NO_OUTAGE)

    def close(self) -> None:
        """Closes all connections; the next verb opens new ones."""
        self._engine.dispose()

    # ------------------------------------------------------------ runs

    def start_run(self, run_id: str, verb: str, owner: str, config_fingerprint: str) -> None:
        """Writes down that a run began; StoreRefused where the id is taken."""
        run = Run(run_id, verb, owner, "running", config_fingerprint, time.time(), None, None, "")
        self.write(lambda connection: windows.start_run(connection, run))

    def end_run(self, run_id: str, state: str, report: Mapping[str, Any] | None = None) -> None:
        """Writes down how a run ended; a run that has ended keeps its end."""
        values = {"state": state, "ended_at": time.time(), "report": None if report is None else dict(report)}
        self.write(lambda connection: windows.end_run(connection, run_id, values))

    def run(self, run_id: str) -> Run | None:
        """One run, or None."""
        return next(iter(self.read(lambda connection: windows.read_runs(connection, runs.c.run_id == run_id))), None)

    def runs(self) -> list[Run]:
        """All runs in the order in which they started."""
        return self.read(windows.read_runs)

    def live_runs(self) -> list[Run]:
        """Runs without an end; one of them may have died."""
        return self.read(lambda connection: windows.read_runs(connection, runs.c.ended_at.is_(None)))

    def stop_run(self, run_id: str, reason: str) -> None:
        """Asks a run to stop; the first reason stays."""
        self.write(lambda connection: windows.stop_run(connection, run_id, reason))

    def stop_reason(self, run_id: str, alias: str = "") -> str:
        """Why the run is to stop, ``paused`` where its alias is, or an empty string."""
        return self.read(lambda connection: watching.stop_reason(connection, run_id, alias))

    def paused(self, alias: str) -> Pause | None:
        """The pause of an alias, or None."""
        return self.read(lambda connection: watching.paused(connection, alias))

    def add_sample(self, run_id: str, sample: Sample) -> None:
        """Keeps the counters of the run as they are now."""
        self.write(lambda connection: watching.add_sample(connection, run_id, sample))

    def add_stats(self, run_id: str, values: Mapping[str, float]) -> None:
        """Adds counters to those of the run; of ``peak.…`` the largest is kept, of ``now.…`` the last."""
        if values:
            self.write(lambda connection: windows.add_stats(connection, run_id, values))

    def stats(self, run_id: str) -> dict[str, float]:
        """The counters of a run over all its processes."""
        return self.read(lambda connection: windows.stats(connection, run_id))

    def release_dead(self, is_alive: Callable[[str], bool], generation: str) -> int:
        """How many jobs came back into the queue: those of ended and dead runs, and those whose lease ran out.

        A run that lives on this host keeps its documents however old their lease; elsewhere only the lease can tell.
        """
        return self.do(generation, windows.release, *self.judged(is_alive))

    def judged(self, is_alive: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """Live runs of which is known that they are dead, and those that live on this host."""
        live = self.live_runs()
        dead = [run.run_id for run in live if not is_alive(run.owner)]
        return dead, [run.run_id for run in live if run.owner.rsplit(":", 2)[0] == socket.gethostname()]

    def held_by_others(self, generation: str, run_id: str) -> dict[str, int]:
        """Jobs in flight in other runs, by run."""
        return self.ask(generation, windows.held_by_others, run_id)

    # ------------------------------------------------------------ admit

    def admit(
        self, generation: str, versions: Sequence[ObjectVersion], source: SourceConfig, *, listed_by: str = ""
    ) -> Admission:
        """Numbers and queues the versions of a page, all of a key together and newest first.

        A run over a part of the bucket marks as ``listed_by`` itself what its listing names.
        """
        return self.do(generation, admission.admit, versions, source, listed_by)

    def take(self, generation: str, run_id: str, limit: int, lease_s: float, *, listed_by: str = "") -> list[Document]:
        """Up to ``limit`` queued documents, large ones first; no two runs get the same. See ``admit``."""
        return self.do(generation, windows.take, run_id, limit, lease_s, listed_by)

    def queued(self, generation: str, listed_by: str = "") -> int:
        """Jobs in the queue. See ``admit``."""
        return self.ask(generation, windows.queued, listed_by)

    def give_back(self, generation: str, run_id: str) -> int:
        """How many jobs the run had in flight, which are queued again as if it had never taken them."""
        return self.do(generation, windows.give_back, run_id)

    def requeue(self, generation: str, document_ids: Iterable[str], max_attempts: int, *, run_id: str = "") -> int:
        """How many jobs are queued again that a window left unfinished or that ended with a transient failure.

        Unfinished ones that were tried ``max_attempts`` times fail with ``chunks_missing``; ended ones keep their end.
        """
        return self.do(generation, windows.requeue, list(document_ids), max_attempts, run_id)

    def reopen(self, generation: str, document_ids: Iterable[str], why: str, *, all_versions: bool = False) -> int:
        """How many served documents are queued again because of ``why``; unless ``all_versions``, no older ones."""
        return self.do(generation, windows.reopen, list(document_ids), why, all_versions)

    # ------------------------------------------------------------ triage and fan-in

    def advance(self, generation: str, document_ids: Iterable[str], state: State, *, run_id: str = "") -> list[str]:
        """Ids of the jobs that moved forward to ``state``; those there or further stay."""
        return self.do(generation, move, list(document_ids), Move(state, guard=held_by(run_id)))

    def plan(self, generation: str, parser: str, plans: Sequence[Plan]) -> None:
        """Stores plans that are not there yet and moves their jobs to parsing."""
        self.do(generation, fanin.plan, parser, plans)

    def planned(self, parser: str, document_ids: Iterable[str]) -> dict[str, Planned]:
        """The stored plans of these documents and how far they got."""
        ids = list(document_ids)
        return self.read(lambda connection: fanin.planned(connection, parser, ids))

    def settle(self, generation: str, parser: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """The frozen ordinal of each settlement; the closing one moves its job to assembling."""
        return self.do(generation, fanin.settle, parser, settlements)

    def segments(self, parser: str, document_id: str) -> list[SegmentRow]:
        """All segments of a document, in order."""
        found = self.planned(parser, [document_id]).get(document_id)
        return list(found.rows) if found else []

    def relatives(self, generation: str, document_id: str) -> list[str]:
        """Documents whose chunks in the index may be equal to some of this one: of its key, or of its bytes."""
        return self.ask(generation, twins.relatives, document_id)

    def begin(self, run_id: str, units: Collection[str]) -> dict[str, int]:
        """Notes that a call works on these. Those that stood there already lost an actor: how often alone."""
        return self.write(lambda connection: watching.begin(connection, run_id, units))

    def begin_alone(self, run_id: str, unit: str) -> None:
        """Notes that an actor works on this unit and on nothing else."""
        self.write(lambda connection: watching.begin_alone(connection, run_id, unit))

    def came_through(self, run_id: str, units: Collection[str]) -> None:
        """Notes that the call came through with these."""
        self.write(lambda connection: watching.ended(connection, run_id, units))

    # ------------------------------------------------------------ construct and index

    def record_chunks(self, generation: str, *records: ConstructRecord, run_id: str = "") -> None:
        """Writes down, by assignment, what construct made, and moves the jobs on."""
        self.do(generation, settling.record_chunks, records, run_id)

    def superseded(self, generation: str, document_ids: Iterable[str], all_versions: bool = False) -> set[str]:
        """Those of these documents that must not be in the index any more."""
        return self.ask(generation, settling.superseded, list(document_ids), all_versions)

    def indexed(self, generation: str, document_ids: Iterable[str], *, run_id: str = "") -> list[str]:
        """Ids of the jobs that moved to indexing."""
        return self.advance(generation, document_ids, State.INDEXING, run_id=run_id)

    def embedded(self, generation: str, run_id: str, batches_: Sequence[Batch]) -> None:
        """Notes that the model was called for these batches."""
        self.do(generation, batches.embedded, run_id, batches_)

    def settle_batches(self, generation: str, batches_: Sequence[Batch]) -> list[str]:
        """Documents whose last chunk came to index with one of these; they move to verifying."""
        return self.do(generation, batches.settle, batches_)

    def bury(self, generation: str, failures: Sequence[ChunkFailure]) -> None:
        """Stores dead letters; a chunk that is there already changes nothing."""
        if failures:
            self.do(generation, settling.bury, failures)

    # ------------------------------------------------------------ ends

    def end(
        self, generation: str, document_id: str, state: State, failure: Failure | None = None, *, run_id: str = ""
    ) -> bool:
        """Whether the job came to this end now; a job that has an end keeps it."""
        return bool(self.do(generation, windows.end, [document_id], ended(state, failure, run_id)))

    def to_verify(self, generation: str, run_id: str, document_ids: Collection[str] | None = None) -> list[Pending]:
        """Documents of the run (all, or of these) that wait to be counted."""
        return self.ask(generation, settling.to_verify, run_id, document_ids)

    def verified(self, generation: str, counts: Sequence[Verified]) -> dict[str, State]:
        """The ends that the counts prove, by document; the others stay where they are."""
        return self.do(generation, settling.verified, counts)

    def older(self, generation: str, document_ids: Iterable[str] | None = None, *, limit: int = 500) -> list[Document]:
        """Earlier versions that may hold chunks, of those of these documents (or ``limit`` of all) that serve now."""
        return self.ask(generation, settling.older, None if document_ids is None else list(document_ids), limit)

    def to_delete(self, generation: str, limit: int = 500) -> list[Document]:
        """The next documents that may hold chunks although their key's newest revision is a delete marker."""
        return self.ask(generation, settling.to_delete, limit)

    def broken(self, generation: str, limit: int = 500) -> list[Document]:
        """The next documents that may hold chunks although they failed; to be deleted, then retired as ``failed``."""
        return self.ask(generation, settling.broken, limit)

    def retire(self, generation: str, document_ids: Collection[str], state: State) -> list[str]:
        """Writes down that the chunks of these documents are deleted; ids of those that came to ``state`` now."""
        return self.do(generation, settling.retire, document_ids, state)

    def newest_revisions(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The newest revision of each known (bucket, key)."""
        return self.ask("", settling.newest_revisions, list(keys))

    def access_changed(self, generation: str, limit: int, after: str = "") -> list[Document]:
        """The next ``limit`` documents, by id behind ``after``, whose chunks carry another tenant or principals."""
        return self.ask(generation, settling.access_changed, limit, after)

    def access_written(self, generation: str, documents: Sequence[Document]) -> None:
        """Writes down that the chunks of these documents carry these tenants and principals."""
        self.do(generation, settling.access_written, documents)

    # ------------------------------------------------------------ generations

    def generation(self, alias: str, fingerprints: Fingerprints) -> Generation | None:
        """The newest generation of the alias that these components make, or None."""
        return self.read(lambda connection: generations.find_generation(connection, alias, fingerprints))

    def generations(self, alias: str) -> list[Generation]:
        """All generations of an alias, newest first."""
        here = generation_table.c.alias == alias
        return self.read(lambda connection: generations.read_generations(connection, here))

    def add_generation(self, generation: Generation) -> None:
        """Writes a generation down; where it is known, only the uuid of its index changes."""
        self.write(lambda connection: generations.add_generation(connection, generation, time.time()))

    def claim_generation(self, generation: Generation) -> Generation:
        """The one generation of this alias and these components: the stored one, or this; uuid "" = being made."""
        return self.write(lambda connection: generations.claim_generation(connection, generation, time.time()))

    def set_uuid(self, name: str, uuid: str) -> None:
        """Assigns the id of the generation's index."""
        self.write(lambda connection: generations.save(connection, name, {"index_uuid": uuid}))

    def set_generation_state(self, name: str, state: str) -> None:
        """Assigns the state of a generation."""
        self.write(lambda connection: generations.save(connection, name, {"state": state}))

    def keep_settings(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The index settings to be restored: those that a run kept before, else these."""
        return self.write(lambda connection: generations.keep_settings(connection, name, settings))

    def forget_settings(self, name: str) -> None:
        """Called when the index has its settings back."""
        self.write(lambda connection: generations.save(connection, name, {"saved_settings": None}))

    def saved_settings(self, name: str) -> dict[str, Any] | None:
        """The index settings to be restored, or None."""
        return self.read(lambda connection: generations.saved_settings(connection, name))

    def canary(self, generation: str, vector: Sequence[float]) -> list[float]:
        """The generation's canary vector: the first one that was given for it."""
        return self.write(lambda connection: generations.canary(connection, generation, vector))

    def forget_jobs(self, generation: str) -> int:
        """How many jobs are queued again because the index is gone; no document holds a chunk any more."""
        return self.do(generation, windows.forget)

    # ------------------------------------------------------------ reports

    def counts(self, generation: str, run_id: str | None = None) -> dict[State, int]:
        """Jobs by state, of a run or of all."""
        return self.ask(generation, reports.counts, run_id)

    def segment_counts(self, generation: str, run_id: str | None = None) -> list[SegmentCount]:
        """Segments by state and engine."""
        return self.ask(generation, reports.segment_counts, run_id)

    def failures(self, generation: str, run_id: str | None = None, limit: int = 100) -> list[FailureRow]:
        """Failed documents, segments, pages and chunks, at most ``limit``."""
        return self.ask(generation, reports.failures, run_id, limit)

    def failure_counts(self, generation: str) -> dict[Branch, int]:
        """Failed documents by branch."""
        return self.ask(generation, reports.failure_counts)

    def expected_chunks(self, generation: str, *, in_flight: bool = False) -> int:
        """Chunks that the index should hold; with ``in_flight`` also those of documents on their way."""
        return self.ask(generation, reports.expected_chunks, in_flight)

    def expected_documents(self, generation: str, after: str = "", limit: int = 1000) -> list[Expected]:
        """The next ``limit`` documents that serve, ordered by id, behind ``after``."""
        return self.ask(generation, reports.expected_documents, after, limit)

    def history(self, document_id: str) -> list[Change]:
        """All state changes of a document, oldest first."""
        return self.ask("", reports.changes, document_id)
