"""PDF by PyMuPDF (AGPL-3.0 or commercial): lines of MuPDF's structured text, made into blocks by ``layout.py``.

Lines come as MuPDF's own JSON: written in C it costs a third of ``get_text("dict")``, which builds its result in Python
(measured: 830 against 240 pages per CPU-second). Only pages whose content can hold unseen text pay for the dict.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

# PyMuPDF imports its layout models by itself: 0.5 s and five threads of onnxruntime that plain text never needs.
_absent = [name for name in ("pymupdf.layout", "pymupdf4llm") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_absent))  # type: ignore[arg-type]
import pymupdf as untyped  # noqa: E402
from pymupdf import mupdf  # noqa: E402

for _name in _absent:
    del sys.modules[_name]

from ingest.errors import ParseError  # noqa: E402
from ingest.failure import failure  # noqa: E402
from ingest.model import Failure, Page  # noqa: E402
from ingest.parse import hidden  # noqa: E402
from ingest.parse.clean import clean  # noqa: E402
from ingest.parse.layout import Line, RawBlock, body_size, build_blocks, outline_titles  # noqa: E402
from ingest.parse.result import Inspection, ParsedPages  # noqa: E402
from ingest.parse.sniff import ends_whole  # noqa: E402

pymupdf: Any = untyped  # it has annotations in some places only

# Without TEXT_CID_FOR_UNKNOWN_UNICODE: an unmapped glyph shows as U+FFFD instead of as a plausible wrong letter.
FLAGS = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_PRESERVE_LIGATURES | pymupdf.TEXT_MEDIABOX_CLIP
_SCALE = 100  # MuPDF's JSON has whole numbers only: hundredths of a point
_SCAN_CHARS, _SCAN_COVER = 100, 0.5  # facts: 0.14 % false alarms on 1,470 good pages
_UNMAPPED_SHARE = 0.3  # facts: 0.5 % false alarms, all stripped pages found
_MONO_NAME = re.compile("mono|courier|consol|typewriter|cmtt|menlo", re.I)  # some do not set the flag
_MAX_OUTLINE = 20_000
_NO_TITLE = ("untitled", "microsoft word", "microsoft powerpoint", "document1", "(anonymous)", "unknown")

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)


def inspect(path: str) -> Inspection:
    """Page count and title of a PDF; raises ParseError ``password_required``, ``truncated`` or ``corrupt_file``."""
    document = _open(path)
    return Inspection("pdf", len(document), _title(document))


def parse(path: str, page_from: int, page_to: int) -> ParsedPages:
    """Blocks of the pages ``page_from`` to ``page_to``, and of these pages only."""
    document = _open(path)
    if page_to > len(document):
        raise ParseError("pages_missing", f"page {page_to} of {len(document)}")
    numbers = range(page_from, page_to + 1)
    loaded = [_read_page(document, number) for number in numbers]
    body = body_size(raw for raws, _, _ in loaded for raw in raws)
    outline = tuple(entry for entry in _outline(path, _stamp(path)) if page_from <= entry[2] <= page_to)
    titles = outline_titles(outline)
    pages: list[Page] = []
    failed: list[tuple[int, Failure]] = []
    for number, (raws, (width, height), unmapped) in zip(numbers, loaded, strict=True):
        blocks = build_blocks(raws, body, titles.get(number, ()))
        problem = _problem(document, number, sum(len(block.text) for block in blocks), unmapped)
        if problem:
            failed.append((number, failure(problem)))
        else:
            notes = ("unmapped_glyphs",) if unmapped else ()
            quality = round(1 - unmapped / (unmapped + sum(len(b.text) for b in blocks)), 3) if unmapped else 1.0
            pages.append(Page(number, blocks, width, height, quality, notes))
    repairs = sum(raw.repairs for raws, _, _ in loaded for raw in raws)
    return ParsedPages(
        tuple(pages), f"pymupdf-{pymupdf.__version__}", _title(document), outline, tuple(failed), repairs
    )


# ---------------------------------------------------------------- the document


def _stamp(path: str) -> tuple[int, int]:
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns


def _open(path: str) -> Any:
    return _opened(path, _stamp(path))


@lru_cache(maxsize=1)
def _opened(path: str, stamp: tuple[int, int]) -> Any:
    """The open document; kept for the next segment, since opening 2,415 pages costs 0.1 s."""
    del stamp  # part of the cache's key
    pymupdf.TOOLS.store_shrink(100)
    hidden.forget()
    try:
        document = pymupdf.open(path, filetype="pdf")
        pages = 0 if document.needs_pass else len(document)  # counts them: raises where the page tree is cut off
    except (RuntimeError, ValueError) as error:  # PyMuPDF's FileDataError and MuPDF's errors are RuntimeErrors
        raise ParseError("corrupt_file" if ends_whole(path) else "truncated", _without(path, error)) from error
    if document.needs_pass:
        raise ParseError("password_required")
    if not pages or (document.is_repaired and not ends_whole(path)):
        raise ParseError("corrupt_file" if ends_whole(path) else "truncated", f"{pages} pages could be found")
    return document


def _without(path: str, error: Exception) -> str:
    """What MuPDF says, without the name of our local copy."""
    return str(error).replace(f" '{path}'", "")[:200]


def _title(document: Any) -> str:
    title = clean(str((document.metadata or {}).get("title") or ""))[0].strip()
    return "" if title.lower().startswith(_NO_TITLE) else title


@lru_cache(maxsize=1)
def _outline(path: str, stamp: tuple[int, int]) -> tuple[tuple[int, str, int], ...]:
    """(level, title, page) of the table of contents; a broken one costs headings at most."""
    try:
        entries = _opened(path, stamp).get_toc(simple=True)[:_MAX_OUTLINE]
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, RecursionError):
        return ()
    return tuple((int(level), clean(str(title))[0].strip(), int(page)) for level, title, page in entries if page > 0)


# ---------------------------------------------------------------- one page


def _read_page(document: Any, number: int) -> tuple[list[RawBlock], tuple[float, float], int]:
    """Raw blocks, size in points, and the number of glyphs without a letter of one page."""
    try:
        page = document[number - 1]
        text_page = page.get_textpage(flags=FLAGS)
    except RuntimeError as error:
        raise ParseError("corrupt_file", f"page {number}: {str(error)[:200]}") from error
    size = (page.rect.width, page.rect.height)
    if hidden.suspicious(document, page):
        raws = list(_from_dict(text_page.extractDICT(), hidden.judge(page)))
    else:
        raws = list(_from_json(_json(text_page)))
    return raws, size, sum(raw.unmapped for raw in raws)


def _json(text_page: Any) -> list[dict[str, Any]]:
    buffer = mupdf.FzBuffer(1 << 16)
    output = mupdf.FzOutput(buffer)
    mupdf.fz_print_stext_page_as_json(output, text_page.this, _SCALE)
    output.fz_close_output()
    raw = buffer.fz_buffer_extract()
    try:
        blocks: list[dict[str, Any]] = orjson.loads(raw)["blocks"]
    except orjson.JSONDecodeError:  # halves of surrogate pairs, which a font's map may hold
        blocks = json.loads(raw.decode("utf-8", "surrogatepass"), strict=False)["blocks"]
    return blocks


def _from_json(blocks: list[dict[str, Any]]) -> Iterator[RawBlock]:
    for block in blocks:
        raw = RawBlock()
        for line in block.get("lines", ()):
            font, box = line["font"], line["bbox"]
            left, top = box["x"] / _SCALE, box["y"] / _SCALE
            raw.add(
                line["text"],
                font["size"] / _SCALE,
                Line(
                    bold=font["weight"] == "bold",
                    mono=_is_mono(font["family"], font["name"]),
                    bbox=(left, top, left + box["w"] / _SCALE, top + box["h"] / _SCALE),
                    base=line["y"] / _SCALE,
                ),
            )
        if raw.lines or raw.repairs:
            yield raw


def _from_dict(page: dict[str, Any], unseen: hidden.Judge) -> Iterator[RawBlock]:
    """As ``_from_json``, with a line of its own for each run of spans that can not be seen."""
    for block in page["blocks"]:
        raw = RawBlock()
        for line in block.get("lines", ()):
            for is_hidden, spans in hidden.runs(line["spans"], unseen):
                first = spans[0]
                box = pymupdf.Rect(first["bbox"])
                for span in spans[1:]:
                    box |= span["bbox"]
                style, mono = int(first["flags"]), _is_mono("", first["font"])
                raw.add(
                    "".join(span["text"] for span in spans),
                    float(first["size"]),
                    Line(
                        bold=bool(style & 16),
                        mono=mono or bool(style & 8),
                        bbox=(box.x0, box.y0, box.x1, box.y1),
                        base=float(first["origin"][1]),
                        hidden=is_hidden,
                    ),
                )
        if raw.lines or raw.repairs:
            yield raw


@lru_cache(maxsize=1024)
def _is_mono(family: str, name: str) -> bool:
    return family == "monospace" or _MONO_NAME.search(name) is not None


def _problem(document: Any, number: int, chars: int, unmapped: int) -> str:
    """The reason why a page can not be used, or nothing; a blank page is fine."""
    if unmapped > _UNMAPPED_SHARE * (chars + unmapped):
        return "unmapped_glyphs"
    if chars < _SCAN_CHARS and _image_cover(document[number - 1]) > _SCAN_COVER:
        return "no_ocr_engine"
    return ""


def _image_cover(page: Any) -> float:
    """Share of the page under its largest image, or under all of them together where none is large."""
    whole = abs(page.rect)
    areas = [abs(pymupdf.Rect(image["bbox"]) & page.rect) for image in page.get_image_info()]
    return min(1.0, sum(areas) / whole) if whole else 0.0
