"""Fan-in: plans stay, ordinals freeze, and exactly one segment closes a document, however calls repeat."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.errors import StoreError
from ingest.failure import failure
from ingest.model import State
from ingest.state import Ledger, Plan, Settled, Settlement
from tests.ledger_steps import GEN, PARSER, admitted, open_segments, plan_of, settle_all, state_of, version


def test_plan_moves_to_parsing_and_is_found_again(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [plan_of(document.document_id, 2)])
    planned = ledger.planned(PARSER, [document.document_id, "unknown"])
    assert list(planned) == [document.document_id]
    found = planned[document.document_id]
    assert (found.format, found.lane, found.pages, found.title) == ("pdf", "plain", 40, "Title")
    assert found.segments == ((1, 20), (21, 40))
    assert found.open_numbers == (0, 1)
    assert state_of(ledger, document.document_id) is State.PARSING


def test_second_plan_changes_nothing(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 3)])
    ledger.settle(GEN, PARSER, [Settlement(name, 1)])
    before, history = ledger.planned(PARSER, [name]), ledger.history(name)
    ledger.plan(GEN, PARSER, [plan_of(name, 1)])
    assert ledger.planned(PARSER, [name]) == before
    assert ledger.history(name) == history


def test_plan_of_another_parser_stands_beside_it(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [plan_of(document.document_id, 3)])
    ledger.plan(GEN, "other", [plan_of(document.document_id, 1)])
    assert len(ledger.segments(PARSER, document.document_id)) == 3
    assert len(ledger.segments("other", document.document_id)) == 1


def test_plan_without_a_segment_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="needs a segment"):
        ledger.plan(GEN, PARSER, [Plan("x", "pdf", "plain", 0, ())])


def test_text_that_postgresql_refuses_is_cleaned(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [Plan(document.document_id, "pdf", "plain", 1, ((1, 1),), "A\x00B\ud800C")])
    pages = ((1, failure("timeout", "nul \x00 and surrogate \udfff")),)
    ledger.settle(GEN, PARSER, [Settlement(document.document_id, 0, failure("timeout", "\x00"), failed_pages=pages)])
    assert ledger.planned(PARSER, [document.document_id])[document.document_id].title == "AB?C"


def test_settlement_is_stored_and_a_repeat_does_not_change_it(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 2)])
    first = Settlement(name, 1, None, "pymupdf", "a/1", ((25, failure("no_text")),), 0.75, 3, 1, 2)
    (answer,) = ledger.settle(GEN, PARSER, [first])
    assert ledger.settle(GEN, PARSER, [Settlement(name, 1, failure("timeout"))]) == [answer]
    assert ledger.planned(PARSER, [name])[name].rows[1].settlement == first
    assert [(row.state, row.ordinal) for row in ledger.segments(PARSER, name)] == [("open", None), ("parsed", 1)]


def test_last_one_to_settle_closes_and_moves_the_document_on(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, 3)])
    answers = ledger.settle(GEN, PARSER, [Settlement(name, 2), Settlement(name, 0)])
    assert [(a.number, a.is_closer) for a in answers] == [(2, False), (0, False)]
    assert state_of(ledger, name) is State.PARSING
    (closing,) = ledger.settle(GEN, PARSER, [Settlement(name, 1, failure("timeout"))])
    assert closing == Settled(name, 1, 3, 3)
    assert state_of(ledger, name) is State.ASSEMBLING
    assert open_segments(ledger, name) == (1,), "a restart goes in with the closing segment"


def test_one_call_settles_segments_of_several_documents(ledger: Ledger) -> None:
    names = [d.document_id for d in admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(3)))]
    ledger.plan(GEN, PARSER, [plan_of(name, 2) for name in names])
    mixed = [Settlement(name, number) for number in (1, 0) for name in names]
    answers = ledger.settle(GEN, PARSER, [*mixed, mixed[0]])
    assert [(a.document_id, a.number) for a in answers] == [(s.document_id, s.number) for s in [*mixed, mixed[0]]]
    assert len({a.document_id for a in answers if a.is_closer}) == 3
    assert answers[0] == answers[-1]


def test_segment_that_was_never_planned_is_an_error(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [plan_of(document.document_id, 1)])
    with pytest.raises(StoreError, match="never planned"):
        ledger.settle(GEN, PARSER, [Settlement(document.document_id, 7)])


def test_settling_nothing_is_nothing(ledger: Ledger) -> None:
    assert ledger.settle(GEN, PARSER, []) == []


# A call settles some segments; a repeated one is a call whose answer was lost in a crash. Four threads share the calls.
CALLS = st.integers(1, 9).flatmap(
    lambda total: st.tuples(
        st.just(total),
        st.lists(st.lists(st.integers(0, total - 1), min_size=1, max_size=4), max_size=12),
        st.permutations(range(total)),
    )
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=CALLS)
def test_exactly_one_segment_closes_and_always_the_same(
    ledger: Ledger, names: count[int], case: tuple[int, list[list[int]], Sequence[int]]
) -> None:
    total, calls, rest = case
    (document,) = admitted(ledger, version(f"{next(names)}.pdf", 1))
    name = document.document_id
    ledger.plan(GEN, PARSER, [plan_of(name, total)])

    def call(numbers: Sequence[int]) -> list[Settled]:
        return ledger.settle(GEN, PARSER, [Settlement(name, number) for number in numbers])

    with ThreadPoolExecutor(4) as pool:
        answers = [a for part in pool.map(call, [*calls, *([n] for n in rest), *calls]) for a in part]
    answers += settle_all(ledger, name, total)
    ordinals: dict[int, set[int]] = {}
    for answer in answers:
        ordinals.setdefault(answer.number, set()).add(answer.ordinal)
    assert all(len(seen) == 1 for seen in ordinals.values()), "a repeat answers as the first call did"
    assert sorted(ordinal for seen in ordinals.values() for ordinal in seen) == list(range(1, total + 1))
    assert len({answer.number for answer in answers if answer.is_closer}) == 1
    assert state_of(ledger, name) is State.ASSEMBLING


@pytest.fixture
def names() -> count[int]:
    return count()
