"""Object versions of a bucket, listed side by side by prefix shard and never held as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby, islice
from queue import Queue
from threading import Event
from typing import Any

from ingest.config import SourceConfig
from ingest.model import ObjectVersion
from ingest.source.s3 import translated

PAGES_AHEAD = 4  # listing pages that wait for the ledger; more would only fill memory
MAX_FOLDERS = 1000  # of a level; a shard costs a request, and with a million folders they would never end


@dataclass(frozen=True, slots=True)
class Shard:
    """A prefix to list; ``shallow`` leaves out what lies in its sub-folders."""

    prefix: str
    shallow: bool = False


def shards(client: Any, bucket: str, prefix: str, wanted: int) -> list[Shard]:
    """The prefix split at ``/`` until there are ``wanted`` shards, two levels are used or a level is too wide."""
    level, done = [prefix], []
    for _ in range(2):
        folders = (inner for outer in level for inner in _folders(client, bucket, outer))
        found = list(islice(folders, MAX_FOLDERS + 1))
        if not 0 < len(found) <= MAX_FOLDERS:
            break
        done += [Shard(outer, shallow=True) for outer in level]
        level = found
        if len(level) >= wanted:
            break
    return done + [Shard(outer) for outer in level]


def _folders(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in _pages(client, bucket, Shard(prefix, shallow=True)):
        yield from (row["Prefix"] for row in page.get("CommonPrefixes", ()))


def _pages(client: Any, bucket: str, shard: Shard) -> Iterator[dict[str, Any]]:
    delimiter = {"Delimiter": "/"} if shard.shallow else {}
    pages = iter(client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=shard.prefix, **delimiter))
    while True:
        with translated(f"list versions of s3://{bucket}/{shard.prefix}"):
            page = next(pages, None)
        if page is None:
            return
        yield page


def list_shard(client: Any, bucket: str, shard: Shard) -> Iterator[list[ObjectVersion]]:
    """Batches of versions and delete markers; a key's rows come together, newest first."""
    held: list[ObjectVersion] = []
    for page in _pages(client, bucket, shard):
        rows = sorted(held + _rows(bucket, page), key=_order)
        last = rows[-1].key if rows else ""
        held = [row for row in rows if row.key == last]
        if len(rows) > len(held):
            yield rows[: len(rows) - len(held)]
    if held:
        yield held


def _order(row: ObjectVersion) -> tuple[str, bool, float]:
    return row.key, not row.is_latest, -row.last_modified


def _rows(bucket: str, page: dict[str, Any]) -> list[ObjectVersion]:
    versions = [_version(bucket, row, marker=False) for row in page.get("Versions", ())]
    return versions + [_version(bucket, row, marker=True) for row in page.get("DeleteMarkers", ())]


def _version(bucket: str, row: dict[str, Any], *, marker: bool) -> ObjectVersion:
    return ObjectVersion(
        bucket=bucket,
        key=row["Key"],
        version_id=row["VersionId"],
        etag=row.get("ETag", "").strip('"'),
        size=row.get("Size", 0),
        last_modified=row["LastModified"].timestamp(),
        is_latest=row["IsLatest"],
        is_delete_marker=marker,
    )


def list_versions(client: Any, config: SourceConfig) -> Generator[list[ObjectVersion]]:
    """Batches of all shards as they come, at most ``PAGES_AHEAD`` a thread in memory; raises what a shard raised."""
    todo = [Shard(config.prefix)]  # with a limit one after the other: the first keys, the same ones each time
    if not config.limit:
        todo = shards(client, config.bucket, config.prefix, config.listing_threads)
    batches: Queue[list[ObjectVersion] | BaseException | None] = Queue(PAGES_AHEAD * config.listing_threads)
    stop = Event()
    with ThreadPoolExecutor(config.listing_threads, thread_name_prefix="list") as pool:
        for shard in todo:
            pool.submit(_drain, partial(list_shard, client, config.bucket, shard), batches, stop)
        yield from _collect(batches, len(todo), stop)


def _drain(source: Callable[[], Iterator[list[ObjectVersion]]], batches: Queue[Any], stop: Event) -> None:
    try:
        pages = source()
        while not stop.is_set() and (batch := next(pages, None)) is not None:
            batches.put(batch)
        batches.put(None)
    except BaseException as error:  # noqa: BLE001 - handed to the consumer, which raises it
        batches.put(error)


def _collect(batches: Queue[Any], open_shards: int, stop: Event) -> Iterator[list[ObjectVersion]]:
    try:
        while open_shards:
            batch = batches.get()
            if isinstance(batch, list):
                yield batch
                continue
            open_shards -= 1
            if batch:
                raise batch
    finally:  # an error here or in the consumer: the threads that wait for room in the queue must end too
        stop.set()
        while open_shards:
            open_shards -= not isinstance(batches.get(), list)


def selected(client: Any, config: SourceConfig, skipped: Counter[str]) -> Iterator[list[ObjectVersion]]:
    """Batches of the rows that the configuration asks for, ``config.limit`` in all; the others are counted.

    The listing ends where the limit is reached: what comes after is not counted.
    """
    left = config.limit or float("inf")
    with closing(list_versions(client, config)) as batches:
        for batch in batches:
            chosen = select(batch, config, skipped)
            take = chosen[: int(min(left, len(chosen)))]
            skipped["over_limit"] += len(chosen) - len(take)
            left -= len(take)
            if take:
                yield take
            if left <= 0:
                return


def select(batch: Sequence[ObjectVersion], config: SourceConfig, skipped: Counter[str]) -> list[ObjectVersion]:
    """The rows of a batch that the configuration asks for; the others are counted in ``skipped`` by reason."""
    since = config.since_s
    chosen: list[ObjectVersion] = []
    for key, rows in groupby(batch, lambda row: row.key):
        why = _skip(key, config)
        versions = list(rows)
        if why:
            skipped[why] += len(versions)
            continue
        wanted = versions if config.all_versions else versions[:1]
        skipped["older_version"] += len(versions) - len(wanted)
        recent = [row for row in wanted if row.last_modified >= since]
        skipped["before_since"] += len(wanted) - len(recent)
        skipped["empty_file"] += sum(1 for row in recent if not row.size and not row.is_delete_marker)
        chosen += recent
    return chosen


def _skip(key: str, config: SourceConfig) -> str:
    if key.endswith("/"):
        return "folder"
    if not any(fnmatchcase(key, glob) for glob in config.include):
        return "not_included"
    return "excluded" if any(fnmatchcase(key, glob) for glob in config.exclude) else ""
