"""Bulk writes whose outcome is known chunk by chunk.

Items go in with a revision (``external_gte``), so sending one twice changes nothing; what is in doubt is sent again.
Only items that failed are sent again; the client's own bulk functions would lose outcomes and take fields for options.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson

from ingest.errors import StoreRefused, StoreThrottled, StoreUnavailable
from ingest.failure import Backoff, failure, with_retries
from ingest.index.client import NO_ANSWER, Reply, reasons
from ingest.index.mapping import VECTOR
from ingest.index.throttle import Gate, Signal, wait_turn
from ingest.index.verdict import AGAIN, Verdict, classify, classify_request
from ingest.model import Failure

HARD_MAX_BYTES = 9_961_472  # 9.5 MiB: small AWS instances refuse more than 10 MiB
MIN_BYTES = 1024
NOT_THERE = (NO_ANSWER, 502, 503)  # nobody is there, or only a proxy is
MAX_DETAIL = 600  # characters of an answer that are kept with a failure


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One operation. ``source`` is the JSON object of the fields without the vector, empty for a delete."""

    op: Literal["index", "delete"]
    chunk_id: str
    revision: int
    source: bytes = b""
    vector: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item; ``failure`` is None when it is in the index, or a newer revision of it."""

    chunk_id: str
    verdict: Verdict
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class BulkStats:
    """What one or more writes cost: items by their last verdict, resends by the verdict that caused them."""

    items: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    request_bytes: int = 0
    request_s: float = 0.0
    splits: int = 0

    def __add__(self, other: BulkStats) -> BulkStats:
        return BulkStats(
            items=Counter(self.items) + Counter(other.items),
            retries=Counter(self.retries) + Counter(other.retries),
            requests=self.requests + other.requests,
            request_bytes=self.request_bytes + other.request_bytes,
            request_s=self.request_s + other.request_s,
            splits=self.splits + other.splits,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """Outcomes in the order of the items, and what they cost."""

    outcomes: tuple[Outcome, ...]
    stats: BulkStats

    def require(self, what: str) -> None:
        """Raises StoreUnavailable where an item failed; ``what`` was to be done with it."""
        if failed := [outcome.failure for outcome in self.outcomes if outcome.failure]:
            number = len(self.outcomes)
            raise StoreUnavailable(f"{len(failed)} of {number} chunks could not be {what}: {failed[0].sentence}")


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """Bounds of one request, and how long a write goes on trying."""

    max_bytes: int = 5 << 20
    max_chunks: int = 500
    backoff: Backoff = field(default_factory=Backoff)


# ---------------------------------------------------------------- pure parts


def ndjson(items: Sequence[BulkItem]) -> list[bytes]:
    """Each item as the line or the two lines that ``_bulk`` takes, newline included."""
    return [_lines(item) for item in items]


def _lines(item: BulkItem) -> bytes:
    action = {"_id": item.chunk_id, "version": item.revision, "version_type": "external_gte"}
    head = orjson.dumps({item.op: action}, option=orjson.OPT_APPEND_NEWLINE)
    return head if item.op == "delete" else head + _with_vector(item.source, item.vector) + b"\n"


def _with_vector(source: bytes, vector: npt.NDArray[np.float32] | None) -> bytes:
    if vector is None:
        return source
    numbers = orjson.dumps(np.ascontiguousarray(vector, dtype=np.float32), option=orjson.OPT_SERIALIZE_NUMPY)
    comma = b"" if source == b"{}" else b","
    return b'%s%s"%s":%s}' % (source[:-1], comma, VECTOR.encode(), numbers)


Line = tuple[int, bytes]  # position among the items of a write, and the item as `_bulk` takes it


def batches(lines: Sequence[Line], max_bytes: int, max_chunks: int) -> Iterator[list[Line]]:
    """The lines in order, cut so that no batch passes either bound; a line above ``max_bytes`` goes alone."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (size + len(line[1]) > max_bytes or len(batch) >= max_chunks):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line[1])
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class ItemReply:
    """One item of a bulk answer."""

    status: int
    kind: str
    reason: str


