"""Small test documents, made from a seed: the same bytes on every run, except the encrypted PDF."""

from __future__ import annotations

import html
import importlib
import random
import textwrap
from collections.abc import Collection, Iterator
from typing import Any

PASSWORD = "open sesame"
A4_POINTS = (595, 842)
MARGIN_POINTS = 72
LAST_LINE_POINTS = 780
# At 11 points a line of this many letters of Helvetica stays within A4's margins.
LETTERS_PER_LINE = 80
BODY_SIZE = 11
# Markdown's marks, in page texts: the size of type that a heading is set in.
HEADING_SIZES = {"# ": 20, "## ": 15}

_WHO = """The night clerk/Our surveyor/A visiting engineer/The archive/Every tenant/The harbour office/A retired baker/
The second crew/The auditor/Their neighbour"""
_DOES = "counted/repaired/described/sold/painted/measured/forgot/inspected/ordered/returned"
_WHAT = """seven copper valves/the longest ladder/an invoice for rope/two crates of lemons/the tide tables/
a map of the cellars/forty grey blankets/the spare turbine/a letter of credit/the east staircase"""
_WHEN = """before the frost/on the first Monday/after the long strike/in a single afternoon/without a word/
during the regatta/for the third time/at the request of the council"""
_THEN = """nobody asked why/the price rose again/the report says so twice/work went on as planned/the lights stayed on/
a copy was kept/the total did not change/it was enough for the winter"""
_PARTS = [part.replace("\n", "").split("/") for part in (_WHO, _DOES, _WHAT, _WHEN, _THEN)]
_TOPICS = ("Storage", "Maintenance", "Deliveries", "Personnel", "Drainage", "Accounts", "Lighting", "Insurance")


def prose(seed: int | str, sentences: int) -> str:
    """English sentences, the same for the same seed."""
    rng = random.Random(f"prose {seed}")
    chosen = ([rng.choice(part) for part in _PARTS] for _ in range(sentences))
    return " ".join(f"{who} {does} {what} {when}, and {then}." for who, does, what, when, then in chosen)


def topic(seed: int | str) -> str:
    """A heading, the same for the same seed."""
    rng = random.Random(f"topic {seed}")
    return f"{rng.choice(_TOPICS)} and {rng.choice(_TOPICS).lower()}"


def page_mark(number: int, count: int) -> str:
    """What says which page this is, so that a lost or shifted page shows; numbers start at 1."""
    return f"PAGEMARK-{number:03d}-of-{count:03d}"


def page_text(number: int, seed: int | str) -> str:
    """One page of prose under a heading."""
    paragraphs = (prose(f"{seed} {number} {part}", 4) for part in range(3))
    return "\n\n".join([f"# {number}. {topic(f'{seed} {number}')}", *paragraphs])


def make_pdf(
    pages: list[str] | int,
    *,
    title: str | None = None,
    outline: list[tuple[int, str, int]] | None = None,
    seed: int | str = 0,
    running: bool = False,
) -> bytes:
    """A PDF with a page mark on top of every page.

    ``pages``: a number, for pages of prose, or the text of each: paragraphs apart by an empty line, ``# `` and ``## ``
    start headings, Latin-1 only. ``outline``: level, heading, page from 1. ``running``: header and footer on each page.
    Raises ValueError for a text that does not fit its page.
    """
    return saved(drawn(pages, title=title, outline=outline, seed=seed, running=running))


def _pymupdf() -> Any:
    # Most of its functions carry no types.
    return importlib.import_module("pymupdf")


def drawn(
    pages: list[str] | int,
    *,
    title: str | None = None,
    outline: list[tuple[int, str, int]] | None = None,
    seed: int | str = 0,
    running: bool = False,
) -> Any:
    pymupdf = _pymupdf()
    texts = [page_text(number, seed) for number in range(1, pages + 1)] if isinstance(pages, int) else pages
    document = pymupdf.open()
    for number, text in enumerate(texts, 1):
        page = document.new_page(width=A4_POINTS[0], height=A4_POINTS[1])
        draw_text(page, f"{page_mark(number, len(texts))}\n\n{text}")
        if running:
            page.insert_text((MARGIN_POINTS, 40), title or "Report of the harbour office", fontsize=9)
            page.insert_text((MARGIN_POINTS, 815), f"Page {number} of {len(texts)}", fontsize=9)
    if title:
        document.set_metadata({"title": title})
    if outline:
        document.set_toc([list(entry) for entry in outline])
    return document


