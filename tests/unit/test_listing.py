"""Listing: every version once, a key's versions together, and what is not wanted is counted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.config import SourceConfig
from ingest.errors import StoreRefused, StoreUnavailable
from ingest.model import ObjectVersion
from ingest.source import listing
from ingest.source.listing import Shard, list_shard, list_versions, select, selected, shards
from tests.fake_s3 import START, FakeS3, refused

KEYS = st.lists(st.text(alphabet="ab/é", min_size=1, max_size=8), max_size=25)


def source(**values: Any) -> SourceConfig:
    return SourceConfig.model_validate({"bucket": "b", "listing_threads": 3, **values})


def bucket(*keys: str, page_size: int = 1000) -> FakeS3:
    s3 = FakeS3(page_size)
    for key in keys:
        s3.put_object(Bucket="b", Key=key, Body=b"x")
    return s3


def rows(s3: FakeS3, config: SourceConfig) -> list[ObjectVersion]:
    return [row for batch in list_versions(s3, config) for row in batch]


def chosen(s3: FakeS3, **values: Any) -> tuple[list[str], dict[str, int]]:
    """Keys in order, and what was skipped."""
    skipped: Counter[str] = Counter()
    found = [row.key for batch in selected(s3, source(**values), skipped) for row in batch]
    return sorted(found), {reason: number for reason, number in skipped.items() if number}


# ---------------------------------------------------------------- shards


@given(KEYS, st.sampled_from(["", "a", "a/", "ab", "é/"]), st.integers(1, 12), st.integers(1, 4))
@example(["a", "a/", "a/b", "a//", "a//b", "a/b/c/d"], "", 12, 1)
@settings(deadline=None, max_examples=200)
def test_shards_cover_every_version_exactly_once(keys: list[str], prefix: str, wanted: int, page_size: int) -> None:
    s3 = bucket(*keys, page_size=page_size)
    found = shards(s3, "b", prefix, wanted)
    listed = [row.version_id for shard in found for batch in list_shard(s3, "b", shard) for row in batch]
    expected = [stored.version_id for key in s3.keys if key.startswith(prefix) for stored in s3.keys[key]]
    assert sorted(listed) == sorted(expected)


def test_a_flat_bucket_is_one_shard() -> None:
    assert shards(bucket("a", "b"), "b", "", 8) == [Shard("")]


def test_folders_become_shards_and_what_lies_beside_them_too() -> None:
    found = shards(bucket("top", "a/1", "b/1"), "b", "", 2)
    assert found == [Shard("", shallow=True), Shard("a/"), Shard("b/")]


def test_two_levels_are_enough() -> None:
    found = shards(bucket("a/b/c/d/e"), "b", "", 99)
    assert found == [Shard("", shallow=True), Shard("a/", shallow=True), Shard("a/b/")]


@pytest.mark.parametrize(("wide", "number"), [(4, 8), (5, 4)])
def test_a_level_that_is_too_wide_is_not_split(monkeypatch: pytest.MonkeyPatch, wide: int, number: int) -> None:
    monkeypatch.setattr(listing, "MAX_FOLDERS", 4)
    s3 = bucket(*(f"{'abc'[n % 3]}/{n}/x" for n in range(wide)))
    assert len(shards(s3, "b", "", 99)) == number
    listed = [row.key for shard in shards(s3, "b", "", 99) for batch in list_shard(s3, "b", shard) for row in batch]
    assert len(listed) == wide


# ---------------------------------------------------------------- a key's versions


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 7))
@settings(deadline=None)
def test_a_keys_versions_come_together_and_newest_first(puts: list[str], page_size: int) -> None:
    s3 = bucket(*puts, page_size=page_size)
    batches = list(list_shard(s3, "b", Shard("")))
    for key, number in Counter(puts).items():
        together = [[row for row in batch if row.key == key] for batch in batches]
        (own,) = [part for part in together if part]
        assert len(own) == number
        assert [row.is_latest for row in own] == [True] + [False] * (number - 1)
        assert [row.last_modified for row in own] == sorted((row.last_modified for row in own), reverse=True)


def test_a_key_with_more_versions_than_a_page_is_one_batch() -> None:
    s3 = bucket(*["a"] * 2, *["b"] * 25, *["c"] * 2, page_size=4)
    batches = [[row.key for row in batch] for batch in list_shard(s3, "b", Shard(""))]
    assert [batch for batch in batches if "b" in batch] == [["b"] * 25]
    assert sum(map(len, batches)) == 29


def test_a_delete_marker_stands_where_it_was_set() -> None:
    s3 = bucket("a")
    s3.delete_object(Bucket="b", Key="a")
    s3.put_object(Bucket="b", Key="a", Body=b"again")
    s3.delete_object(Bucket="b", Key="a")
    (batch,) = list_shard(s3, "b", Shard(""))
    assert [row.is_delete_marker for row in batch] == [True, False, True, False]
    assert batch[0].is_latest
    assert (batch[0].size, batch[0].etag) == (0, "")


def test_a_row_has_what_the_ledger_needs() -> None:
    s3 = bucket("a/b.txt")
    (row,) = rows(s3, source())
    (stored,) = s3.keys["a/b.txt"]
    assert row == ObjectVersion("b", "a/b.txt", "v1", stored.etag.strip('"'), 1, START + 1)


def test_keys_come_in_the_order_of_their_bytes() -> None:
    s3 = bucket("\U0001f600", "\uffee", "z", "é", page_size=1)
    assert [row.key for batch in list_shard(s3, "b", Shard("")) for row in batch] == ["z", "é", "\uffee", "\U0001f600"]


# ---------------------------------------------------------------- all shards together


def test_an_empty_bucket_gives_nothing() -> None:
    assert list(list_versions(FakeS3(), source())) == []


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied"])
def test_an_error_in_one_shard_is_raised(code: str) -> None:
    s3 = bucket(*(f"{folder}/{n}" for folder in "abc" for n in range(20)), page_size=3)
    s3.broken_prefixes["b/"] = refused(code, 400, "ListObjectVersions")
    expected = StoreUnavailable if code == "SlowDown" else StoreRefused
    with pytest.raises(expected, match="s3://b/b/"):
        rows(s3, source())


@pytest.mark.timeout(20)
def test_a_consumer_that_fails_does_not_wait_for_the_rest_of_the_bucket() -> None:
    s3 = bucket(*(f"{folder}/{n:03d}" for folder in "abcdef" for n in range(200)), page_size=1)
    batches = list_versions(s3, source())
    next(batches)
    time.sleep(0.2)  # the threads meanwhile fill what waits, and stand
    batches.close()  # what an exception in the consumer's loop does
    assert s3.calls["list"] < 600


def slowly(batches: Iterator[list[ObjectVersion]]) -> None:
    for _ in batches:
        time.sleep(0.001)


@pytest.mark.timeout(20)
def test_after_an_error_the_other_shards_are_not_listed_to_their_end() -> None:
    s3 = bucket("a/1", "a/2", *(f"{folder}/{n:03d}" for folder in "bc" for n in range(500)), page_size=1)
    s3.broken_prefixes["a/"] = refused("SlowDown", 503, "ListObjectVersions")
    with pytest.raises(StoreUnavailable):
        slowly(list_versions(s3, source()))
    assert s3.calls["list"] < 500


@given(st.lists(st.sampled_from(["a", "x/a", "x/b", "x/y/a", "z/a"]), max_size=40), st.booleans())
@settings(deadline=None, max_examples=50)
def test_threads_lose_and_double_nothing(puts: list[str], small_pages: bool) -> None:
    s3 = bucket(*puts, page_size=2 if small_pages else 1000)
    found = rows(s3, source())
    assert Counter(row.key for row in found) == Counter(puts)
    assert len({row.version_id for row in found}) == len(puts)


# ---------------------------------------------------------------- select


def test_only_the_newest_of_a_key_unless_all_are_wanted() -> None:
    s3 = bucket("a", "a", "a", "b")
    assert chosen(s3) == (["a", "b"], {"older_version": 2})
    assert chosen(s3, all_versions=True) == (["a", "a", "a", "b"], {})


def test_a_deleted_key_is_known_by_its_marker() -> None:
    s3 = bucket("a", "b")
    s3.delete_object(Bucket="b", Key="a")
    skipped: Counter[str] = Counter()
    found = [row for batch in selected(s3, source(), skipped) for row in batch]
    assert sorted((row.key, row.is_delete_marker) for row in found) == [("a", True), ("b", False)]
    assert skipped["older_version"] == 1


def test_folders_are_no_documents() -> None:
    assert chosen(bucket("a/", "a/b")) == (["a/b"], {"folder": 1})


def test_globs_include_and_exclude_and_tell_letters_apart() -> None:
    s3 = bucket("x/a.pdf", "x/a.PDF", "x/tmp/b.pdf", "x/c.txt")
    found, skipped = chosen(s3, include=["*.pdf"], exclude=["x/tmp/*"])
    assert found == ["x/a.pdf"]
    assert skipped == {"not_included": 2, "excluded": 1}


def test_every_version_of_a_key_that_is_left_out_is_counted() -> None:
    assert chosen(bucket("a.txt", "a.txt", "b.pdf"), exclude=["*.txt"]) == (["b.pdf"], {"excluded": 2})


def test_an_empty_object_is_counted_and_kept_so_that_its_owner_hears_of_it() -> None:
    s3 = bucket("a")
    s3.put_object(Bucket="b", Key="empty", Body=b"")
    assert chosen(s3) == (["a", "empty"], {"empty_file": 1})


@pytest.mark.parametrize(
    ("since", "found"),
    [
        ("2026-11-01T00:00:02", ["b", "c"]),
        ("2026-11-01T01:00:03+01:00", ["c"]),
        ("2026-10-31T23:00:02-01:00", ["b", "c"]),
        ("2026-10-31", ["a", "b", "c"]),
        ("2027-01-01", []),
    ],
)
def test_since_takes_what_was_modified_at_or_after_it(since: str, found: list[str]) -> None:
    keys, skipped = chosen(bucket("a", "b", "c"), since=since)
    assert keys == found
    assert skipped.get("before_since", 0) == 3 - len(found)


def test_a_key_whose_newest_version_is_too_old_is_not_represented_by_another() -> None:
    rows_ = [ObjectVersion("b", "a", "v2", "e", 1, START), ObjectVersion("b", "a", "v1", "e", 1, START - 9, False)]
    skipped: Counter[str] = Counter()
    assert select(rows_, source(since="2027-01-01"), skipped) == []
    assert skipped == Counter(older_version=1, before_since=1)


def test_all_versions_take_each_recent_one() -> None:
    newest = ObjectVersion("b", "a", "v2", "e", 1, START + 5)
    older = replace(newest, version_id="v1", last_modified=START - 5, is_latest=False)
    skipped: Counter[str] = Counter()
    assert select([newest, older], source(since="2026-11-01", all_versions=True), skipped) == [newest]


def test_the_prefix_is_asked_of_s3_and_not_filtered_here() -> None:
    s3 = bucket("manuals/a", "manual.txt", "other/b")
    assert chosen(s3, prefix="manual") == (["manual.txt", "manuals/a"], {})


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 100])
def test_a_limit_takes_the_first_keys(limit: int) -> None:
    keys = sorted(f"{folder}{n}" for folder in ("", "b/", "a/c/", "a/") for n in range(2))
    found, skipped = chosen(bucket(*keys, page_size=1), limit=limit)
    assert found == keys[:limit]
    assert skipped.get("over_limit", 0) <= max(0, 8 - limit)  # what was not listed is not counted


@pytest.mark.timeout(20)
def test_a_limit_that_is_reached_ends_the_listing_and_its_threads() -> None:
    s3 = bucket(*(f"{folder}/{n:03d}" for folder in "abc" for n in range(300)), page_size=1)
    found, _ = chosen(s3, limit=5)
    assert len(found) == 5
    assert s3.calls["list"] < 300
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("list")]


@given(KEYS)
@settings(deadline=None, max_examples=50)
def test_every_listed_row_is_chosen_or_counted(keys: list[str]) -> None:
    s3 = bucket(*keys, *keys[::2])
    skipped: Counter[str] = Counter()
    config = source(include=["*a*"], exclude=["*b"], since="2026-11-01T00:00:05")
    found = [row for batch in selected(s3, config, skipped) for row in batch]
    assert len(found) + sum(skipped.values()) == len(keys) + len(keys[::2])
    assert [key for key, _ in groupby(row.key for row in found)] == [row.key for row in found]


def test_a_page_that_waits_is_bounded() -> None:
    """The queue between the listing and the ledger is what bounds memory."""
    s3 = bucket(*(f"{n:04d}" for n in range(500)), page_size=1)
    batches = list_versions(s3, source(listing_threads=1))
    next(batches)
    time.sleep(0.2)
    assert s3.calls["list"] <= listing.PAGES_AHEAD + 5 + 500  # 500 of them looked for folders
    batches.close()