def item_replies(body: Any, items: Sequence[BulkItem]) -> list[ItemReply] | None:
    """The answer item by item, or None unless it names exactly the items sent, in their order."""
    answered = body.get("items") if isinstance(body, Mapping) else None
    if not isinstance(answered, list) or len(answered) != len(items):
        return None
    found = [_item_reply(entry, item) for entry, item in zip(answered, items, strict=True)]
    replies = [reply for reply in found if reply is not None]
    return replies if len(replies) == len(items) else None


def _item_reply(entry: Any, item: BulkItem) -> ItemReply | None:
    told = entry.get(item.op) if isinstance(entry, Mapping) else None
    if not isinstance(told, Mapping) or told.get("_id") != item.chunk_id or not isinstance(told.get("status"), int):
        return None
    error = told.get("error") or {}
    return ItemReply(told["status"], str(error.get("type", "")), reasons(error))


# ---------------------------------------------------------------- one write


class _Load:
    """The items of one write on their way: outcomes by position, and who waits for another round."""

    def __init__(self, items: Sequence[BulkItem]) -> None:
        self.items = items
        self.waiting: dict[int, bytes] = dict(enumerate(ndjson(items)))
        self.refused: set[int] = set()
        self.stats = BulkStats()
        self._again: dict[int, tuple[Verdict, str]] = {}
        self._retry_after_s = 0.0
        self._outcomes: dict[int, Outcome] = {}

    def settle(self, position: int, verdict: Verdict, failed: Failure | None = None) -> None:
        self.waiting.pop(position, None)
        self._outcomes[position] = Outcome(self.items[position].chunk_id, verdict, failed)

    def postpone(self, position: int, verdict: Verdict, reason: str, retry_after_s: float = 0.0) -> None:
        self._again[position] = (verdict, reason)
        self._retry_after_s = max(self._retry_after_s, retry_after_s)
        self.stats += BulkStats(retries={verdict.value: 1})

    def start_round(self) -> list[Line]:
        self._again, self._retry_after_s = {}, 0.0
        return list(self.waiting.items())

    def raise_waiting(self) -> None:
        """Raises what makes ``with_retries`` come back, if anything waits."""
        if not self._again:
            return
        verdict, reason = next(iter(self._again.values()))
        message = f"{len(self._again)} of {len(self.items)} items: {verdict}: {reason}"
        if any(again is Verdict.THROTTLED for again, _ in self._again.values()):
            raise StoreThrottled(message, self._retry_after_s)
        raise StoreUnavailable(message)

    def give_up(self) -> None:
        """Ends what still waits as failed for the reason of its last try."""
        for position, (verdict, reason) in self._again.items():
            slug = "index_throttled" if verdict is Verdict.THROTTLED else "index_unavailable"
            self.settle(position, verdict, failure(slug, reason[:MAX_DETAIL]))

    def written(self) -> Written:
        outcomes = tuple(self._outcomes[position] for position in range(len(self.items)))
        items = Counter(outcome.verdict.value for outcome in outcomes)
        return Written(outcomes, self.stats + BulkStats(items=items))


