"""The status mirror in DynamoDB: an older state never overwrites a newer, and nothing is lost while it is away."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.errors import PreflightError, StoreRefused, StoreThrottled, StoreUnavailable
from ingest.failure import failure
from ingest.model import State, key_hash
from ingest.state import Ledger
from ingest.state.mirror import Mirror, Status, due_number, push, status_of
from tests.ledger_steps import GEN, LATEST, admitted, marker, ready, version

_numbers = count()
ONE = Status(
    key_id="k", bucket="b", key="a.pdf", document_id="d", version="v1", revision=1, sequence=100, status="PROCESSING",
    state="queued", reason="", sentence="", segments=3, failed_segments=0, chunks=0, failed_chunks=0, run_id="run-1",
)  # fmt: skip


@pytest.fixture
def client(aws_url: str) -> Iterator[Any]:
    opened = boto3.client("dynamodb")
    yield opened
    opened.close()


@pytest.fixture
def table(client: Any) -> str:
    return make_table(client, "key_id")


def make_table(client: Any, key: str) -> str:
    name = f"status-{next(_numbers)}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def item(client: Any, table: str, key_id: str = "k") -> dict[str, Any]:
    found = client.get_item(TableName=table, Key={"key_id": {"S": key_id}}).get("Item", {})
    return {name: float(value["N"]) if "N" in value else value["S"] for name, value in found.items()}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    opened.migrate()
    yield opened
    opened.close()


# ---------------------------------------------------------------- writes


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(updates=st.lists(st.tuples(st.integers(1, 3), st.integers(100, 104)), min_size=1, max_size=8))
def test_in_any_order_the_newest_revision_and_its_latest_state_stay(
    client: Any, table: str, updates: list[tuple[int, int]]
) -> None:
    key = f"k{next(_numbers)}"
    mirror = Mirror(table, client)
    for revision, sequence in updates:
        mirror.write([replace(ONE, key_id=key, revision=revision, sequence=sequence)])
    found = item(client, table, key)
    assert (found["revision"], found["sequence"]) == max(updates)


def test_two_writers_at_once_end_with_the_newest(client: Any, table: str) -> None:
    def write(order: list[int]) -> None:
        mirror = Mirror(table)
        for sequence in order:
            mirror.write([replace(ONE, sequence=sequence)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [list(range(100, 130)), list(range(129, 99, -1))]))
    assert item(client, table)["sequence"] == 129


def test_a_write_says_how_many_were_newer(client: Any, table: str) -> None:
    mirror = Mirror(table, client)
    assert mirror.write([ONE, replace(ONE, key_id="other")]) == 2
    assert mirror.write([replace(ONE, revision=0)]) == 0
    assert mirror.write([replace(ONE, status="")]) == 0, "a superseded version is not shown"


def test_every_state_has_a_status() -> None:
    shown = {state: status_of(state) for state in State}
    assert shown.pop(State.SUPERSEDED) is None
    assert {shown.pop(state) for state in (State.FAILED, State.UNSUPPORTED, State.NEEDS_REVIEW)} == {"FAILED"}
    assert (shown.pop(State.READY), shown.pop(State.PARTIAL), shown.pop(State.DELETED)) == (
        "COMPLETED", "PARTIAL", "DELETED",
    )  # fmt: skip
    assert set(shown.values()) == {"PROCESSING"}


# ---------------------------------------------------------------- trouble


def test_a_table_that_is_missing_or_has_another_key_is_named(client: Any) -> None:
    with pytest.raises(PreflightError, match="table none: ResourceNotFoundException; create it"):
        Mirror("none", client).check()
    with pytest.raises(PreflightError, match="the string partition key key_id is needed"):
        Mirror(make_table(client, "id"), client).check()
    with pytest.raises(StoreRefused):
        Mirror("none", client).write([ONE])


class RefusingOnceClient:
    """Answers the first put with an error of DynamoDB, then passes on."""

    def __init__(self, client: Any, code: str) -> None:
        self._client = client
        self._code = code

    def put_item(self, **request: Any) -> Any:
        if code := self._code:
            self._code = ""
            raise ClientError({"Error": {"Code": code, "Message": code}}, "PutItem")
        return self._client.put_item(**request)


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("ProvisionedThroughputExceededException", StoreThrottled),
        ("InternalServerError", StoreUnavailable),
        ("AccessDeniedException", StoreRefused),
    ],
)
def test_what_was_not_written_stays_due(
    client: Any, table: str, ledger: Ledger, code: str, raised: type[Exception]
) -> None:
    admitted(ledger, version("a.pdf", 1))
    with pytest.raises(raised):
        push(Mirror(table, RefusingOnceClient(client, code)), ledger, GEN)
    assert ledger.ask(GEN, due_number) == 1
    assert push(Mirror(table, client), ledger, GEN) == 1
    assert ledger.ask(GEN, due_number) == 0


# ---------------------------------------------------------------- from the ledger


def test_a_key_is_followed_from_the_queue_to_its_end_and_its_deletion(client: Any, table: str, ledger: Ledger) -> None:
    mirror, key_id = Mirror(table, client), key_hash("b", "a.pdf")
    (document,) = admitted(ledger, version("a.pdf", 1))
    assert push(mirror, ledger, GEN) == 1
    assert item(client, table, key_id)["status"] == "PROCESSING"
    assert push(mirror, ledger, GEN) == 0, "nothing changed"

    ready(ledger, [document], chunks=7)
    push(mirror, ledger, GEN)
    found = item(client, table, key_id)
    assert (found["status"], found["chunks"], found["segments"], found["key"]) == ("COMPLETED", 7, 1, "a.pdf")

    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    (newer,) = ledger.take(GEN, "run-1", 1, 60)
    push(mirror, ledger, GEN)
    assert item(client, table, key_id)["status"] == "PROCESSING"
    ledger.end(GEN, newer.document_id, State.UNSUPPORTED, failure("password_required"))
    push(mirror, ledger, GEN)
    found = item(client, table, key_id)
    assert (found["status"], found["revision"], found["reason"]) == ("FAILED", 2, "password_required")

    ledger.admit(GEN, [marker("a.pdf", 3), version("a.pdf", 2, latest=False)], LATEST)
    push(mirror, ledger, GEN)
    assert item(client, table, key_id)["status"] in ("DELETED", "FAILED")


def test_a_version_that_was_replaced_does_not_come_back(client: Any, table: str, ledger: Ledger) -> None:
    mirror, key_id = Mirror(table, client), key_hash("b", "a.pdf")
    (old,) = admitted(ledger, version("a.pdf", 1))
    ready(ledger, [old])
    ledger.admit(GEN, [version("a.pdf", 2), version("a.pdf", 1, latest=False)], LATEST)
    new = ledger.take(GEN, "run-1", 1, 60)
    ready(ledger, new)
    ledger.retire(GEN, [old.document_id], State.SUPERSEDED)
    push(mirror, ledger, GEN)
    assert item(client, table, key_id)["revision"] == 2
