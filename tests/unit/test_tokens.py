"""Token positions in the embedder's tokenizer."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from ingest.chunk.tokens import PIECE, Tokenizer
from ingest.errors import PreflightError
from tests.documents import bert, byte_level


def test_truncation_and_padding_of_the_file_do_not_count() -> None:
    assert bert().count("word " * 20_000) == 20_000
    assert bert().count("word") == 1


def test_special_tokens_of_the_model_are_two() -> None:
    assert bert().specials == 2


@pytest.mark.parametrize("spelled", ["[SEP]", "[CLS]", "[PAD]", "[MASK]", "<|endoftext|>"])
def test_control_token_in_a_text_is_ordinary_text(spelled: str) -> None:
    assert bert().count(spelled) >= 3


def test_positions_are_code_points() -> None:
    found = bert().map("😀 cafe\u0301 日本")
    assert list(found.starts) == [0, 2, 8, 9]


def test_positions_do_not_depend_on_where_pieces_are_cut() -> None:
    text = "Nine words stand in this sentence of the book. " * 1000
    assert len(text) > 4 * PIECE
    one = bert().map(text[:47])
    assert list(bert().map(text).starts) == [47 * n + start for n in range(1000) for start in one.starts]


def test_unknown_characters_are_counted_where_they_stand() -> None:
    found = bert().map("known 𒀀 known 𒀁")
    assert (found.unknowns(0, 15), found.unknowns(0, 8), found.unknowns(8, 15)) == (2, 1, 1)


def test_character_of_many_tokens_holds_all_of_them() -> None:
    found = byte_level().map("a👨b")
    assert found.count(1, 2) == byte_level().count("👨") > 1


def test_after_and_before_are_the_two_ends_of_a_budget() -> None:
    found = bert().map("a b c d e")
    assert (found.after(0, 2, 9), found.after(0, 9, 9), found.after(4, 0, 9)) == (4, 9, 4)
    assert (found.before(9, 2), found.before(9, 99), found.before(9, 0)) == (6, 0, 9)


def test_places_cut_without_whitespace_are_marked_rough() -> None:
    assert not bert().map("word " * PIECE).rough
    found = bert().map("z" * (2 * PIECE))
    assert list(found.rough) == [PIECE]
    assert (found.is_rough(0, PIECE), found.is_rough(0, PIECE + 1), found.is_rough(PIECE, 2 * PIECE)) == (
        False,
        True,
        False,
    )


def test_million_carets_stay_linear_and_small() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for length in (100_000, 1_000_000):
        began = time.process_time()
        assert len(bert().map("^" * length).starts) == length
        times.append(time.process_time() - began)
    assert times[1] < 30 * times[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024  # KiB; one call took 600 MB


def test_name_changes_with_the_file(tmp_path: Path) -> None:
    from ingest.config import EmbedConfig
    from ingest.embed import resolve_model

    raw = (resolve_model(EmbedConfig()) / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(raw.replace('"zone"', '"zzone"', 1))
    assert Tokenizer.load(tmp_path).name != bert().name


def test_missing_file_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(("tokenizer", "additive"), [(bert, True), (byte_level, False)])
def test_sums_are_trusted_only_where_words_share_no_token(tokenizer, additive) -> None:  # type: ignore[no-untyped-def]
    assert tokenizer().is_additive is additive
