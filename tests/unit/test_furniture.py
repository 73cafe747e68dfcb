from __future__ import annotations

from ingest.furniture import Furniture
from ingest.model import Block, Page


def line(text: str, top: float, left: float = 72.0) -> Block:
    return Block("text", text, bbox=(left, top, left + 200, top + 10 * (1 + text.count("\n"))))


def apart(pages: list[Page]) -> list[list[str]]:
    furniture = Furniture(pages)
    return [[block.text for block, is_apart in furniture.parts(page) if is_apart] for page in pages]


def page(number: int, *blocks: Block) -> Page:
    return Page(number, blocks, 595, 842)


def test_headers_and_page_numbers_stand_apart() -> None:
    pages = [page(n, line("The Manual", 30), line(f"Body {n} of it.", 200), line(str(n), 800)) for n in range(1, 9)]
    assert apart(pages) == [["The Manual", str(n)] for n in range(1, 9)]


def test_a_header_with_the_page_number_in_it_is_found_although_its_words_change() -> None:
    pages = [page(n, line(f"Topic{n} {n + 6}", 30), line("Body.", 200)) for n in range(1, 9)]
    assert apart(pages) == [[f"Topic{n} {n + 6}"] for n in range(1, 9)]


def test_a_footnote_whose_number_is_the_page_number_stays() -> None:
    pages = [page(n, line(f"Header {n}", 30), line("Body.", 200)) for n in range(1, 9)]
    pages[3] = page(4, line("Header 4", 30), line("Body.", 200), line("4 A footnote says more.", 790))
    assert apart(pages)[3] == ["Header 4"]


def test_an_identifier_on_each_page_is_text() -> None:
    pages = [page(n, line(f"PAGEMARK-{n:03d}-of-008", 40), line("Body.", 200)) for n in range(1, 9)]
    assert apart(pages) == [[]] * 8


def test_a_number_beside_text_is_text() -> None:
    pages = [page(n, line("1.1", 60), line("Storage", 60, left=120), line("Body.", 200)) for n in range(1, 9)]
    found = apart([*pages[:4], *(page(n, line("Body.", 200)) for n in range(5, 30))])
    assert not any("1.1" in texts for texts in found)


def test_a_repeated_line_in_the_middle_of_pages_is_text() -> None:
    pages = [page(n, line(f"Intro {n}a", 60), line("Usage", 400), line(f"End {n}b", 780)) for n in range(1, 9)]
    assert apart(pages) == [[]] * 8


def test_three_pages_prove_nothing() -> None:
    assert apart([page(n, line("The Manual", 30), line("Body.", 200)) for n in range(1, 4)]) == [[]] * 3


def test_a_header_in_the_block_of_the_text_is_cut_off() -> None:
    pages = [page(n, line(f"The Manual\nBody{n} of it.", 30)) for n in range(1, 9)]
    furniture = Furniture(pages)
    assert [(b.text, is_apart) for b, is_apart in furniture.parts(pages[2])] == [
        ("The Manual", True),
        ("Body3 of it.", False),
    ]


def test_parts_of_a_format_without_pages_have_no_furniture() -> None:
    assert apart([Page(n, (Block("text", "The same"), Block("text", "words"))) for n in range(1, 9)]) == [[]] * 8


def test_headings_that_differ_by_their_number_are_headings() -> None:
    pages = [page(n, Block("heading", f"Report {n}", 1, (72, 60, 300, 80)), line("Body.", 200)) for n in range(1, 9)]
    assert apart(pages) == [[]] * 8
