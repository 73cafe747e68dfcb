"""What "failed" means: every reason, every error, and how long something is tried again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import cycle

import pytest
from botocore import exceptions as botocore_errors
from hypothesis import given
from hypothesis import strategies as st

from ingest import errors
from ingest.errors import (
    ConfigError,
    EmbedError,
    IngestError,
    ParseError,
    PreflightError,
    SourceError,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
    UnitError,
)
from ingest.failure import REASONS, Backoff, Breaker, classify, end_state, failure, with_retries
from ingest.model import Branch, State
from ingest.source.s3 import translated

BRANCHES = {
    Branch.POISON: {
        "password_required", "not_a_pdf", "truncated", "empty_file", "unsupported_type", "zip_bomb", "too_large",
        "corrupt_file", "macro_only", "external_content_only", "version_gone",
    },
    Branch.HUMAN: {"no_text", "no_ocr_engine", "unmapped_glyphs", "garbled_text", "reversed_text"},
    Branch.DEGRADE: {
        "timeout", "engine_crashed", "out_of_memory", "pages_missing", "empty_segment", "bad_vector",
        "mapping_rejected", "chunk_too_large", "embed_failed", "actor_died",
    },
    Branch.TRANSIENT: {
        "source_unavailable", "index_unavailable", "index_throttled", "embed_unavailable", "chunks_missing",
        "internal_error", "archived",
    },
    Branch.CAPACITY: {"capacity"},
}  # fmt: skip


@pytest.mark.parametrize(("branch", "slugs"), BRANCHES.items())
def test_a_reason_takes_its_branch(branch: Branch, slugs: set[str]) -> None:
    assert {failure(slug).branch for slug in slugs} == {branch}


def test_every_reason_of_the_table_has_an_expected_branch() -> None:
    """A new reason has to be put into a branch here too, by somebody who thought about it."""
    assert set(REASONS) == set().union(*BRANCHES.values())


@pytest.mark.parametrize("slug", REASONS)
def test_a_reason_has_a_sentence_for_a_person(slug: str) -> None:
    sentence = REASONS[slug].sentence
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert "_" not in sentence


def test_the_detail_stands_behind_the_sentence() -> None:
    assert failure("too_large", "600 MiB").sentence == "The file is over the configured limit. (600 MiB)"
    assert failure("too_large").sentence == "The file is over the configured limit."


# ---------------------------------------------------------------- errors

# Each error with the reason that a unit gets which meets it.
ERRORS: list[tuple[Exception, str]] = [
    (IngestError("x"), "internal_error"),
    (ConfigError("x"), "internal_error"),
    (PreflightError("x"), "internal_error"),
    (UnitError("timeout", "x"), "timeout"),
    (SourceError("version_gone", "x"), "version_gone"),
    (ParseError("not_a_pdf", "x"), "not_a_pdf"),
    (EmbedError("bad_vector", "x"), "bad_vector"),
    (StoreError("x"), "internal_error"),
    (StoreThrottled("x", 3.0), "index_throttled"),
    (StoreUnavailable("x"), "index_unavailable"),
    (StoreRefused("x"), "internal_error"),
    (KeyError("x"), "internal_error"),
    (MemoryError("x"), "internal_error"),
]


@pytest.mark.parametrize(("error", "reason"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_is_classified(error: Exception, reason: str) -> None:
    found = classify(error)
    assert found.reason == reason
    assert found.branch is REASONS[reason].branch
    assert "x" in found.sentence


def tree(root: type[IngestError]) -> Iterator[type[IngestError]]:
    """The errors that others may catch; a module may have a narrower one for itself."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def test_no_error_of_the_tree_was_forgotten() -> None:
    assert {type(error) for error, _ in ERRORS} >= set(tree(IngestError))


def test_the_docstring_draws_every_error_of_the_tree() -> None:
    assert [name for one in tree(IngestError) if (name := one.__name__) not in (errors.__doc__ or "")] == []


def test_a_reason_that_an_engine_made_up_is_an_internal_error_and_not_another_crash() -> None:
    found = classify(ParseError("my_own_reason", "page 3"))
    assert found.reason == "internal_error"
    assert "my_own_reason: page 3" in found.sentence


