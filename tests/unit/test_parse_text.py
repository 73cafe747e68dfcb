from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import ParseError
from ingest.model import Block
from ingest.parse.parts import cut
from ingest.parse.text import decode, inspect, paragraphs, read

PERSIAN = "این سند درباره نگهداری بایگانی شهر است و هر پرونده یک شماره و یک تاریخ دارد. " * 8
GERMAN = "Die Prüfung der Höhe ergab, daß die Türen größer als üblich sind. " * 8


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_comes_out_the_same_whatever_its_encoding(encoding: str) -> None:
    assert decode(GERMAN.encode(encoding)) == (GERMAN, 0)


def test_an_old_persian_encoding_is_guessed() -> None:
    arabic = "مرحبا بكم في المدينة القديمة حيث توجد الكتب والرسائل " * 12
    assert decode(arabic.encode("cp1256"))[0] == arabic


def test_a_few_broken_bytes_in_utf8_are_dropped_and_counted() -> None:
    data = PERSIAN[:50].encode() + b"\xff" + PERSIAN[50:].encode()
    assert decode(data) == (PERSIAN, 1)


def test_paragraphs_end_at_blank_lines() -> None:
    assert [block.text for block in paragraphs("one\ntwo\n\n \t\n\nthree\n")] == ["one\ntwo", "three"]


def test_short_lines_are_a_list_and_keep_their_breaks() -> None:
    kinds = [block.kind for block in paragraphs("salt\npepper\nrope\n\n" + "\n".join(["word " * 14] * 4))]
    assert kinds == ["list", "text"]


def test_a_text_of_blanks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "blank.txt"
    path.write_bytes(b" \n\t\n ")
    assert read(path.read_bytes()).blocks == ()
    with pytest.raises(ParseError, match="no_text"):
        inspect(str(path))


@given(st.lists(st.text("ab \n", min_size=1, max_size=80), max_size=12), st.integers(5, 40))
def test_cutting_into_parts_loses_no_word_and_repeats_none(texts: list[str], limit: int) -> None:
    blocks = [Block("text", text.strip("\n")) for text in texts if text.strip()]
    parts = list(cut(blocks, limit))
    words = [word for part, _ in parts for block in part for word in block.text.split()]
    assert words == [word for block in blocks for word in block.text.split()]
    for part, _ in parts:
        size = sum(len(block.text) for block in part)
        assert size <= limit or len(part) == 1


def test_a_part_tells_whether_it_begins_inside_of_a_paragraph() -> None:
    blocks = [Block("text", "word " * 10), Block("text", "next")]
    assert [continues for _, continues in cut(blocks, 30)] == [False, True]
    assert [continues for _, continues in cut(blocks, 50)] == [False, False]


def test_a_run_without_a_space_is_never_cut() -> None:
    assert [part[0].text for part, _ in cut([Block("text", "^" * 1000)], 100)] == ["^" * 1000]


def test_a_long_table_repeats_its_header_in_each_part_and_cuts_no_row() -> None:
    rows = [f"| row {n} | value |" for n in range(50)]
    parts = list(cut([Block("table", "\n".join(["| Head | Value |", *rows]))], 200))
    texts = [part[0].text.split("\n") for part, _ in parts]
    assert len(texts) > 3
    assert all(lines[0] == "| Head | Value |" for lines in texts)
    assert [row for lines in texts for row in lines[1:]] == rows
    assert not any(continues for _, continues in parts)
