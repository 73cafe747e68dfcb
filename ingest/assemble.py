"""Segments become one document: one text with exact offsets, its pages, and what is kept apart from the flow.

Pure. Furniture of the pages is found, blocks become pieces of text (lines joined, hyphens resolved, NFKC), pieces are
laid end to end. Nothing here walks a text character by character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ingest.furniture import Furniture
from ingest.language import guess
from ingest.model import Assembled, Block, Document, Page, ParsedSegment, Span

_WORD = re.compile(r"[^\W\d_]{3,}")
_BROKEN = re.compile(r"(?<!\S)(\S{0,60}?)(\w{1,40})([-\u2010\u00ad])\n(\w+)")  # bounded: a token may have a megabyte
_BULLET = re.compile(r"\n(?=[•◦▪‣●○■□–—*·]\s)")
_SENTENCE_END = re.compile(r"[.!?…:;。！？؟۔।][\"'”’»)\]]*$")
_TOKENS = re.compile(r"\S+")
_KEPT_LINES = frozenset({"code", "table", "list"})


def assemble(document: Document, segments: Sequence[ParsedSegment], page_count: int) -> Assembled:
    """One document from the segments that were read; pages that failed are absent, a page given twice counts once."""
    pages = _pages(segments)
    furniture = Furniture(pages)
    words = _words(pages)
    sheet = _Sheet()
    marked: list[tuple[Block, int]] = []
    for page in pages:
        flow = []
        for block, is_apart in furniture.parts(page):
            if is_apart:
                marked.append((block, page.number))
            else:
                flow.append(block)
        sheet.add_page(page, [(block, _text(block, words)) for block in flow])
    flow_end, spans = sheet.length, tuple(sheet.spans)
    sheet.spans.clear()
    for block, number in marked:
        sheet.add_block(block, _text(block, words), number, "\n\n")
    text = "".join(sheet.pieces)
    return Assembled(
        document=document,
        text=text,
        flow_end=flow_end,
        spans=spans,
        marked=tuple(sheet.spans),
        pages=tuple(page.number for page in pages),
        page_starts=tuple(sheet.page_starts),
        page_count=page_count,
        title=_title(segments, text, spans),
        language=guess(text[:flow_end]),
        repairs=sum(segment.repairs for segment in segments),
        raw_offsets=tuple(sheet.raw_offsets),
    )


def _pages(segments: Sequence[ParsedSegment]) -> list[Page]:
    found: dict[int, Page] = {}
    for segment in sorted(segments, key=lambda segment: segment.number):
        for page in segment.pages:
            found.setdefault(page.number, page)
    return [found[number] for number in sorted(found)]


def _title(segments: Sequence[ParsedSegment], text: str, spans: Iterable[Span]) -> str:
    """The title the file states, else the highest heading on its first two pages, else none."""
    stated = next((segment.title for segment in segments if segment.title), "")
    if stated:
        return unicodedata.normalize("NFKC", stated)
    heads = [span for span in spans if span.kind == "heading" and span.page <= 2]
    head = min(heads, key=lambda span: span.level, default=None)
    return text[head.start : head.end] if head else ""


# ---------------------------------------------------------------- the text


@dataclass(slots=True)
class _Sheet:
    """The text as it grows; ``raw`` is its length before NFKC."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    raw: int = 0
    spans: list[Span] = field(default_factory=list)
    page_starts: list[int] = field(default_factory=list)
    raw_offsets: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    open_end: bool = False  # the last block is a paragraph that has not ended yet

    def add_page(self, page: Page, blocks: Sequence[tuple[Block, str]]) -> None:
        """The flow of one page; a page without text begins where the next one does."""
        is_first = True
        for block, text in blocks:
            if not text:
                continue
            runs_on = is_first and self.open_end and block.kind == "text" and self._runs_on(page, text)
            self.add_block(block, text, page.number, "\n" if runs_on else "\n\n")
            if is_first:
                self.page_starts.append(self.spans[-1].start)
            is_first = False
            self.open_end = block.kind == "text"
        if is_first:
            self.page_starts.append(self.length)

    def _runs_on(self, page: Page, text: str) -> bool:
        if not page.height:  # a part of a format without pages: its engine knows
            return "continues" in page.notes
        return text[0].islower() and not _SENTENCE_END.search(self.pieces[-1][-8:])

    def add_block(self, block: Block, text: str, page: int, gap: str) -> None:
        """One block at the end, as a span and as text in NFKC."""
        if not text:
            return
        self._append(gap if self.length else "")
        start = self.length
        if unicodedata.is_normalized("NFKC", text):
            self._append(text)
        else:
            self._append_normalized(text)
        self.spans.append(Span(start, self.length, block.kind, page, block.level, block.bbox))

    def _append(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.length += len(text)
            self.raw += len(text)

    def _append_normalized(self, text: str) -> None:
        """Word by word, so that an offset is off by less than a word; white space never composes."""
        pieces: list[str] = []
        at = 0
        for match in _TOKENS.finditer(text):
            word = match[0]
            gap = "".join("\n" if sign == "\n" else " " for sign in text[at : match.start()])
            normal = word if word.isascii() else unicodedata.normalize("NFKC", word)
            pieces += (gap, normal)
            self.length += len(gap) + len(normal)
            self.raw += match.end() - at
            at = match.end()
            if len(normal) != len(word):
                self.raw_offsets.append((self.length, self.raw))
        self.pieces.append("".join(pieces))


def _text(block: Block, words: frozenset[str]) -> str:
    """Text of a block: lines of prose become one, with words that were broken at a line end made whole."""
    if "\n" not in block.text:
        return block.text.strip().removesuffix("\u00ad")
    if block.kind in _KEPT_LINES:
        return block.text.strip("\n").rstrip()
    text = _BROKEN.sub(lambda match: _mend(match, words), block.text.strip()) if _has_break(block.text) else block.text
    return _BULLET.sub("\0", text.strip()).replace("\n", " ").replace("\0", "\n")


def _has_break(text: str) -> bool:
    return "-\n" in text or "\u2010\n" in text or "\u00ad\n" in text


def _mend(match: re.Match[str], words: frozenset[str]) -> str:
    """One word where the whole word is used elsewhere in the document; an option such as ``--dry-run`` stays."""
    before, head, sign, tail = match.groups()
    if before.startswith("-"):
        return f"{before}{head}{sign}{tail}"
    if sign == "\u00ad" or (head + tail).casefold() in words:
        return f"{before}{head}{tail}"
    return match[0]


def _words(pages: Iterable[Page]) -> frozenset[str]:
    """Every word of the documents that has a broken one; empty where nothing is broken."""
    texts = [block.text for page in pages for block in page.blocks if not block.hidden]
    if not any(_has_break(text) for text in texts):
        return frozenset()
    return frozenset(word.casefold() for text in texts for word in _WORD.findall(_BROKEN.sub(" ", text)))
