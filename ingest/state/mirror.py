"""The status mirror: one DynamoDB item per key, for front ends that poll. The ledger stays the truth.

A job that changes its state is due; what is due is written until DynamoDB has it, also by a later run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy import and_, case, func, or_, select, update

from ingest.errors import PreflightError, StoreRefused, StoreThrottled, StoreUnavailable
from ingest.model import RANK, State
from ingest.state.ledger import Ledger
from ingest.state.moves import Tx, parser_of, slices
from ingest.state.tables import documents, jobs, segments

THREADS = 8
DUE_AT_ONCE = 400
ENDED = {
    State.READY: "COMPLETED",
    State.PARTIAL: "PARTIAL",
    State.FAILED: "FAILED",
    State.UNSUPPORTED: "FAILED",
    State.NEEDS_REVIEW: "FAILED",
    State.DELETED: "DELETED",
}
THROTTLED = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"})
REFUSED = frozenset(
    {"AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException", "ValidationException"}
)


@dataclass(frozen=True, slots=True)
class Status:
    """What becomes the item of a key. ``sequence`` grows with every change of one version's job."""

    key_id: str
    bucket: str
    key: str
    document_id: str
    version: str
    revision: int
    sequence: int
    status: str  # PROCESSING | PARTIAL | COMPLETED | FAILED | DELETED
    state: str
    reason: str
    sentence: str
    segments: int
    failed_segments: int
    chunks: int
    failed_chunks: int
    run_id: str


def status_of(state: State) -> str | None:
    """The status that front ends see; None for a version that another one replaced."""
    return None if state is State.SUPERSEDED else ENDED.get(state, "PROCESSING")


# ---------------------------------------------------------------- what is due


def due(tx: Tx, limit: int) -> list[Status]:
    """The next jobs whose state the mirror does not know yet."""
    own = (
        "document_id",
        "key_hash",
        "state",
        "attempt",
        "reason",
        "sentence",
        "chunk_count",
        "failed_chunks",
        "run_id",
    )
    named = ("bucket", "key", "version", "revision")
    query = (
        select(*(jobs.c[name] for name in own), *(documents.c[name] for name in named))
        .join(documents, documents.c.document_id == jobs.c.document_id)
        .where(jobs.c.generation == tx.generation, jobs.c.mirror_due)
        .limit(limit)
    )
    rows = tx.connection.execute(query).all()
    counts = _segments(tx, [row.document_id for row in rows])
    return [_status(row, *counts.get(row.document_id, (0, 0))) for row in rows]


def due_number(tx: Tx) -> int:
    """Jobs whose state the mirror does not know yet."""
    here = (jobs.c.generation == tx.generation, jobs.c.mirror_due)
    return tx.connection.execute(select(func.count()).where(*here)).scalar_one()


def _segments(tx: Tx, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    broken = or_(segments.c.state == "failed", segments.c.failed_page_count > 0)
    failed = func.sum(case((broken, 1), else_=0)).label("failed")
    query = select(segments.c.document_id, func.count().label("number"), failed).group_by(segments.c.document_id)
    parser = parser_of(tx)
    return {
        row.document_id: (row.number, int(row.failed))
        for part in slices(ids)
        for row in tx.connection.execute(query.where(segments.c.parser == parser, segments.c.document_id.in_(part)))
    }


def _status(row: Any, number: int, failed: int) -> Status:
    state = State(row.state)
    return Status(
        key_id=row.key_hash,
        bucket=row.bucket,
        key=row.key,
        document_id=row.document_id,
        version=row.version,
        revision=row.revision,
        sequence=_sequence(row.attempt, state),
        status=status_of(state) or "",
        state=state.value,
        reason=row.reason or "",
        sentence=row.sentence or "",
        segments=number,
        failed_segments=failed,
        chunks=row.chunk_count or 0,
        failed_chunks=row.failed_chunks,
        run_id=row.run_id or "",
    )


def _sequence(attempt: int, state: State) -> int:
    return 100 * attempt + RANK[state]  # states only move forward within an attempt


def written(tx: Tx, told: Sequence[Status]) -> None:
    """Notes that the mirror knows these; a job that changed meanwhile stays due."""
    by_state: dict[str, list[str]] = {}
    for one in told:
        by_state.setdefault(one.state, []).append(one.document_id)
    attempts = {one.document_id: one.sequence // 100 for one in told}
    for state, ids in sorted(by_state.items()):
        for part in slices(ids):
            same = or_(*(and_(jobs.c.document_id == name, jobs.c.attempt == attempts[name]) for name in part))
            here = (jobs.c.generation == tx.generation, jobs.c.state == state, same)
            tx.connection.execute(update(jobs).where(*here).values(mirror_due=False))


# ---------------------------------------------------------------- DynamoDB


class Mirror:
    """A table with the partition key ``key_id`` (a string)."""

    def __init__(self, table: str, client: Any = None) -> None:
        self._table = table
        pool = BotoConfig(max_pool_connections=THREADS, retries={"mode": "standard", "max_attempts": 5})
        self._client = client or boto3.client("dynamodb", config=pool)

    def check(self) -> str:
        """What was found. Raises PreflightError that says what to do."""
        try:
            with _translated(f"table {self._table}"):
                found = self._client.describe_table(TableName=self._table)["Table"]
        except StoreRefused as error:
            raise PreflightError(
                f"{error}; create it with the string partition key key_id, or leave mirror.table empty"
            ) from error
        if (schema := [(key["AttributeName"], key["KeyType"]) for key in found["KeySchema"]]) != [("key_id", "HASH")]:
            raise PreflightError(f"table {self._table} has the key {schema}; the string partition key key_id is needed")
        return f"DynamoDB table {self._table}"

    def write(self, statuses: Sequence[Status]) -> int:
        """How many were newer than their key's item. Raises StoreThrottled, StoreUnavailable or StoreRefused."""
        shown = [one for one in statuses if one.status]
        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(self._put, shown))

    def _put(self, one: Status) -> bool:
        """False where a newer revision, or a later state of this one, is there already."""
        fields = {**asdict(one), "updated_at": round(time.time(), 3)}
        item = {name: {"N": str(v)} if isinstance(v, int | float) else {"S": v} for name, v in fields.items()}
        try:
            with _translated(f"table {self._table}"):
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression=(
                        "attribute_not_exists(key_id) OR revision < :revision "
                        "OR (revision = :revision AND #sequence <= :sequence)"
                    ),
                    ExpressionAttributeNames={"#sequence": "sequence"},
                    ExpressionAttributeValues={":revision": item["revision"], ":sequence": item["sequence"]},
                )
        except _Newer:
            return False
        return True


class _Newer(Exception):
    """The condition of a write did not hold."""


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ConditionalCheckFailedException":
            raise _Newer from error
        if code in THROTTLED:
            raise StoreThrottled(f"{what}: {code}") from error
        raise (StoreRefused if code in REFUSED else StoreUnavailable)(f"{what}: {code or error}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"{what}: {error}; check AWS_ENDPOINT_URL, the network and the credentials") from error


def push(mirror: Mirror, ledger: Ledger, generation: str) -> int:
    """Writes all that is due; how many jobs that were. Raises what ``Mirror.write`` raises; what is left stays due."""
    pushed = 0
    while found := ledger.ask(generation, due, DUE_AT_ONCE):
        mirror.write(found)
        ledger.do(generation, written, found)
        pushed += len(found)
        if len(found) < DUE_AT_ONCE:
            break
    return pushed
