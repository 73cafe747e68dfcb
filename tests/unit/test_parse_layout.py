from __future__ import annotations

from ingest.parse.layout import Line, RawBlock, body_size, build_blocks, outline_titles


def raw(*lines: tuple[str, float], mono: bool = False, bold: bool = False, hidden: bool = False) -> RawBlock:
    block = RawBlock()
    for index, (text, size) in enumerate(lines):
        top = 100.0 + 20 * index
        block.add(text, size, Line(bold, mono, (72.0, top, 300.0, top + size), top + size, hidden))
    return block


def kinds(
    *raws: RawBlock, body: float = 10.0, outline: tuple[tuple[int, str, int], ...] = ()
) -> list[tuple[str, int, str]]:
    titles = outline_titles(outline).get(1, ())
    return [(block.kind, block.level, block.text) for block in build_blocks(raws, body, titles)]


def test_the_body_size_is_the_one_of_most_characters() -> None:
    assert body_size([raw(("BIG", 20), ("much ordinary text", 10)), raw(("more of it", 10.04))]) == 10.0
    assert body_size([]) == 0.0


def test_larger_lines_are_headings_by_their_ratio() -> None:
    found = kinds(
        raw(("Book", 20)), raw(("Chapter", 14.5)), raw(("Section", 12.5)), raw(("Small head", 11.4)), raw(("x", 11))
    )
    assert [(kind, level) for kind, level, _ in found] == [
        ("heading", 1),
        ("heading", 2),
        ("heading", 3),
        ("heading", 4),
        ("text", 0),
    ]


def test_a_heading_in_the_block_of_its_paragraph_is_taken_out() -> None:
    assert kinds(raw(("Head", 14), ("text goes on", 10), ("and on", 10))) == [
        ("heading", 2, "Head"),
        ("text", 0, "text goes on\nand on"),
    ]


def test_large_numbers_leaders_and_long_texts_are_no_headings() -> None:
    assert [
        kind for kind, _, _ in kinds(raw(("42", 20)), raw(("Intro . . . . . . 7", 14)), raw(("word " * 60, 14)))
    ] == [
        "text",
        "text",
        "text",
    ]


def test_the_outline_names_headings_that_their_size_does_not_tell() -> None:
    outline = ((2, "Memory and time", 1),)
    assert kinds(raw(("3.1 Memory", 10), ("and time", 10), ("Text of it.", 10)), outline=outline) == [
        ("heading", 2, "3.1 Memory\nand time"),
        ("text", 0, "Text of it."),
    ]


def test_of_a_title_that_stands_twice_the_larger_one_is_the_heading() -> None:
    found = kinds(raw(("browser", 10)), raw(("browser", 11)), outline=((1, "browser", 1),))
    assert found == [("text", 0, "browser"), ("heading", 1, "browser")]


def test_code_is_a_block_of_monospaced_lines_and_keeps_its_indent() -> None:
    block = RawBlock()
    for index, (text, left) in enumerate((("if x:", 72.0), ("return", 96.0))):
        block.add(text, 10, Line(False, True, (left, 100 + 12 * index, 200, 110 + 12 * index), 110 + 12 * index))
    assert kinds(block) == [("code", 0, "if x:\n    return")]


def test_one_line_in_the_font_of_code_is_prose() -> None:
    assert kinds(raw(("main() is called first.", 10), mono=True)) == [("text", 0, "main() is called first.")]


def test_cells_on_one_baseline_make_one_row() -> None:
    block = RawBlock()
    for text, left, base in (("Name", 72, 100), ("Size", 200, 100.4), ("rope", 72, 112), ("9 m", 200, 112)):
        block.add(text, 10, Line(False, False, (left, base - 10, left + 40, base), base))
    assert kinds(block) == [("list", 0, "Name Size\nrope 9 m")]


def test_hidden_lines_stand_in_a_block_of_their_own() -> None:
    block = raw(("seen", 10))
    block.add("unseen", 10, Line(False, False, (72, 130, 200, 140), 140, hidden=True))
    block.add("dust", 0.3, Line(False, False, (72, 150, 200, 150), 150))
    found = build_blocks([block], 10.0, ())
    assert [(b.text, b.hidden) for b in found] == [("seen", False), ("unseen\ndust", True)]


def test_glyphs_without_a_letter_are_counted_and_taken_out() -> None:
    block = raw(("a\ufffdb", 10), ("\ufffd\ufffd", 10))
    assert (kinds(block), block.unmapped, block.repairs) == ([("text", 0, "ab")], 3, 3)
