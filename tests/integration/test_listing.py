"""Listing and fetching on a real S3 server, and the fake of the unit tests held against it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.config import SourceConfig
from ingest.errors import SourceError, StoreRefused
from ingest.model import Document, ObjectVersion
from ingest.source import s3
from ingest.source.fetch import VersionCache
from ingest.source.listing import list_versions, shards
from tests.fake_s3 import FakeS3

_numbers = itertools.count()
# Puts (+) and deletes (-) in this order: versions over a delete marker, folders, letters that sort by bytes.
STORY = ("+a", "+a", "-a", "+a", "+b/c", "+b/c/d", "+b//", "+é/1", "+é/1", "-é/1", "+\U0001f600", "+z/y/x/w", "+top")


@pytest.fixture
def client(aws_url: str) -> Iterator[Any]:
    opened = s3.connect()
    yield opened
    opened.close()


def made(client: Any, *, versioned: bool = True) -> str:
    """A bucket in which the story happened."""
    name = f"listing-tests-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    if versioned:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    tell(client, name)
    return name


def tell(client: Any, bucket: str) -> None:
    for number, step in enumerate(STORY):
        if step[0] == "+":
            client.put_object(Bucket=bucket, Key=step[1:], Body=b"x" * number)
        else:
            client.delete_object(Bucket=bucket, Key=step[1:])


def listed(client: Any, bucket: str, threads: int = 3) -> dict[str, list[ObjectVersion]]:
    """Rows by key, each key's in the order in which they came."""
    found: dict[str, list[ObjectVersion]] = {}
    for batch in list_versions(client, SourceConfig(bucket=bucket, listing_threads=threads)):
        for row in batch:
            found.setdefault(row.key, []).append(row)
    return found


def essence(rows: list[ObjectVersion]) -> list[tuple[str, int, bool]]:
    """Versions, then markers: S3 lists them apart and tells whole seconds, so within one their order is lost."""
    return [(r.etag, r.size, r.is_latest) for r in sorted(rows, key=lambda r: (not r.is_latest, r.is_delete_marker))]


@pytest.mark.parametrize("threads", [1, 3, 20])
def test_the_fake_lists_as_the_server_does(client: Any, threads: int) -> None:
    bucket, fake = made(client), FakeS3()
    tell(fake, bucket)
    real, faked = listed(client, bucket, threads), listed(fake, bucket, threads)
    assert shards(client, bucket, "", threads) == shards(fake, bucket, "", threads)
    assert {key: essence(rows) for key, rows in real.items()} == {key: essence(rows) for key, rows in faked.items()}
    assert all(rows[0].is_latest for rows in real.values())


def test_without_versions_a_row_has_the_etag_for_a_version(client: Any) -> None:
    rows = listed(client, made(client, versioned=False))
    assert {key: len(found) for key, found in rows.items()} == dict.fromkeys(rows, 1)
    assert all(found[0].version == f"null:{found[0].etag}" for found in rows.values())


def test_a_bucket_that_is_not_there_is_a_refusal(client: Any) -> None:
    with pytest.raises(StoreRefused, match="NoSuchBucket; check the bucket name"):
        listed(client, "no-such-bucket")


# ---------------------------------------------------------------- fetch


def document(row: ObjectVersion) -> Document:
    return Document(row.document_id, row.bucket, row.key, row.version, row.version_id, 1, row.size)


def test_every_listed_version_can_be_fetched_and_is_the_one(client: Any, tmp_path: Path) -> None:
    cache = VersionCache(client, tmp_path)
    rows = [row for found in listed(client, made(client)).values() for row in found if not row.is_delete_marker]
    assert [cache.path(document(row)).stat().st_size for row in rows] == [row.size for row in rows]


def reason(cache: VersionCache, what: Document) -> str:
    with pytest.raises(SourceError) as caught:
        cache.path(what)
    return caught.value.reason


def test_a_removed_version_an_overwritten_one_and_a_removed_key_are_gone(client: Any, tmp_path: Path) -> None:
    cache, bucket = VersionCache(client, tmp_path), made(client)
    row = listed(client, bucket)["a"][0]
    client.delete_object(Bucket=bucket, Key="a", VersionId=row.version_id)
    assert reason(cache, document(row)) == "version_gone"

    plain = made(client, versioned=False)
    rows = listed(client, plain)
    client.put_object(Bucket=plain, Key="top", Body=b"something else")
    client.delete_object(Bucket=plain, Key="b/c")
    assert reason(cache, document(rows["top"][0])) == "version_gone"
    assert reason(cache, document(rows["b/c"][0])) == "version_gone"


def test_a_missing_bucket_stops_the_run_and_blames_no_document(client: Any, tmp_path: Path) -> None:
    row = listed(client, made(client))["a"][0]
    with pytest.raises(StoreRefused, match="check the bucket name"):
        VersionCache(client, tmp_path).path(replace(document(row), bucket="no-such-bucket"))
