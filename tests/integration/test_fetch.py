"""Bytes of versions from before versioning, and of archived objects, on a real S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.errors import SourceError
from ingest.model import Document, document_id, version_of
from ingest.source.fetch import VersionCache


def versioning(client: Any, bucket: str, status: str) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


def put(client: Any, bucket: str, body: bytes, **options: Any) -> Document:
    """The version that this upload made, as the listing names it."""
    answer = client.put_object(Bucket=bucket, Key="k", Body=body, **options)
    version_id = answer.get("VersionId", "null")
    version = version_of(version_id, answer["ETag"])
    return Document(document_id(bucket, "k", version), bucket, "k", version, version_id, 1, len(body))


def test_the_version_of_a_bucket_that_never_had_versioning_is_read(client: Any, bucket: str, tmp_path: Path) -> None:
    assert VersionCache(client, tmp_path).path(put(client, bucket, b"one")).read_bytes() == b"one"


def test_the_version_from_before_versioning_is_read_below_newer_ones(client: Any, bucket: str, tmp_path: Path) -> None:
    first = put(client, bucket, b"one")
    versioning(client, bucket, "Enabled")
    second = put(client, bucket, b"two")
    client.delete_object(Bucket=bucket, Key="k")
    cache = VersionCache(client, tmp_path)
    assert (cache.path(first).read_bytes(), cache.path(second).read_bytes()) == (b"one", b"two")


def test_the_null_version_of_a_suspended_bucket_is_pinned_by_its_content(
    client: Any, bucket: str, tmp_path: Path
) -> None:
    first = put(client, bucket, b"one")
    versioning(client, bucket, "Enabled")
    put(client, bucket, b"two")
    versioning(client, bucket, "Suspended")
    newest = put(client, bucket, b"three")
    cache = VersionCache(client, tmp_path)
    assert cache.path(newest).read_bytes() == b"three"
    with pytest.raises(SourceError) as caught:
        cache.path(first)
    assert caught.value.reason == "version_gone"


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
def test_an_archived_object_says_so(client: Any, bucket: str, tmp_path: Path, storage_class: str) -> None:
    document = put(client, bucket, b"one", StorageClass=storage_class)
    with pytest.raises(SourceError) as caught:
        VersionCache(client, tmp_path).path(document)
    assert caught.value.reason == "archived"
