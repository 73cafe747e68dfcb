"""The bytes of exactly one version, fetched once a node, and a folder that does not grow for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, IncompleteReadError

from ingest.errors import ParseError, SourceError, StoreRefused
from ingest.model import Document, document_id, version_of
from ingest.source.fetch import GRACE_S, VersionCache
from tests.fake_s3 import FakeS3, refused


def put(s3: FakeS3, key: str, body: bytes) -> Document:
    """The version that this upload made."""
    answer = s3.put_object(Bucket="b", Key=key, Body=body)
    version = version_of(answer["VersionId"], answer["ETag"])
    return Document(document_id("b", key, version), "b", key, version, answer["VersionId"], 1, len(body))


def reason(call: Callable[[], Any]) -> str:
    with pytest.raises(SourceError) as caught:
        call()
    return caught.value.reason


def old(path: Path, seconds: float = GRACE_S + 60) -> Path:
    """Last used that long ago."""
    at = time.time() - seconds
    os.utime(path, (at, at))
    return path


# ---------------------------------------------------------------- which bytes


def test_a_version_is_fetched_although_a_newer_one_is_there(tmp_path: Path) -> None:
    s3 = FakeS3()
    first, second = put(s3, "k", b"one"), put(s3, "k", b"two")
    cache = VersionCache(s3, tmp_path)
    assert cache.path(first).read_bytes() == b"one"
    assert cache.path(second).read_bytes() == b"two"


def test_a_version_under_a_delete_marker_can_still_be_read(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    s3.delete_object(Bucket="b", Key="k")
    assert VersionCache(s3, tmp_path).path(document).read_bytes() == b"one"


def test_a_version_that_was_removed_is_gone(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    put(s3, "k", b"two")
    s3.remove_version("k", document.version_id)
    assert reason(lambda: VersionCache(s3, tmp_path).path(document)) == "version_gone"


def test_without_versions_the_etag_pins_the_content(tmp_path: Path) -> None:
    s3 = FakeS3(versioned=False)
    document = put(s3, "k", b"one")
    assert document.version.startswith("null:")
    assert VersionCache(s3, tmp_path).path(document).read_bytes() == b"one"


def test_without_versions_overwritten_content_is_gone_and_never_taken_for_the_old(tmp_path: Path) -> None:
    s3 = FakeS3(versioned=False)
    document = put(s3, "k", b"one")
    put(s3, "k", b"two")
    assert reason(lambda: VersionCache(s3, tmp_path).path(document)) == "version_gone"
    assert list(tmp_path.iterdir()) == []


def test_the_version_from_before_versioning_is_read_below_a_newer_one_and_below_a_delete_marker(tmp_path: Path) -> None:
    s3 = FakeS3(versioned=False)
    first = put(s3, "k", b"one")
    s3.versioned = True
    second = put(s3, "k", b"two")
    assert VersionCache(s3, tmp_path / "newer").path(first).read_bytes() == b"one"
    assert VersionCache(s3, tmp_path / "newer").path(second).read_bytes() == b"two"
    s3.delete_object(Bucket="b", Key="k")
    assert VersionCache(s3, tmp_path / "deleted").path(first).read_bytes() == b"one"


def test_the_version_of_a_suspended_bucket_that_was_overwritten_is_gone(tmp_path: Path) -> None:
    s3 = FakeS3()
    versioned = put(s3, "k", b"one")
    s3.versioned = False
    overwritten, newest = put(s3, "k", b"two"), put(s3, "k", b"three")
    assert reason(lambda: VersionCache(s3, tmp_path).path(overwritten)) == "version_gone"
    assert VersionCache(s3, tmp_path).path(newest).read_bytes() == b"three"
    assert VersionCache(s3, tmp_path).path(versioned).read_bytes() == b"one"


def test_a_large_body_comes_whole(tmp_path: Path) -> None:
    s3 = FakeS3()
    body = os.urandom((2 << 20) + 7)
    assert VersionCache(s3, tmp_path).path(put(s3, "k", body)).read_bytes() == body


# ---------------------------------------------------------------- once


def test_a_second_look_asks_s3_nothing(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    cache = VersionCache(s3, tmp_path)
    assert cache.path(document) == cache.path(document)
    assert s3.calls["get"] == 1


def test_actors_of_a_node_share_what_one_of_them_fetched(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    VersionCache(s3, tmp_path).path(document)
    assert VersionCache(s3, tmp_path).path(document).read_bytes() == b"one"
    assert s3.calls["get"] == 1


def test_many_at_once_see_whole_files_only(tmp_path: Path) -> None:
    s3 = FakeS3()
    documents = [put(s3, f"k{n}", bytes([n]) * 300_000) for n in range(4)]
    caches = [VersionCache(s3, tmp_path, max_bytes=600_000) for _ in range(4)]

    def read(number: int) -> bool:
        document = documents[number % 4]
        return caches[number % 3].path(document).read_bytes() == bytes([number % 4]) * 300_000

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))
    assert {path.name for path in tmp_path.iterdir()} == {document.document_id for document in documents}


# ---------------------------------------------------------------- eviction


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    s3 = FakeS3()
    one, two, three = (put(s3, key, b"x" * 100) for key in ("1", "2", "3"))
    cache = VersionCache(s3, tmp_path, max_bytes=250)
    old(cache.path(one), 500)
    old(cache.path(two), 400)
    cache.path(one)  # used again: now the second is the oldest
    cache.path(three)
    assert {path.name for path in tmp_path.iterdir()} == {one.document_id, three.document_id}


def test_as_many_go_as_must_and_no_more(tmp_path: Path) -> None:
    s3 = FakeS3()
    cache = VersionCache(s3, tmp_path, max_bytes=350)
    documents = [put(s3, str(n), b"x" * 100) for n in range(6)]
    for age, document in zip(range(900, 300, -100), documents, strict=True):
        old(cache.path(document), age)
    last = put(s3, "last", b"x" * 100)
    cache.path(last)
    assert {path.name for path in tmp_path.iterdir()} == {d.document_id for d in [*documents[-2:], last]}


def test_what_was_used_a_moment_ago_stays_although_there_is_no_room(tmp_path: Path) -> None:
    s3 = FakeS3()
    cache = VersionCache(s3, tmp_path, max_bytes=10)
    paths = [cache.path(put(s3, str(n), b"x" * 100)) for n in range(3)]
    assert all(path.exists() for path in paths)


def test_what_a_killed_actor_left_half_fetched_is_cleared_away(tmp_path: Path) -> None:
    s3 = FakeS3()
    half = tmp_path / "tmphalf"
    half.write_bytes(b"x" * 1000)
    old(half)
    VersionCache(s3, tmp_path, max_bytes=500).path(put(s3, "k", b"one"))
    assert not half.exists()


def test_what_was_evicted_is_fetched_again(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    cache = VersionCache(s3, tmp_path)
    cache.path(document).unlink()
    assert cache.path(document).read_bytes() == b"one"


def test_a_file_that_vanished_before_it_was_opened_is_fetched_once_more(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    tried: list[Path] = []

    def reader(path: str) -> bytes:
        tried.append(Path(path))
        if len(tried) == 1:
            Path(path).unlink()
            raise ParseError("engine_crashed", "no such file")
        return Path(path).read_bytes()

    assert VersionCache(s3, tmp_path).read(document, reader) == b"one"
    assert (len(tried), s3.calls["get"]) == (2, 2)


def test_a_file_that_is_there_and_can_not_be_read_is_tried_once(tmp_path: Path) -> None:
    s3 = FakeS3()
    document = put(s3, "k", b"one")
    tried: list[str] = []

    def reader(path: str) -> bytes:
        tried.append(path)
        raise ParseError("engine_crashed")

    with pytest.raises(ParseError):
        VersionCache(s3, tmp_path).read(document, reader)
    assert len(tried) == 1


def test_the_folder_is_its_owners_alone(tmp_path: Path) -> None:
    VersionCache(FakeS3(), tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


# ---------------------------------------------------------------- when S3 does not answer


class Failing(FakeS3):
    """Raises instead of an answer, or in the middle of the body."""

    error: Exception
    after: bytes | None = None

    def get_object(self, **_: Any) -> dict[str, Any]:
        if self.after is None:
            raise self.error
        return {"Body": self}

    def iter_chunks(self, size: int) -> Any:
        yield self.after
        raise self.error


@pytest.mark.parametrize("after", [None, b"hal"])
@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://s3"),
        IncompleteReadError(actual_bytes=3, expected_bytes=4),
        refused("SlowDown", 503, "GetObject"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_object_store_that_fails_blames_no_document_and_leaves_no_file(
    tmp_path: Path, error: Exception, after: bytes | None
) -> None:
    s3 = Failing()
    document = put(s3, "k", b"half")
    s3.error, s3.after = error, after
    assert reason(lambda: VersionCache(s3, tmp_path).path(document)) == "source_unavailable"
    assert list(tmp_path.iterdir()) == []


def test_an_archived_object_is_its_documents_own_trouble_and_not_an_outage(tmp_path: Path) -> None:
    s3 = Failing()
    document = put(s3, "k", b"one")
    s3.error = refused("InvalidObjectState", 403, "GetObject")
    assert reason(lambda: VersionCache(s3, tmp_path).path(document)) == "archived"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken"])
def test_rights_that_are_missing_stop_the_run_and_blame_no_document(tmp_path: Path, code: str) -> None:
    s3 = Failing()
    document = put(s3, "k", b"one")
    s3.error = refused(code, 403, "GetObject")
    with pytest.raises(StoreRefused, match=code):
        VersionCache(s3, tmp_path).path(document)
    assert list(tmp_path.iterdir()) == []