class Bulk:
    """Writes items through ``post`` (one request in, one reply out); safe to share between threads."""

    def __init__(
        self,
        post: Callable[[bytes], Reply],
        limits: BulkLimits,
        gate: Gate,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._post = post
        self._limits = limits
        self._gate = gate
        self._sleep = sleep
        # Shrinks when the cluster says that a request was too large, so that the next ones are cut smaller at once.
        self._max_bytes = min(limits.max_bytes, HARD_MAX_BYTES)

    def write(self, items: Sequence[BulkItem]) -> Written:
        """Writes all items and tells of each what became of it. Raises StoreRefused when no item could ever go in."""
        load = _Load(items)
        try:
            with_retries(lambda: self._round(load), self._limits.backoff, self._sleep)
        except (StoreThrottled, StoreUnavailable):
            load.give_up()
        return load.written()

    def _round(self, load: _Load) -> None:
        for batch in batches(load.start_round(), self._max_bytes, self._limits.max_chunks):
            self._send(load, batch)
            # One bad item is bisected out; when every single one is refused the fault is not in the items.
            if len(batch) > 1 and load.refused.issuperset(position for position, _ in batch):
                raise StoreRefused(f"each of {len(batch)} items was refused alone; nothing is wrong with one of them")
        load.raise_waiting()

    def _send(self, load: _Load, batch: list[Line]) -> None:
        body = b"".join(line for _, line in batch)
        token = wait_turn(self._gate, self._sleep)
        started, signal = time.monotonic(), Signal.NEUTRAL
        try:
            reply = self._post(body)
            signal = _signal(reply)
        finally:
            alone = self._gate.release(token, signal)
        load.stats += BulkStats(requests=1, request_bytes=len(body), request_s=time.monotonic() - started)
        self._settle(load, batch, reply, classify_request(reply, alone))

    def _settle(self, load: _Load, batch: list[Line], reply: Reply, verdict: Verdict) -> None:
        if verdict is Verdict.SUCCESS:
            self._settle_items(load, batch, reply)
        elif verdict is Verdict.PERMANENT_SETUP:
            raise StoreRefused(str(reply))
        elif verdict in AGAIN:
            for position, _ in batch:
                load.postpone(position, verdict, str(reply), reply.retry_after_s)
        else:
            self._split(load, batch, reply, verdict)

    def _split(self, load: _Load, batch: list[Line], reply: Reply, verdict: Verdict) -> None:
        if verdict is Verdict.PAYLOAD:
            self._shrink(sum(len(line) for _, line in batch))
        if len(batch) > 1:
            load.stats += BulkStats(splits=1)
            self._send(load, batch[: len(batch) // 2])
            self._send(load, batch[len(batch) // 2 :])
            return
        position = batch[0][0]
        if verdict is Verdict.PAYLOAD:
            self._settle_too_large(load, position, reply)
        else:
            load.refused.add(position)
            load.settle(position, Verdict.PERMANENT_DOC, failure("mapping_rejected", str(reply)[:MAX_DETAIL]))

    def _settle_too_large(self, load: _Load, position: int, reply: Reply) -> None:
        """One item alone: a proven limit ends it, a node that is merely full (others write too) is asked again."""
        if reply.status == 413 or classify_request(reply, alone=False) is Verdict.PAYLOAD:
            load.settle(position, Verdict.PERMANENT_DOC, failure("chunk_too_large", str(reply)[:MAX_DETAIL]))
        else:
            load.postpone(position, Verdict.THROTTLED, str(reply), reply.retry_after_s)

    def _settle_items(self, load: _Load, batch: list[Line], reply: Reply) -> None:
        items = [load.items[position] for position, _ in batch]
        replies = item_replies(reply.body, items)
        if replies is None:
            for position, _ in batch:
                load.postpone(position, Verdict.UNKNOWN, "the answer does not name the items that were sent")
            return
        for (position, line), item, told in zip(batch, items, replies, strict=True):
            self._settle_item(load, (position, line), classify(told.status, told.kind, told.reason, item.op), told)

    def _settle_item(self, load: _Load, line: Line, verdict: Verdict, told: ItemReply) -> None:
        reason = f"{told.status} {told.kind}: {told.reason}"[:MAX_DETAIL]
        if verdict is Verdict.PERMANENT_SETUP:
            raise StoreRefused(reason)
        if verdict is Verdict.PAYLOAD:
            self._shrink(self._max_bytes)
            load.postpone(line[0], Verdict.THROTTLED, reason)
        elif verdict in AGAIN:
            load.postpone(line[0], verdict, reason)
        else:
            is_bad = verdict is Verdict.PERMANENT_DOC
            load.settle(line[0], verdict, failure("mapping_rejected", reason) if is_bad else None)

    def _shrink(self, size: int) -> None:
        self._max_bytes = max(MIN_BYTES, min(self._max_bytes, size // 2))


def _signal(reply: Reply) -> Signal:
    """What the whole answer says about load; single items that were throttled count as much as a refused request."""
    if reply.status == 429:
        verdict = classify_request(reply, alone=False)
        return Signal.CONGESTED if verdict is Verdict.THROTTLED else Signal.NEUTRAL
    if reply.kind == "timeout" or reply.status in (408, 504):
        return Signal.CONGESTED
    if reply.status in NOT_THERE:
        return Signal.DOWN
    if not reply.is_ok:
        return Signal.NEUTRAL
    answered = reply.body.get("items", ()) if isinstance(reply.body, Mapping) else ()
    statuses = (told.get("status") for entry in answered if isinstance(entry, Mapping) for told in entry.values())
    return Signal.CONGESTED if 429 in statuses else Signal.CLEAN
