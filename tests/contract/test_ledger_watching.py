"""What runs and operators tell each other: samples, pauses, and which unit an actor died on."""

from __future__ import annotations

from ingest.model import State
from ingest.state import Ledger, Operator, Sample
from tests.ledger_steps import GEN, PARSER, admitted, plan_of, state_of, version

UNITS = ["parse:a:0", "parse:a:1"]


def test_what_came_through_is_not_known_when_it_is_begun_again(ledger: Ledger) -> None:
    assert ledger.begin("run-1", UNITS) == {}
    ledger.came_through("run-1", UNITS)
    assert ledger.begin("run-1", UNITS) == {}


def test_what_an_actor_died_on_is_known_with_how_often_it_was_alone(ledger: Ledger) -> None:
    ledger.begin("run-1", UNITS)
    assert ledger.begin("run-1", [*UNITS, "parse:b:0"]) == dict.fromkeys(UNITS, 0)
    ledger.begin_alone("run-1", UNITS[1])
    ledger.begin_alone("run-1", UNITS[1])
    assert ledger.begin("run-1", UNITS) == {UNITS[0]: 0, UNITS[1]: 2}
    assert ledger.begin("run-2", UNITS) == {}, "another run's actors say nothing about this one"


def test_what_a_killed_run_was_at_is_blamed_on_nothing(ledger: Ledger) -> None:
    admitted(ledger, version("a.pdf", 1))
    ledger.begin("run-1", UNITS)
    assert ledger.release_dead(lambda owner: False, GEN) == 1
    assert ledger.begin("run-1", UNITS) == {}


def test_the_first_pause_stays_until_it_is_ended(ledger: Ledger) -> None:
    operator = Operator(ledger)
    assert ledger.paused("documents") is None
    assert operator.pause("documents", "ann on laptop", "disk is being swapped")
    assert not operator.pause("documents", "bob", "")
    assert (pause := ledger.paused("documents")) is not None
    assert (pause.who, pause.why) == ("ann on laptop", "disk is being swapped")
    assert ledger.paused("other") is None
    assert operator.resume("documents")
    assert not operator.resume("documents")
    assert ledger.paused("documents") is None


def test_actors_are_told_of_a_stop_and_of_a_pause(ledger: Ledger) -> None:
    ledger.start_run("run-1", "backfill", "o", "c")
    assert ledger.stop_reason("run-1", "documents") == ""
    Operator(ledger).pause("documents", "ann", "")
    assert ledger.stop_reason("run-1", "documents") == "paused"
    assert ledger.stop_reason("run-1") == "", "a pause is no reason to end"
    ledger.stop_run("run-1", "403 from the index")
    assert ledger.stop_reason("run-1", "documents") == "403 from the index"


def test_what_is_given_back_has_used_up_no_try(ledger: Ledger) -> None:
    (document,) = admitted(ledger, version("a.pdf", 1))
    ledger.plan(GEN, PARSER, [plan_of(document.document_id, 2)])
    assert ledger.give_back(GEN, "another") == 0
    for _ in range(5):
        assert ledger.give_back(GEN, "run-1") == 1
        ledger.take(GEN, "run-1", 10, 60)
    assert ledger.requeue(GEN, [document.document_id], max_attempts=2, run_id="run-1") == 1
    assert state_of(ledger, document.document_id) is State.QUEUED


def test_samples_come_back_in_order_from_a_moment_on(ledger: Ledger) -> None:
    for at in (30.0, 10.0, 20.0):
        ledger.add_sample("run-1", Sample(at, {"parse.pages": at}))
    ledger.add_sample("run-1", Sample(10.0, {"parse.pages": 99.0}))
    operator = Operator(ledger)
    assert operator.samples("run-1") == [Sample(at, {"parse.pages": at}) for at in (10.0, 20.0, 30.0)]
    assert [sample.at for sample in operator.samples("run-1", since=20.0)] == [20.0, 30.0]
    assert operator.samples("run-2") == []


def test_of_a_value_that_is_now_the_last_one_is_kept(ledger: Ledger) -> None:
    ledger.add_stats("run-1", {"now.index.window": 4, "peak.index.window": 4, "embed.chunks": 96})
    ledger.add_stats("run-1", {"now.index.window": 2, "peak.index.window": 2, "embed.chunks": 96})
    assert ledger.stats("run-1") == {"now.index.window": 2, "peak.index.window": 4, "embed.chunks": 192}


def test_orphans_are_told_by_state_before_anything_is_done(ledger: Ledger) -> None:
    one, two = admitted(ledger, version("a.pdf", 1), version("b.pdf", 1))
    ledger.advance(GEN, [one.document_id], State.INDEXING)
    operator = Operator(ledger)
    assert operator.orphans(GEN, lambda owner: True) == {}
    assert operator.orphans(GEN, lambda owner: False) == {State.ADMITTED: 1, State.INDEXING: 1}
    assert ledger.counts(GEN) == {State.ADMITTED: 1, State.INDEXING: 1}, two


def test_the_oldest_in_flight_is_named(ledger: Ledger) -> None:
    assert Operator(ledger).oldest(GEN) is None
    (first,) = admitted(ledger, version("a.pdf", 1))
    admitted(ledger, version("b.pdf", 1), run_id="run-2")
    oldest = Operator(ledger).oldest(GEN)
    assert oldest is not None
    assert (oldest.key, oldest.run_id, oldest.state) == (first.key, "run-1", State.ADMITTED)