def draw_text(page: Any, text: str) -> None:
    y = float(MARGIN_POINTS)
    for size, lines in blocks(text):
        text_height = 1.3 * size * len(lines)
        if y + text_height > LAST_LINE_POINTS:
            raise ValueError(f"text does not fit page {page.number + 1}: {len(text)} letters")
        page.insert_text((MARGIN_POINTS, y + size), lines, fontsize=size, lineheight=1.3)
        y += text_height + 0.8 * size


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Size of type and wrapped lines of each paragraph or heading."""
    text.encode("latin-1")  # Helvetica would show anything else as a dot
    for block in text.split("\n\n"):
        mark = next((mark for mark in HEADING_SIZES if block.startswith(mark)), "")
        size = HEADING_SIZES.get(mark, BODY_SIZE)
        yield size, textwrap.wrap(block.removeprefix(mark), LETTERS_PER_LINE * BODY_SIZE // size)


def saved(document: Any) -> bytes:
    """The document's bytes, without the random ID that a PDF library adds."""
    with document:
        made: bytes = document.tobytes(no_new_id=True, deflate=True)
    return made


def make_encrypted(pages: int = 3, *, seed: int | str = 0) -> bytes:
    """A PDF that needs PASSWORD to open (AES-256); its bytes differ from run to run."""
    pymupdf = _pymupdf()
    with drawn(pages, seed=seed) as document:
        made: bytes = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw="owner")
    return made


def make_scan(pages: int = 3, *, scanned: Collection[int] | None = None, seed: int | str = 0) -> bytes:
    """A PDF in which the pages ``scanned`` (from 1; None = all) are one JPEG each, without a text layer."""
    pymupdf = _pymupdf()
    document = pymupdf.open()
    with drawn(pages, seed=seed) as original:
        for number in range(1, pages + 1):
            if scanned is not None and number not in scanned:
                document.insert_pdf(original, from_page=number - 1, to_page=number - 1)
                continue
            pixels = original[number - 1].get_pixmap(dpi=100, colorspace=pymupdf.csGRAY)
            page = document.new_page(width=A4_POINTS[0], height=A4_POINTS[1])
            page.insert_image(page.rect, stream=pixels.tobytes("jpeg", jpg_quality=50))
    return saved(document)


def make_outline_loop(pages: int = 4, *, seed: int | str = 0) -> bytes:
    """A PDF whose two outline entries are each other's next; every page is fine."""
    document = drawn(pages, outline=[(1, "Going round", 1), (1, "And round", 2)], seed=seed)
    first, second = document.get_outline_xrefs()
    for entry, other in ((first, second), (second, first)):
        document.xref_set_key(entry, "Next", f"{other} 0 R")
        document.xref_set_key(entry, "Prev", f"{other} 0 R")
    return saved(document)


def make_truncated(pages: int = 12, *, seed: int | str = 0) -> bytes:
    """A PDF that lost its end, as an upload leaves it that broke off: the contents of its pages, but no page."""
    with drawn(pages, seed=seed) as document:
        # Packed, the page objects stand behind the contents, as in the files of most writers.
        whole: bytes = document.tobytes(no_new_id=True, deflate=True, use_objstms=1)
    return whole[: whole.index(b"/ObjStm")]


def make_text(paragraphs: int = 6, *, mark: str = "", seed: int | str = 0) -> bytes:
    """Plain text: paragraphs of five sentences."""
    texts = [prose(f"{seed} {part}", 5) for part in range(paragraphs)]
    return "\n\n".join([*filter(None, [mark]), *texts, ""]).encode()


