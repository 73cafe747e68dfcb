from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.parse import LADDERS
from ingest.triage import lane, plan


@given(st.integers(0, 3000), st.integers(10, 25))
def test_ranges_are_clamped_and_cover_every_page_once(pages: int, size: int) -> None:
    ranges = plan(pages, size)
    assert [page for first, last in ranges for page in range(first, last + 1)] == list(range(1, pages + 1))
    assert all(1 <= last - first + 1 <= size for first, last in ranges)


def test_the_last_range_holds_what_is_left() -> None:
    assert plan(26, 25) == ((1, 25), (26, 26))
    assert plan(25, 25) == ((1, 25),)
    assert plan(24, 12) == ((1, 12), (13, 24))
    assert plan(0, 20) == ()


def test_every_format_that_can_be_read_has_a_lane() -> None:
    assert {lane(kind) for kind in LADDERS} == {"plain"}
