"""Identities: no two things share one, and none ever changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.model import (
    ENDS,
    FORWARD,
    RANK,
    ObjectVersion,
    State,
    chunk_id,
    content_hash,
    digest,
    document_id,
    encode,
    fingerprint,
    key_hash,
    version_of,
)

# Few letters, and those that the encoding itself uses, so that collisions would be found.
PARTS = st.lists(st.text(alphabet="a:,1é", max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_different_parts_never_give_the_same_bytes(one: list[str], other: list[str]) -> None:
    assert (encode(*one) == encode(*other)) == (one == other)


@given(PARTS)
def test_the_parts_can_be_read_back_from_the_bytes(parts: list[str]) -> None:
    raw, found = encode(*parts), []
    while raw:
        size, _, rest = raw.partition(b":")
        found.append(rest[: int(size)].decode())
        assert rest[int(size) : int(size) + 1] == b","
        raw = rest[int(size) + 1 :]
    assert found == parts


def test_a_colon_in_a_key_is_no_border() -> None:
    assert document_id("b", "a:1", "v") != document_id("b", "a", "1:v")
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a", "") != digest("a")


def test_lengths_are_bytes() -> None:
    assert encode("a", "é:,") == b"1:a,4:\xc3\xa9:,,"


# Indices in service hold these ids: another value here means that every index has to be built anew.
@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (
            document_id("bucket", "a/b.pdf", "v1"),
            "479019f5d2adf21dd2c0331eebb76dbdae78a489fd1bb38b1af538906a38438c",
        ),
        (
            chunk_id("bucket", "a/b.pdf", "v1", 7),
            "b5e21297a59ecdf0cd691558bc1e7df723ab95d3657e297a30465e31e6c24386",
        ),
        (key_hash("bucket", "a/b.pdf"), "8498446b3bd220762d2c5c57c82b3297c2a854974483e29396bb7e06fd4e8ddb"),
        (content_hash("h", "t"), "b7e75bb7ee9fd3d9e413556ba38ab31a78c73ec3b1e7c0949c41ea6f7a3704a0"),
        (fingerprint("recursive", "1", {"size": 254, "b": [1, "ü"]}), "recursive-8ed354657848"),
    ],
)
def test_an_identity_stays_what_it_is(identity: str, expected: str) -> None:
    assert identity == expected


def test_a_fingerprint_does_not_depend_on_the_order_of_options() -> None:
    assert fingerprint("n", "1", {"a": 1, "b": 2}) == fingerprint("n", "1", {"b": 2, "a": 1})


def test_name_version_and_every_option_change_a_fingerprint() -> None:
    made = [
        fingerprint("n", "1", {"a": 1}),
        fingerprint("m", "1", {"a": 1}),
        fingerprint("n", "2", {"a": 1}),
        fingerprint("n", "1", {"a": 2}),
        fingerprint("n", "1", {"a": "1"}),
        fingerprint("n", "1", {"a": 1, "b": None}),
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(
    ("version_id", "etag", "expected"),
    [
        ("v1", "abc", "v1"),
        ("null", "abc", "null:abc"),
        (None, "abc", "null:abc"),
        ("", '"abc"', "null:abc"),
        ("null", '"abc-3"', "null:abc-3"),
    ],
)
def test_where_a_bucket_has_no_versions_the_etag_is_the_version(
    version_id: str | None, etag: str, expected: str
) -> None:
    assert version_of(version_id, etag) == expected


def test_two_contents_of_an_unversioned_key_are_two_documents() -> None:
    row = ObjectVersion("b", "k", "null", "e1", 1, 0.0)
    assert row.version == "null:e1"
    assert row.document_id == document_id("b", "k", "null:e1")
    assert row.document_id != replace(row, etag="e2").document_id


def test_a_version_id_hides_the_etag() -> None:
    row = ObjectVersion("b", "k", "v7", "e1", 1, 0.0)
    assert row.document_id == replace(row, etag="e2").document_id


def test_header_and_text_are_apart_in_the_content_hash() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")


def test_every_state_is_on_the_way_or_an_end() -> None:
    assert {*FORWARD, *ENDS} == set(State)
    assert not set(FORWARD) & set(ENDS)


def test_every_end_ranks_behind_every_state_on_the_way() -> None:
    assert [RANK[state] for state in FORWARD] == list(range(len(FORWARD)))
    assert {RANK[state] for state in ENDS} == {len(FORWARD)}
