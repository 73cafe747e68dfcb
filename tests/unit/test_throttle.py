"""The shared window: how it opens, how it closes, and that it never lets more through."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.index.throttle import HISTORY, Signal, Throttle, Window, wait_turn

CLEAN, CONGESTED, NEUTRAL = Signal.CLEAN, Signal.CONGESTED, Signal.NEUTRAL


def clean(window: Window, times: int) -> Window:
    for _ in range(times):
        window = window.after(CLEAN, window.epoch)
    return window


def test_a_window_starts_with_two_or_with_its_limit() -> None:
    assert Window.start(8).size == 2
    assert Window.start(1).size == 1


def test_a_clean_round_trip_adds_one() -> None:
    assert clean(Window.start(8), 1).size == 2
    assert clean(Window.start(8), 2).size == 3
    assert clean(Window.start(8), 2 + 3).size == 4


def test_congestion_halves_and_begins_the_count_again() -> None:
    window = clean(Window.start(8), 2 + 3 + 4 + 5 + 6)
    assert window.size == 7
    halved = clean(window, 3).after(CONGESTED, 0)
    assert (halved.size, halved.clean, halved.epoch) == (3, 0, 1)


def test_requests_that_met_the_same_congestion_halve_once() -> None:
    window = Window(limit=8, size=8)
    for _ in range(8):
        window = window.after(CONGESTED, 0)
    assert window.size == 4


def test_an_answer_from_before_the_decrease_opens_nothing() -> None:
    assert clean(Window(limit=8, size=4, epoch=1), 0).after(CLEAN, 0).clean == 0


def test_a_neutral_answer_changes_nothing() -> None:
    window = Window(limit=8, size=4, clean=2, epoch=3)
    assert window.after(NEUTRAL, 3) == window


@given(limit=st.integers(1, 20), signals=st.lists(st.tuples(st.sampled_from(list(Signal)), st.integers(0, 3))))
def test_a_window_stays_between_one_and_its_limit(limit: int, signals: list[tuple[Signal, int]]) -> None:
    window = Window.start(limit)
    for signal, age in signals:
        window = window.after(signal, max(0, window.epoch - age))
        assert 1 <= window.size <= limit


def test_no_more_tokens_than_the_window_is_wide() -> None:
    gate = Throttle(8)
    first, second = gate.acquire(), gate.acquire()
    assert first
    assert second
    assert first != second
    assert gate.acquire() == 0
    gate.release(first, NEUTRAL)
    assert gate.acquire()
    assert gate.report().peak_in_flight == 2


def test_a_request_knows_whether_it_was_alone() -> None:
    gate = Throttle(8)
    token = gate.acquire()
    assert gate.release(token, NEUTRAL)
    first, second = gate.acquire(), gate.acquire()
    assert not gate.release(first, NEUTRAL)
    assert not gate.release(second, NEUTRAL), "it was not alone at its start"


def test_a_token_of_a_dead_writer_is_free_again_after_its_lease() -> None:
    now = [0.0]
    gate = Throttle(1, lease_s=10, clock=lambda: now[0])
    dead = gate.acquire()
    now[0] = 9.0
    assert gate.acquire() == 0
    now[0] = 10.0
    assert gate.acquire()
    assert not gate.release(dead, CONGESTED)
    assert gate.report().decreases == 0


def test_the_report_tells_how_the_window_moved() -> None:
    now = [100.0]
    gate = Throttle(4, clock=lambda: now[0])
    for signal in (CLEAN, CLEAN, CONGESTED):
        now[0] += 1
        gate.release(gate.acquire(), signal)
    report = gate.report()
    assert report.history == ((0.0, 2), (2.0, 3), (3.0, 1))
    assert (report.limit, report.window, report.decreases, report.requests) == (4, 1, 1, 3)


def test_the_history_does_not_grow_without_bound() -> None:
    gate = Throttle(2)
    for _ in range(HISTORY):
        gate.release(gate.acquire(), CONGESTED)
        gate.release(gate.acquire(), CLEAN)
    assert len(gate.report().history) == HISTORY


def test_waiting_for_a_turn_asks_until_there_is_one() -> None:
    gate = Throttle(1)
    held = gate.acquire()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            gate.release(held, CLEAN)

    assert wait_turn(gate, sleep)
    assert len(pauses) == 3


@pytest.mark.parametrize("limit", [1, 3])
def test_threads_never_hold_more_than_the_limit_together(limit: int) -> None:
    gate, held, most, lock = Throttle(limit), [0], [0], threading.Lock()

    def work() -> None:
        for _ in range(20):
            token = wait_turn(gate, lambda _: time.sleep(0.0005))
            with lock:
                held[0] += 1
                most[0] = max(most[0], held[0])
            time.sleep(0.0005)
            with lock:
                held[0] -= 1
            gate.release(token, CLEAN)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = gate.report()
    assert most[0] == report.peak_in_flight == limit
    assert (report.in_flight, report.requests) == (0, 120)


def test_a_cluster_that_does_not_answer_is_tried_by_one_writer_now_and_then() -> None:
    now = [0.0]
    throttle = Throttle(4, clock=lambda: now[0])
    for _ in range(3):
        throttle.release(throttle.acquire(), Signal.DOWN)
    assert throttle.acquire() == 0
    now[0] = 1.0
    token = throttle.acquire()
    assert token > 0
    assert throttle.acquire() == 0, "one tries, the others wait for that"
    throttle.release(token, CLEAN)
    assert throttle.acquire() > 0
    assert throttle.acquire() > 0