@pytest.mark.parametrize(("error", "reason"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_crosses_a_process_whole(error: Exception, reason: str) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.__dict__ == error.__dict__
    assert classify(back).reason == reason


@pytest.mark.parametrize(
    ("slug", "state"),
    [
        ("not_a_pdf", State.UNSUPPORTED),
        ("no_text", State.NEEDS_REVIEW),
        ("timeout", State.FAILED),
        ("internal_error", State.FAILED),
    ],
)
def test_a_document_with_nothing_to_serve_ends_by_its_branch(slug: str, state: State) -> None:
    assert end_state(failure(slug)) is state


# ---------------------------------------------------------------- S3

GONE = ("NoSuchKey", "NoSuchVersion", "404", "NotFound", "MethodNotAllowed", "PreconditionFailed", "412")
REFUSED = ("AccessDenied", "403", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
UNAVAILABLE = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "500", "503", "SomethingNew", "")


def answer(code: str) -> botocore_errors.ClientError:
    return botocore_errors.ClientError({"Error": {"Code": code, "Message": "m"}}, "GetObject")


def raised(error: BaseException) -> BaseException:
    with pytest.raises(IngestError) as caught, translated("s3://b/k"):
        raise error
    assert "s3://b/k" in str(caught.value)
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize("code", GONE)
def test_a_version_that_s3_does_not_have_is_gone(code: str) -> None:
    error = raised(answer(code))
    assert isinstance(error, SourceError)
    assert error.reason == "version_gone"


def test_an_archived_object_has_a_reason_of_its_own() -> None:
    error = raised(answer("InvalidObjectState"))
    assert isinstance(error, SourceError)
    assert error.reason == "archived"
    assert classify(error).branch is Branch.TRANSIENT  # the next run sees whether it was restored


@pytest.mark.parametrize("code", REFUSED)
def test_missing_rights_and_buckets_are_refusals_that_say_so(code: str) -> None:
    error = raised(answer(code))
    assert isinstance(error, StoreRefused)
    assert code in str(error)
    assert "rights" in str(error)


@pytest.mark.parametrize("code", UNAVAILABLE)
def test_whatever_else_s3_answers_may_pass_later(code: str) -> None:
    assert isinstance(raised(answer(code)), StoreUnavailable)


def foreign() -> list[type[botocore_errors.BotoCoreError]]:
    kinds = (kind for kind in vars(botocore_errors).values() if isinstance(kind, type))
    return [kind for kind in kinds if issubclass(kind, botocore_errors.BotoCoreError)]


@pytest.mark.parametrize("kind", foreign(), ids=lambda kind: kind.__name__)
def test_every_error_of_the_client_itself_is_translated(kind: type[botocore_errors.BotoCoreError]) -> None:
    assert isinstance(raised(kind.__new__(kind)), StoreUnavailable)


def test_an_error_of_our_own_passes_untouched() -> None:
    with pytest.raises(KeyError), translated("s3://b/k"):
        raise KeyError("ours")


# ---------------------------------------------------------------- retries


def test_the_bound_doubles_up_to_the_cap() -> None:
    pauses = list(Backoff(base_s=1, cap_s=8, budget_s=40).pauses(draw=lambda: 1.0))
    assert pauses == [1, 2, 4, 8, 8, 8, 8]  # 39 of 40; another 8 would pass it


def test_jitter_takes_any_part_of_the_bound() -> None:
    draws = iter([0.0, 0.5, 1.0, 0.25])
    pauses = Backoff(base_s=1, cap_s=100, budget_s=1000).pauses(draw=lambda: next(draws))
    assert [next(pauses) for _ in range(4)] == [0.0, 1.0, 4.0, 2.0]


@given(st.lists(st.floats(0.1, 1), min_size=1), st.floats(0, 20), st.floats(0.1, 10))
def test_pauses_never_pass_budget_or_cap(draws: list[float], budget_s: float, cap_s: float) -> None:
    drawn = cycle(draws)
    pauses = list(Backoff(base_s=0.1, cap_s=cap_s, budget_s=budget_s).pauses(draw=lambda: next(drawn)))
    assert sum(pauses) <= budget_s
    assert all(0 <= pause <= cap_s for pause in pauses)


class Flaky:
    """Fails with each error in turn, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


def test_a_call_is_repeated_until_it_passes() -> None:
    slept: list[float] = []
    call = Flaky(StoreUnavailable("a"), StoreThrottled("b"), StoreUnavailable("c"))
    assert with_retries(call, Backoff(base_s=0.1), slept.append) == "answer"
    assert (call.calls, len(slept)) == (4, 3)


def test_what_the_server_asks_for_is_waited_at_least() -> None:
    slept: list[float] = []
    with_retries(Flaky(StoreThrottled("slow down", 7.5)), Backoff(base_s=0.1), slept.append)
    assert slept == [7.5]


def test_without_a_budget_there_is_one_call() -> None:
    call = Flaky(*[StoreUnavailable("still")] * 3)
    with pytest.raises(StoreUnavailable):
        with_retries(call, Backoff(budget_s=0), lambda _: pytest.fail("slept"))
    assert call.calls == 1


def test_when_the_budget_is_spent_the_last_error_is_raised() -> None:
    slept: list[float] = []
    call = Flaky(*[StoreUnavailable("still")] * 10_000)
    with pytest.raises(StoreUnavailable, match="still"):
        with_retries(call, Backoff(base_s=1, cap_s=4, budget_s=30), slept.append)
    assert sum(slept) <= 30
    assert call.calls == len(slept) + 1


def test_the_calls_own_time_counts_against_the_budget() -> None:
    now = [0.0]

    def hangs() -> str:
        now[0] += 90
        raise StoreUnavailable("no answer")

    with pytest.raises(StoreUnavailable, match="no answer"):
        with_retries(hangs, Backoff(base_s=0.1, budget_s=300), lambda _: None, lambda: now[0])
    assert now[0] == 360  # the last call begins inside the budget


def test_a_server_that_asks_for_an_hour_is_asked_again_after_the_longest_pause() -> None:
    slept: list[float] = []
    with_retries(Flaky(StoreThrottled("slow down", 3600)), Backoff(base_s=0.1, cap_s=60), slept.append)
    assert slept == [60]


def test_a_refusal_is_not_tried_again() -> None:
    call = Flaky(StoreRefused("no"))
    with pytest.raises(StoreRefused):
        with_retries(call, Backoff(), lambda _: pytest.fail("slept"))
    assert call.calls == 1


# ---------------------------------------------------------------- the breaker


def tripped(at: float = 0.0) -> Breaker:
    breaker = Breaker(threshold=3, cool_s=1.0, cap_s=30.0)
    for _ in range(3):
        assert breaker.wait(at) == 0
        breaker.failed(at)
    return breaker


def test_nobody_calls_a_service_that_did_not_answer_three_times_in_a_row() -> None:
    breaker = tripped(at=100.0)
    assert breaker.wait(100.0) == 1.0
    assert breaker.wait(100.9) == pytest.approx(0.1)


def test_an_answer_in_between_begins_the_count_again() -> None:
    breaker = Breaker(threshold=3)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.passed()
    assert breaker.wait(0.0) == 0


def test_after_the_pause_one_caller_tries_and_the_others_wait_for_that() -> None:
    breaker = tripped()
    assert [breaker.wait(1.0) == 0 for _ in range(4)] == [True, False, False, False]
    breaker.passed()
    assert [breaker.wait(1.0) for _ in range(4)] == [0, 0, 0, 0]


def test_pauses_grow_up_to_their_cap() -> None:
    breaker, now, pauses = tripped(), 0.0, []
    for _ in range(8):
        pauses.append(breaker.wait(now))
        now += pauses[-1]
        assert breaker.wait(now) == 0
        breaker.failed(now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_caller_that_died_while_it_tried_holds_nobody_up_for_ever() -> None:
    breaker = tripped()
    assert breaker.wait(1.0) == 0
    assert breaker.wait(2.5) == 0


def test_calls_go_through_the_breaker_and_wait_while_it_is_open() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def down() -> None:
        raise StoreUnavailable("nobody there")

    breaker = Breaker()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            breaker.through(down, sleep, lambda: now[0])
    assert slept == []
    assert breaker.through(lambda: 7, sleep, lambda: now[0]) == 7
    assert slept == [1.0]
    assert breaker.through(lambda: 8, sleep, lambda: now[0]) == 8
    assert slept == [1.0]
