from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.parse.clean import clean

ANY = st.text(st.characters(exclude_categories=()))  # lone surrogates too


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße <|endoftext|> [SEP]\tعربی می‌خواهم 👋🏻\nnext"
    assert clean(text) == (text, 0)


def test_each_bad_character_is_removed_and_counted_once() -> None:
    assert clean("gain \ud835 end\x00 of\ufffe it\x1b") == ("gain  end of it", 4)


def test_two_halves_side_by_side_are_one_character() -> None:
    assert clean("\ud835\udf0e ok") == ("𝜎 ok", 0)


def test_all_line_breaks_become_one_kind() -> None:
    assert clean("a\r\nb\rc\x0cd\u2028e\x85f") == ("a\nb\nc\nd\ne\nf", 0)


def test_a_soft_hyphen_stays_only_where_a_line_breaks() -> None:
    assert clean("con\u00adfigu\u00ad\nration") == ("configu\u00ad\nration", 0)


@given(ANY)
def test_what_comes_out_can_be_encoded_and_needs_no_second_cleaning(text: str) -> None:
    cleaned, _ = clean(text)
    assert "\x00" not in cleaned
    assert clean(cleaned.encode().decode()) == (cleaned, 0)
