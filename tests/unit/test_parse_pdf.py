"""The PDF engine against files made on the spot; PyMuPDF makes and reads them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import ParseError
from ingest.parse.pdf import inspect, parse
from tests import corpus

pymupdf: Any = import_module("pymupdf")
WORDS = "The clerk counted seven copper valves before the frost."
WHITE, BLACK = (1, 1, 1), (0, 0, 0)


def made(tmp_path: Path, draw: Callable[[Any], None], **save: Any) -> str:
    """Path of a PDF of one page that ``draw`` filled."""
    path = tmp_path / "made.pdf"
    with pymupdf.open() as document:
        draw(document.new_page(width=595, height=842))
        document.save(path, **save)
    return str(path)


def seen_and_hidden(path: str) -> tuple[str, str]:
    blocks = parse(path, 1, 1).pages[0].blocks
    return (
        " ".join(block.text for block in blocks if not block.hidden),
        " ".join(block.text for block in blocks if block.hidden),
    )


def test_render_mode_3_and_white_on_white_are_hidden(tmp_path: Path) -> None:
    def draw(page: Any) -> None:
        page.insert_text((72, 100), WORDS)
        page.insert_text((72, 300), "MODE three", render_mode=3)
        page.insert_text((72, 400), "WHITE words", color=WHITE)

    assert seen_and_hidden(made(tmp_path, draw)) == (WORDS, "MODE three WHITE words")


def test_white_on_a_dark_ground_is_seen(tmp_path: Path) -> None:
    def draw(page: Any) -> None:
        page.draw_rect((50, 80, 500, 120), fill=BLACK)
        page.insert_text((72, 100), WORDS, color=WHITE)

    assert seen_and_hidden(made(tmp_path, draw)) == (WORDS, "")


def test_unseen_words_over_a_scan_are_its_text_layer(tmp_path: Path) -> None:
    def draw(page: Any) -> None:
        grey = pymupdf.Pixmap(pymupdf.csGRAY, pymupdf.IRect(0, 0, 60, 84))
        grey.clear_with(200)
        page.insert_image(page.rect, pixmap=grey)
        page.insert_text((72, 100), WORDS, render_mode=3)
        page.insert_text((72, 120), WORDS, render_mode=3)

    assert seen_and_hidden(made(tmp_path, draw)) == (f"{WORDS} {WORDS}", "")


def test_a_page_that_is_one_image_fails_by_name_and_a_blank_page_does_not(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(corpus.make_scan(2))
    assert [(n, failure.reason) for n, failure in parse(str(path), 1, 2).failed_pages] == [
        (1, "no_ocr_engine"),
        (2, "no_ocr_engine"),
    ]
    blank = parse(made(tmp_path, lambda page: None), 1, 1)
    assert (blank.failed_pages, blank.pages[0].blocks) == ((), ())


def test_a_font_without_a_map_fails_the_page_instead_of_giving_wrong_letters(tmp_path: Path) -> None:
    def draw(page: Any) -> None:
        writer = pymupdf.TextWriter(page.rect)
        writer.append((72, 100), WORDS, font=pymupdf.Font("helv"))
        writer.write_text(page)
        for xref in range(1, page.parent.xref_length()):
            if page.parent.xref_get_key(xref, "ToUnicode")[0] != "null":
                page.parent.xref_set_key(xref, "ToUnicode", "null")

    parsed = parse(made(tmp_path, draw), 1, 1)
    assert [(n, failure.reason) for n, failure in parsed.failed_pages] == [(1, "unmapped_glyphs")]
    assert parsed.pages == ()


def test_the_outline_gives_levels_and_only_entries_of_the_range_come_back(tmp_path: Path) -> None:
    path = tmp_path / "outline.pdf"
    with pymupdf.open() as document:
        for number in range(1, 4):
            page = document.new_page()
            page.insert_text((72, 100), f"{number}. Topic {number}", fontsize=11)
            page.insert_text((72, 160), WORDS, fontsize=11)
        document.set_toc([[1, "Topic 1", 1], [2, "Topic 2", 2], [2, "Topic 3", 3]])
        document.save(path)
    parsed = parse(str(path), 2, 3)
    assert parsed.outline == ((2, "Topic 2", 2), (2, "Topic 3", 3))
    assert [(b.kind, b.level, b.text) for b in parsed.pages[0].blocks] == [
        ("heading", 2, "2. Topic 2"),
        ("text", 0, WORDS),
    ]


def test_an_outline_in_a_circle_costs_no_page(tmp_path: Path) -> None:
    path = tmp_path / "loop.pdf"
    path.write_bytes(corpus.make_outline_loop(4))
    assert len(parse(str(path), 1, 4).pages) == 4


def test_a_password_to_open_is_poison_and_one_to_change_is_not(tmp_path: Path) -> None:
    locked = made(tmp_path, lambda page: None, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="u", owner_pw="o")
    with pytest.raises(ParseError, match="password_required"):
        inspect(locked)
    draw = lambda page: page.insert_text((72, 100), WORDS)  # noqa: E731
    guarded = made(tmp_path, draw, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="o")
    assert seen_and_hidden(guarded) == (WORDS, "")


def test_a_file_without_its_page_tree_is_truncated_at_every_length(tmp_path: Path) -> None:
    with corpus.drawn(12, seed=3) as document:
        whole: bytes = document.tobytes(no_new_id=True)
    path = tmp_path / "cut.pdf"
    for length in range(500, len(whole) - 500, len(whole) // 25):
        path.write_bytes(whole[:length])
        with pytest.raises(ParseError, match="truncated"):
            inspect(str(path))


def test_half_a_file_is_truncated_and_garbage_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "half.pdf"
    whole = corpus.make_pdf(12)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ParseError, match="truncated"):
        inspect(str(path))
    path.write_bytes(b"%PDF-1.7\nnothing of the kind\n%%EOF\n")
    with pytest.raises(ParseError, match="corrupt_file"):
        inspect(str(path))


TITLES = [("Yearbook", "Yearbook"), ("Microsoft Word - x.doc", ""), ("untitled", "")]


@pytest.mark.parametrize(("stated", "title"), TITLES)
def test_the_title_is_the_stated_one_unless_a_program_made_it_up(stated: str, title: str, tmp_path: Path) -> None:
    def draw(page: Any) -> None:
        page.parent.set_metadata({"title": stated})

    assert inspect(made(tmp_path, draw)).title == title