def make_markdown(sections: int = 4, *, rows: int = 6, mark: str = "", seed: int | str = 0) -> bytes:
    """Markdown: a title, sections with subsections, and a table under the last one."""
    lines = [f"# {topic(seed)}", "", *filter(None, [mark]), prose(seed, 3), ""]
    for section in range(1, sections + 1):
        lines += [f"## {section}. {topic(f'{seed} {section}')}", "", prose(f"{seed} {section}", 6), ""]
        lines += [f"### Details of {section}", "", prose(f"{seed} {section} details", 4), ""]
    lines += [f"| {' | '.join(_table_head())} |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in _table_rows(rows, seed)]
    return "\n".join([*lines, ""]).encode()


def make_html(sections: int = 3, *, rows: int = 4, mark: str = "", seed: int | str = 0) -> bytes:
    """HTML: title, headings, paragraphs, a table, and a script whose text must not be found."""
    body = [f"<h1>{topic(seed)}</h1>", f"<p>{html.escape(mark)} {prose(seed, 3)}</p>"]
    for section in range(1, sections + 1):
        body += [f"<h2>{topic(f'{seed} {section}')}</h2>", f"<p>{prose(f'{seed} {section}', 5)}</p>"]
    table = [_table_head(), *_table_rows(rows, seed)]
    body += ["<table>", *(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in table), "</table>"]
    head = f'<meta charset="utf-8"><title>{topic(seed)}</title><script>var invisible = "SCRIPTMARK";</script>'
    return "\n".join(["<!DOCTYPE html>", f"<html><head>{head}</head><body>", *body, "</body></html>", ""]).encode()


def _table_head() -> list[str]:
    return ["Item", "Pieces", "State"]


def _table_rows(count: int, seed: int | str) -> list[list[str]]:
    rng = random.Random(f"table {seed}")
    return [[f"item {row}", str(rng.randint(10, 999)), rng.choice(("new", "used", "lost"))] for row in range(count)]


def document_mark(number: int, seed: int | str) -> str:
    """The words by which a healthy document is found."""
    return f"DOCMARK-{seed}-{number:03d}"


def healthy(n: int, seed: int = 0) -> dict[str, bytes]:
    """``n`` sound documents by key: PDF (one to six pages), Markdown, text and HTML in turn, each with its mark."""
    made = {}
    for number in range(n):
        mark, own_seed = document_mark(number, seed), f"{seed} {number}"
        match number % 4:
            case 0:
                made[f"healthy/report-{number:03d}.pdf"] = _healthy_pdf(mark, own_seed)
            case 1:
                made[f"healthy/guide-{number:03d}.md"] = make_markdown(mark=mark, seed=own_seed)
            case 2:
                made[f"healthy/note-{number:03d}.txt"] = make_text(mark=mark, seed=own_seed)
            case _:
                made[f"healthy/page-{number:03d}.html"] = make_html(mark=mark, seed=own_seed)
    return made


def _healthy_pdf(mark: str, seed: str) -> bytes:
    pages = random.Random(seed).randint(1, 6)
    texts = [f"{mark}\n\n{page_text(number, seed)}" for number in range(1, pages + 1)]
    outline = [(1, topic(f"{seed} {number}"), number) for number in range(1, pages + 1)]
    return make_pdf(texts, title=topic(seed), outline=outline, running=True)


def broken() -> dict[str, tuple[bytes, set[str]]]:
    """Documents that cannot end ``ready`` without OCR or a password: bytes, and the reasons of which any is right."""
    error_page = "<!DOCTYPE html><html><head><title>403 Forbidden</title></head><body><h1>Forbidden</h1></body></html>"
    return {
        "broken/truncated.pdf": (make_truncated(), {"truncated", "corrupt_file"}),
        "broken/locked.pdf": (make_encrypted(), {"password_required"}),
        "broken/empty.pdf": (b"", {"empty_file"}),
        "broken/download.pdf": (error_page.encode(), {"not_a_pdf", "unsupported_type"}),
        "broken/random.pdf": (random.Random(77).randbytes(77), {"not_a_pdf", "unsupported_type", "corrupt_file"}),
        "broken/scan.pdf": (make_scan(), {"no_ocr_engine", "no_text"}),
        "broken/blank.txt": (b"\n \n\t\n" * 20, {"no_text", "empty_file"}),
    }


def awkward() -> dict[str, bytes]:
    """Documents that have broken readers and must end ``ready`` all the same."""
    words = prose("awkward", 12)
    half = len(words) // 2
    return {
        "awkward/outline-loop.pdf": make_outline_loop(),
        # Half of a surrogate pair in the bytes that UTF-8 would give it, which UTF-8 forbids.
        "awkward/surrogate.txt": words[:half].encode() + b" \xed\xa0\xb5 " + words[half:].encode(),
        "awkward/nul.txt": words.replace("Our", "\x00Our\x00").encode() + b"\x00",
        "awkward/tokens.md": f"# Tokens\n\n{words} <|endoftext|> [CLS] </s> {prose('after', 3)}\n".encode(),
        "awkward/carets.txt": b"^" * 1_000_000,
        "awkward/unbroken.txt": "".join(letter for letter in prose("unbroken", 1500) if letter.isalpha()).encode(),
    }
