"""An artifact says the same as the segment that was stored, and what stands is never overwritten."""

from __future__ import annotations

import gzip
from dataclasses import fields, replace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given, settings

from ingest import artifacts
from ingest.artifacts import Artifacts
from ingest.config import ArtifactConfig
from ingest.errors import StoreRefused
from ingest.failure import classify, failure
from ingest.model import Block, Page, ParsedSegment
from tests.fake_s3 import FakeS3, refused
from tests.strategies import PARSED_SEGMENTS

CONFIG = ArtifactConfig(bucket="b", prefix="kept/")
ID = "ab" + "0" * 62
SEGMENT = ParsedSegment(ID, 3, 41, 60, (Page(41, (Block("text", "Grüße, 日本"),)),), "pymupdf", "parse-1")


def stored(s3: FakeS3, key: str) -> ParsedSegment:
    """As another process reads it, which remembers nothing."""
    return Artifacts(s3, CONFIG).get(key)


@given(PARSED_SEGMENTS)
@settings(deadline=None)
def test_what_is_stored_comes_back_equal(segment: ParsedSegment) -> None:
    s3 = FakeS3()
    key, _ = Artifacts(s3, CONFIG).put(segment)
    assert stored(s3, key) == segment


def test_every_field_comes_back_in_its_type() -> None:
    full = replace(
        SEGMENT,
        pages=(Page(41, (Block("heading", "t", 2, (1.5, 2.0, 3.0, 4.0), True),), 595.0, 842.0, 0.5, ("noted",)),),
        title="Title",
        outline=((1, "Chapter", 41),),
        failed_pages=((42, failure("timeout")),),
        repairs=7,
        edition=2,
    )
    assert [f.name for f in fields(full) if getattr(full, f.name) == f.default] == []
    s3 = FakeS3()
    back = stored(s3, Artifacts(s3, CONFIG).put(full)[0])
    assert back == full
    assert hash(back) == hash(full)  # tuples all the way down
    assert type(back.failed_pages[0][1].branch) is type(full.failed_pages[0][1].branch)


def test_the_key_tells_parser_document_number_and_pages() -> None:
    key = Artifacts(FakeS3(), CONFIG).key("parse-1", ID, 3, (41, 60))
    assert key == f"kept/parse-1/ab/{ID}/00003-41-60.json.gz"


def test_a_repeat_leaves_what_stands() -> None:
    s3 = FakeS3()
    key, _ = Artifacts(s3, CONFIG).put(SEGMENT)
    assert Artifacts(s3, CONFIG).put(replace(SEGMENT, engine="another")) == (key, SEGMENT)
    assert stored(s3, key) == SEGMENT
    assert len(s3.keys[key]) == 1


def test_who_came_second_reads_what_the_first_one_stored() -> None:
    """Else the chunks of this run would differ from those of a later re-chunk."""
    s3 = FakeS3()
    Artifacts(s3, CONFIG).put(SEGMENT)
    second = Artifacts(s3, CONFIG)
    key, stands = second.put(replace(SEGMENT, engine="another"))
    assert stands == SEGMENT
    assert second.get(key) == SEGMENT


def test_equal_segments_give_equal_bytes() -> None:
    bodies = []
    for _ in range(2):
        s3 = FakeS3()
        bodies.append(s3.keys[Artifacts(s3, CONFIG).put(SEGMENT)[0]][0].body)
    assert bodies[0] == bodies[1]
    assert b"parse-1" in gzip.decompress(bodies[0] or b"")


def test_the_closer_reads_its_own_segments_without_asking() -> None:
    s3 = FakeS3()
    kept = Artifacts(s3, CONFIG)
    assert kept.get(kept.put(SEGMENT)[0]) == SEGMENT
    assert s3.calls["get"] == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "KEPT_BYTES", 500)
    s3 = FakeS3()
    kept = Artifacts(s3, CONFIG)
    keys = [kept.put(replace(SEGMENT, number=number))[0] for number in range(10)]
    assert [kept.get(key).number for key in keys] == list(range(10))
    assert 5 <= s3.calls["get"] < 10  # the newest few came from memory


def test_one_too_large_to_remember_is_stored_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "KEPT_BYTES", 1)
    s3 = FakeS3()
    kept = Artifacts(s3, CONFIG)
    assert kept.get(kept.put(SEGMENT)[0]) == SEGMENT


class Down(FakeS3):
    """Answers nothing but ``error``."""

    error: Exception

    def put_object(self, **_: Any) -> dict[str, str]:
        raise self.error

    def get_object(self, **_: Any) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        refused("SlowDown", 503, "PutObject"),
        refused("NoSuchKey", 404, "GetObject"),
        EndpointConnectionError(endpoint_url="http://s3"),
    ],
    ids=str,
)
def test_a_store_that_fails_is_told_as_the_object_store_and_not_as_the_index(error: Exception) -> None:
    down = Down()
    down.error = error
    kept = Artifacts(down, CONFIG)
    for call in (lambda: kept.put(SEGMENT), lambda: kept.get("kept/key")):
        with pytest.raises(Exception, match="s3://b/kept/") as caught:
            call()
        assert classify(caught.value).reason == "source_unavailable"


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("ExpiredToken", 400), ("NoSuchBucket", 404)])
def test_a_store_that_refuses_stops_the_run_and_blames_no_segment(code: str, status: int) -> None:
    down = Down()
    down.error = refused(code, status, "PutObject")
    kept = Artifacts(down, CONFIG)
    for call in (lambda: kept.put(SEGMENT), lambda: kept.get("kept/key"), lambda: kept.find("kept/key")):
        with pytest.raises(StoreRefused, match=f"s3://b/kept/.*{code}"):
            call()


def test_what_is_not_there_is_not_found_and_what_can_not_be_asked_is_told() -> None:
    s3 = FakeS3()
    assert Artifacts(s3, CONFIG).find("kept/none") is None
    key, _ = Artifacts(s3, CONFIG).put(SEGMENT)
    assert Artifacts(s3, CONFIG).find(key) == SEGMENT
    down = Down()
    down.error = refused("SlowDown", 503, "GetObject")
    with pytest.raises(Exception, match="SlowDown"):
        Artifacts(down, CONFIG).find(key)


def test_what_was_read_again_stands_under_a_key_of_its_own() -> None:
    s3 = FakeS3()
    store = Artifacts(s3, CONFIG)
    first, _ = store.put(SEGMENT)
    key, _ = store.put(replace(SEGMENT, edition=2))
    assert key == first.replace(".json.gz", ".2.json.gz")
    assert store.get(first) == SEGMENT
