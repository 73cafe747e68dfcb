"""The ledger's tables, defined once for SQLite and PostgreSQL. Times are seconds since 1970."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)

from ingest.model import FORWARD


class CleanText(TypeDecorator[str]):
    """Text that came out of a document: PostgreSQL takes neither NUL nor lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.replace("\x00", "").encode("utf-8", "replace").decode()


BigId = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only in a column of type INTEGER
metadata = MetaData()

# One row per version of a key, delete markers included. Rows are never removed: a marker is the tombstone.
documents = Table(
    "documents",
    metadata,
    Column("document_id", String(64), primary_key=True),
    Column("key_hash", String(64), nullable=False),
    Column("bucket", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("version_id", Text, nullable=False),
    Column("etag", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("last_modified", Float, nullable=False),
    Column("revision", BigInteger, nullable=False),  # 0: older than all that was counted
    Column("is_newest", Boolean, nullable=False),
    Column("is_delete_marker", Boolean, nullable=False),
    Column("file_name", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("principals", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    # Two runs that number one key at the same time collide here, and the later one starts over.
    Index(
        "documents_revision",
        "key_hash",
        "revision",
        unique=True,
        sqlite_where=text("revision > 0"),
        postgresql_where=text("revision > 0"),
    ),
    Index(
        "documents_newest",
        "key_hash",
        unique=True,
        sqlite_where=text("is_newest = 1"),  # as SQLAlchemy writes the condition, else SQLite ignores the index
        postgresql_where=text("is_newest"),
    ),
    Index("documents_key", "key_hash"),
    Index(
        "documents_markers",
        "key_hash",
        sqlite_where=text("is_delete_marker = 1"),
        postgresql_where=text("is_delete_marker"),
    ),
)

parses = Table(
    "parses",
    metadata,
    Column("document_id", String(64), primary_key=True),
    Column("parser", String(128), primary_key=True),
    Column("format", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("pages", Integer, nullable=False),
    Column("title", CleanText, nullable=False),
    Column("total", Integer, nullable=False),
    Column("settled", Integer, nullable=False, default=0),
    Column("content_hash", String(64), nullable=False, server_default=text("''")),  # sha256 of the version's bytes
    Column("created_at", Float, nullable=False),
    Index("parses_content", "content_hash", "parser"),
)

segments = Table(
    "segments",
    metadata,
    Column("document_id", String(64), primary_key=True),
    Column("parser", String(128), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("page_from", Integer, nullable=False),
    Column("page_to", Integer, nullable=False),
    Column("state", String(16)),  # NULL: open; parsed | failed: settled
    Column("ordinal", Integer),  # as which it settled, from 1; frozen
    Column("engine", Text),
    Column("artifact", Text),
    Column("reason", String(64)),
    Column("branch", String(16)),
    Column("sentence", CleanText),
    Column("failed_pages", JSON),
    Column("failed_page_count", Integer, nullable=False, default=0),
    Column("transient_retries", Integer, nullable=False, default=0),
    Column("escalations", Integer, nullable=False, default=0),
    Column("quality", Float),
    Column("repairs", Integer, nullable=False, default=0),
    Column("seconds", Float, nullable=False, server_default=text("0")),  # that the engine took
    Column("edition", Integer, nullable=False, server_default=text("0")),  # how often failed pages were read again
    Column("settled_at", Float),
    Index("segments_ordinal", "document_id", "parser", "ordinal", unique=True),
)

# One row per document version and generation. `{state}_at` is when the job last came into that state.
jobs = Table(
    "jobs",
    metadata,
    Column("generation", String(128), primary_key=True),
    Column("document_id", String(64), primary_key=True),
    Column("key_hash", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False, default=1),  # above 1: the index may hold chunks of an earlier one
    Column("tries", Integer, nullable=False, default=1),  # attempts since it was last put into the queue from outside
    Column("run_id", String(128)),
    Column("listed_by", String(128)),  # the run over a part of the bucket whose listing named it last
    Column("lease_until", Float),
    Column("reason", String(64)),
    Column("branch", String(16)),
    Column("sentence", CleanText),
    Column("chunk_count", Integer),
    Column("unchanged", Integer, nullable=False, default=0),
    Column("failed_chunks", Integer, nullable=False, default=0),
    Column("tokens", BigInteger, nullable=False, default=0),
    Column("unknown_tokens", BigInteger, nullable=False, default=0),
    Column("language", String(16), nullable=False, default=""),
    Column("settled_chunks", Integer, nullable=False, server_default=text("0")),  # of this attempt, that came to index
    Column("found", Integer),
    # The index may hold chunks of it: set before the first write, cleared only after they were deleted.
    Column("in_index", Boolean, nullable=False, default=False),
    Column("stale", Boolean, nullable=False, default=False),  # still serves because the newer version can not
    Column("access_changed", Boolean, nullable=False, default=False),  # its chunks carry older principals
    Column("waited", Boolean, nullable=False, server_default=text("false")),  # while a copy of it went ahead
    Column("mirror_due", Boolean, nullable=False, server_default=text("false")),  # the mirror does not know its state
    *(Column(f"{state}_at", Float) for state in FORWARD),
    Column("ended_at", Float),
    Index("jobs_window", "generation", "state", "size"),
    Index("jobs_key", "generation", "key_hash"),
    Index("jobs_run", "generation", "run_id"),
    Index(
        "jobs_listed",
        "generation",
        "listed_by",
        "size",
        sqlite_where=text("listed_by IS NOT NULL"),
        postgresql_where=text("listed_by IS NOT NULL"),
    ),
    Index(
        "jobs_mirror",
        "generation",
        "document_id",
        sqlite_where=text("mirror_due = 1"),
        postgresql_where=text("mirror_due"),
    ),
    Index("jobs_document", "document_id"),  # a change of access is noted in every generation
    Index(
        "jobs_access",
        "generation",
        "document_id",
        sqlite_where=text("access_changed = 1 AND in_index = 1"),
        postgresql_where=text("access_changed AND in_index"),
    ),
)

# One row per call of embed: spans embed and index, and is named from the ids of its chunks.
batches = Table(
    "batches",
    metadata,
    Column("generation", String(128), primary_key=True),
    Column("batch_id", String(64), primary_key=True),
    Column("run_id", String(128), nullable=False),
    Column("state", String(16), nullable=False),  # embedded | indexed | failed
    Column("chunks", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),  # calls of the model for it
    Column("failed_items", Integer, nullable=False),  # that are not in the index
    Column("embedded_at", Float, nullable=False),
    Column("indexed_at", Float),
    Index("batches_run", "run_id", "state"),
)

# How many chunks of a document a settled batch holds, while the document is on its way: the fan-in of batches.
shares = Table(
    "shares",
    metadata,
    Column("generation", String(128), primary_key=True),
    Column("document_id", String(64), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("batch_id", String(64), primary_key=True),
    Column("chunks", Integer, nullable=False),
    Column("settled", Integer, nullable=False),  # chunks of the document settled with this batch; frozen
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("generation", String(128), primary_key=True),
    Column("chunk_id", String(64), primary_key=True),
    Column("document_id", String(64), nullable=False),
    Column("stage", String(32), nullable=False),
    Column("reason", String(64), nullable=False),
    Column("branch", String(16), nullable=False),
    Column("sentence", CleanText, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("dead_letters_document", "generation", "document_id"),
)

generations = Table(
    "generations",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("alias", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("parser", String(128), nullable=False),
    Column("chunker", Text, nullable=False),
    Column("embedder", Text, nullable=False),
    Column("mapping", Text, nullable=False),
    Column("extra", JSON, nullable=False),
    Column("index_uuid", Text, nullable=False),
    Column("saved_settings", JSON),
    Column("canary", JSON),  # vector of a fixed text, to find an embedder that computes differently
    Column("created_at", Float, nullable=False),
    Index("generations_identity", "alias", "parser", "chunker", "embedder", "mapping", unique=True),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(128), primary_key=True),
    Column("verb", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("config_fingerprint", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("report", JSON),
    Column("stop_reason", CleanText),  # why a stage stopped it
)

# Counters of a run, added up over its processes; of those named ``peak.…`` the largest, of ``now.…`` the last.
counters = Table(
    "counters",
    metadata,
    Column("run_id", String(128), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("value", Float, nullable=False),
)

# The run's counters so far, every few seconds: what its rates over time are drawn from.
samples = Table(
    "samples",
    metadata,
    Column("run_id", String(128), primary_key=True),
    Column("at", Float, primary_key=True),
    Column("values", JSON, nullable=False),
)

# What an actor is working on. A unit that stands here when it is begun again has lost an actor.
begun = Table(
    "begun",
    metadata,
    Column("run_id", String(128), primary_key=True),
    Column("unit", String(256), primary_key=True),
    Column("alone", Integer, nullable=False),  # how often it was begun with nothing beside it
)

# An alias on which an operator let all runs wait.
pauses = Table(
    "pauses",
    metadata,
    Column("alias", String(256), primary_key=True),
    Column("since", Float, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", CleanText, nullable=False),
)

# Append-only.
history = Table(
    "history",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("document_id", String(64), nullable=False),
    Column("generation", String(128), nullable=False),
    Column("from_state", String(16)),
    Column("to_state", String(16), nullable=False),
    Column("at", Float, nullable=False),
    Column("run_id", String(128)),
    Column("reason", CleanText),
    Index("history_document", "document_id", "id"),
)

migrations = Table(
    "migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", Float, nullable=False),
)
