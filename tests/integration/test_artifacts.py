"""Artifacts in a real object store: written once, and read back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ingest.artifacts import Artifacts
from ingest.config import ArtifactConfig
from ingest.errors import SourceError, StoreRefused
from ingest.model import ParsedSegment
from tests.strategies import PARSED_SEGMENTS
from tests.unit.test_artifacts import SEGMENT


def opened(client: Any, bucket: str) -> Artifacts:
    """As another process would: it remembers nothing."""
    return Artifacts(client, ArtifactConfig(bucket=bucket))


@given(segment=PARSED_SEGMENTS)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_stored_comes_back_equal(client: Any, bucket: str, segment: ParsedSegment) -> None:
    key, _ = opened(client, bucket).put(segment)
    client.delete_object(Bucket=bucket, Key=key)  # an earlier example may have had the same number
    opened(client, bucket).put(segment)
    assert opened(client, bucket).get(key) == segment


def test_it_is_written_once(client: Any, bucket: str) -> None:
    key, _ = opened(client, bucket).put(SEGMENT)
    before = client.head_object(Bucket=bucket, Key=key)["ETag"]
    assert opened(client, bucket).put(replace(SEGMENT, engine="another")) == (key, SEGMENT)
    assert client.head_object(Bucket=bucket, Key=key)["ETag"] == before
    assert opened(client, bucket).get(key) == SEGMENT


def test_one_that_is_not_there_and_a_bucket_that_is_not_there_are_told(client: Any, bucket: str) -> None:
    with pytest.raises(SourceError, match="NoSuchKey"):
        opened(client, bucket).get("artifacts/none")
    assert opened(client, bucket).find("artifacts/none") is None
    with pytest.raises(StoreRefused, match="NoSuchBucket"):
        opened(client, "no-such-bucket").put(SEGMENT)
