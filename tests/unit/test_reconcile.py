"""The plan turns what is found into what is expected, whatever was found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.reconcile import Plan, reconcile

IDS = st.sampled_from("abcdefgh")
HASHES = st.sampled_from("xyz")


@given(
    expected=st.dictionaries(IDS, HASHES),
    found=st.dictionaries(IDS, st.tuples(HASHES, st.integers(1, 9))),
)
def test_carrying_the_plan_out_gives_exactly_what_is_expected(
    expected: dict[str, str], found: dict[str, tuple[str, int]]
) -> None:
    plan = reconcile(expected, found)
    after = {chunk_id: content for chunk_id, (content, _) in found.items()}
    for chunk_id, revision in plan.delete:
        assert revision == found[chunk_id][1]
        del after[chunk_id]
    after |= {chunk_id: expected[chunk_id] for chunk_id in plan.write}
    assert after == expected
    assert set(plan.keep) | set(plan.write) == set(expected)
    assert not set(plan.keep) & set(plan.write)
    assert all(found[chunk_id][0] == expected[chunk_id] for chunk_id in plan.keep)


@given(expected=st.dictionaries(IDS, HASHES))
def test_a_second_plan_has_nothing_left_to_do(expected: dict[str, str]) -> None:
    plan = reconcile(expected, {chunk_id: (content, 1) for chunk_id, content in expected.items()})
    assert plan.is_empty
    assert plan.keep == tuple(sorted(expected))


def test_a_shrunk_document_loses_its_tail() -> None:
    found = {"a": ("x", 3), "b": ("x", 3), "c": ("x", 2)}
    assert reconcile({"a": "x", "b": "y"}, found) == Plan(("a",), ("b",), (("c", 2),))


def test_nothing_expected_deletes_all() -> None:
    assert reconcile({}, {"b": ("x", 1), "a": ("x", 2)}).delete == (("a", 2), ("b", 1))
