"""Redrive: which failed units are meant, and that nothing else is done again."""

from __future__ import annotations

import time

import pytest

from ingest.failure import failure
from ingest.model import Branch, ChunkFailure, State
from ingest.state import ConstructRecord, Ledger, Operator, Selection, Settlement, Unit, Verified
from tests.ledger_steps import GEN, LATEST, PARSER, admitted, open_segments, plan_of, ready, redriven, state_of, version


def partial(ledger: Ledger, name: str, *fates: Settlement) -> None:
    """A document that serves what its segments gave, these being the first ones."""
    ledger.plan(GEN, PARSER, [plan_of(name, 4)])
    rest = [Settlement(name, n, artifact=f"a/{n}") for n in range(len(fates), 4)]
    ledger.settle(GEN, PARSER, [*fates, *rest])
    ledger.record_chunks(GEN, ConstructRecord(name, 5))
    assert ledger.verified(GEN, [Verified(name, 5)]) == {name: State.PARTIAL}


def units(ledger: Ledger, selection: Selection | None = None) -> list[Unit]:
    return [unit for page in Operator(ledger).units(GEN, selection or Selection()) for unit in page]


def test_each_failed_unit_is_listed_with_its_place_and_reason(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    pages = ((25, failure("timeout")), (31, failure("engine_crashed")))
    partial(
        ledger,
        name,
        Settlement(name, 0, failure("out_of_memory")),
        Settlement(name, 1, artifact="a/1", failed_pages=pages),
    )
    ledger.bury(GEN, [ChunkFailure("c1", name, "embed", failure("bad_vector"))])
    found = units(ledger)
    assert [(u.kind, u.segment, u.page_from, u.page_to, u.failure.reason) for u in found] == [
        ("segment", 0, 1, 20, "out_of_memory"),
        ("page", 1, 25, 25, "timeout"),
        ("page", 1, 31, 31, "engine_crashed"),
        ("chunk", None, None, None, "bad_vector"),
    ]
    assert {(u.document_id, u.key, u.version, u.state) for u in found} == {(name, "a.pdf", "v1", State.PARTIAL)}


def test_a_document_that_failed_as_a_whole_is_one_unit(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.end(GEN, document.document_id, State.UNSUPPORTED, failure("password_required"))
    assert units(ledger) == []
    (unit,) = units(ledger, Selection(states=(State.UNSUPPORTED,)))
    assert (unit.kind, unit.failure.reason, unit.segment) == ("document", "password_required", None)
    assert redriven(ledger, Selection(states=(State.UNSUPPORTED,))) == 1
    assert open_segments(ledger, document.document_id) == ()
    assert ledger.queued(GEN) == 1


def test_only_the_meant_segments_are_open_again(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    name = document.document_id
    partial(
        ledger,
        name,
        Settlement(name, 0, failure("timeout")),
        Settlement(name, 1, failure("source_unavailable")),
        Settlement(name, 2, artifact="a/2", failed_pages=((45, failure("timeout")),)),
    )
    assert redriven(ledger, Selection(reasons=("timeout",))) == 1
    assert open_segments(ledger, name) == (0, 2)
    rows = ledger.segments(PARSER, name)
    assert [(row.state, row.edition, row.artifact) for row in rows] == [
        ("open", 1, ""), ("failed", 0, ""), ("open", 1, "a/2"), ("parsed", 0, "a/3"),
    ]  # fmt: skip
    assert rows[2].failed_pages == ((45, failure("timeout")),), "what of it is to be read again"
    assert sorted(row.ordinal for row in rows if row.ordinal) == [1, 2]


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        (Selection(), {"a.pdf", "b.pdf"}),
        (Selection(states=(State.PARTIAL,)), {"a.pdf"}),
        (Selection(states=(State.FAILED,)), {"b.pdf"}),
        (Selection(branches=(Branch.TRANSIENT,)), {"b.pdf"}),
        (Selection(branches=(Branch.DEGRADE,)), {"a.pdf"}),
        (Selection(reasons=("timeout", "no_text")), {"a.pdf"}),
        (Selection(keys=("b.pdf",)), {"b.pdf"}),
        (Selection(prefix="a"), {"a.pdf"}),
        (Selection(prefix="_"), set()),
        (Selection(segments=(0,)), {"a.pdf"}),
        (Selection(segments=(3,)), set()),
        (Selection(ended_since=time.time() + 3600), set()),
    ],
)
def test_filters_narrow_what_is_meant(ledger: Ledger, selection: Selection, keys: set[str]) -> None:
    one, two, fine = admitted(ledger, *(version(f"{n}.pdf", 1) for n in "abc"))
    named = {d.key: d for d in (one, two, fine)}
    partial(ledger, named["a.pdf"].document_id, Settlement(named["a.pdf"].document_id, 0, failure("timeout")))
    ledger.end(GEN, named["b.pdf"].document_id, State.FAILED, failure("index_unavailable"))
    ready(ledger, [named["c.pdf"]])
    assert {unit.key for unit in units(ledger, selection)} == keys
    assert redriven(ledger, selection) == len(keys)
    assert ledger.queued(GEN) == len(keys)
    assert state_of(ledger, named["c.pdf"].document_id) is State.READY


def test_the_run_works_on_what_it_redrives_and_on_nothing_else(ledger: Ledger) -> None:
    lost, _ = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ledger.end(GEN, lost.document_id, State.FAILED, failure("index_unavailable"))
    ledger.admit(GEN, [version("c.pdf", 1)], LATEST)
    assert redriven(ledger, run_id="again") == 1
    taken = ledger.take(GEN, "again", 10, 60, listed_by="again")
    assert [document.document_id for document in taken] == [lost.document_id]
    assert taken[0].attempt == 2
    assert ledger.queued(GEN) == 1


def test_many_documents_come_page_by_page(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.state.orders.DOCUMENTS_AT_ONCE", 3)
    documents = admitted(ledger, *(version(f"{n}.pdf", 1) for n in range(7)))
    for document in documents:
        ledger.end(GEN, document.document_id, State.FAILED, failure("chunks_missing"))
    pages = list(Operator(ledger).units(GEN, Selection()))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert redriven(ledger) == 7
