"""Revisions are a pure function of what is known and what is listed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.model import ObjectVersion
from ingest.state.numbering import BEFORE_COUNTING, Known, number


def page(*versions: ObjectVersion) -> dict[str, ObjectVersion]:
    return {version.document_id: version for version in versions}


def listed(*numbers: int) -> dict[str, ObjectVersion]:
    ordered = sorted(numbers, reverse=True)
    return page(*(ObjectVersion("b", "k", f"v{n}", "e", 1, float(n), n == ordered[0]) for n in ordered))


def learn(known: dict[str, Known], versions: dict[str, ObjectVersion], all_versions: bool) -> dict[str, Known]:
    """What the ledger knows after it wrote down the numbering."""
    found = number(known, versions, all_versions)
    rows = {name: (row.revision, row.last_modified, row.is_delete_marker) for name, row in known.items()}
    for name, revision in [*found.added.items(), *found.renumbered.items()]:
        rows[name] = (revision, versions[name].last_modified, versions[name].is_delete_marker)
    return {name: Known(name, n, at, name == found.newest, marker) for name, (n, at, marker) in rows.items()}


def test_gap_that_is_found_later_is_numbered_before_counting() -> None:
    known = learn({}, listed(1, 3), all_versions=True)
    known = learn(known, listed(1, 2, 3), all_versions=True)
    assert [known[name].revision for name in listed(1, 2, 3)] == [2, BEFORE_COUNTING, 1]


def test_unversioned_object_touched_without_change_keeps_its_revision() -> None:
    def at(second: float) -> dict[str, ObjectVersion]:
        return page(ObjectVersion("b", "k", "null", "same", 1, second))

    known = learn({}, at(1), all_versions=False)
    assert learn(known, at(2), all_versions=False) == known


@given(
    pages=st.lists(st.sets(st.integers(1, 8), min_size=1).map(lambda numbers: listed(*numbers)), max_size=8),
    all_versions=st.booleans(),
)
def test_latest_listed_is_the_newest_and_only_its_revision_ever_changes(
    pages: list[dict[str, ObjectVersion]], all_versions: bool
) -> None:
    known: dict[str, Known] = {}
    for versions in pages:
        before, known = known, learn(known, versions, all_versions)
        newest = [row for row in known.values() if row.is_newest]
        assert [row.document_id for row in newest] == [next(iter(versions))]
        assert newest[0].revision == max(row.revision for row in known.values())
        assert all(known[name].revision == row.revision for name, row in before.items() if not known[name].is_newest)
        assert learn(known, versions, all_versions) == known
        counted = [row.revision for row in known.values() if row.revision != BEFORE_COUNTING]
        assert len(counted) == len(set(counted))
