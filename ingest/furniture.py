"""Running headers and footers: what the top or bottom of many pages repeats, page numbers apart.

They are told from text by place and repetition; a line with a number also by the number itself, which counts the pages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ingest.model import Block, Page

_MIN_PAGES = 4  # below it a repeated line proves nothing
_SHARE = 0.3  # of pages; found header and page number in 4 of 4 manuals (measured)
_MARGIN, _NUMBER_MARGIN = 0.14, 0.25  # of the page's height, at the top and at the bottom
_CHARS, _NUMBER_CHARS = 200, 12
# A page number, alone or as 3/12, A-7, iv. A token of words and numbers is an identifier that people search for.
_NUMBER = re.compile(r"(?<!\S)[(\[–—-]?(?:[A-Z]{1,2}[-.])?\d+(?:[-–./]\d+)*[)\].,:–—-]?(?!\S)|(?<!\S)[ivxlc]+(?!\S)")
_OF = re.compile(r"# ?(?:/|of|von|de|sur) ?#")


class Furniture:
    """What is furniture in these pages of one document."""

    def __init__(self, pages: Sequence[Page]) -> None:
        printed = [page for page in pages if page.height and page.blocks]
        self._masks: frozenset[str] = frozenset()
        self._has_numbers = False
        # The printed number less the page's place in the file, and the side of the page it stands on.
        self._number: tuple[int, str] | None = None
        if len(printed) < _MIN_PAGES:
            return
        least = max(2.0, _SHARE * len(printed))
        count = Counter(mask for page in printed for mask in set(_candidates(page)))
        self._masks = frozenset(mask for mask, times in count.items() if times > least)
        numbers = Counter(number for page in printed for number in set(self._printed_numbers(page)))
        self._number = next((number for number, times in numbers.most_common(1) if times > least), None)
        self._has_numbers = sum(any(self._numbers(page)) for page in printed) > least

    def parts(self, page: Page) -> Iterator[tuple[Block, bool]]:
        """Blocks of a page, each with whether it stands apart from the flow: hidden, or header or footer."""
        numbers = self._numbers(page) if self._has_numbers else [False] * len(page.blocks)
        for block, is_number in zip(page.blocks, numbers, strict=True):
            if block.hidden or is_number:
                yield block, True
            elif self._masks and _in_margin(page, block, _MARGIN):
                yield from self._split(block)
            else:
                yield block, False

    def _split(self, block: Block) -> Iterator[tuple[Block, bool]]:
        """A block as it is, or in two where its first or last line alone is furniture."""
        head, _, after = block.text.partition("\n")
        before, _, tail = block.text.rpartition("\n")
        if self._is_repeated(block) or block.kind == "heading" or not after:
            yield block, self._is_repeated(block)
        elif self._is_repeated(replace(block, text=head)):
            yield replace(block, text=head), True
            yield replace(block, text=after), False
        elif self._is_repeated(replace(block, text=tail)):
            yield replace(block, text=before), False
            yield replace(block, text=tail), True
        else:
            yield block, False

    def _is_repeated(self, block: Block) -> bool:
        return len(block.text) <= _CHARS and _mask(block) in self._masks

    def _numbers(self, page: Page) -> list[bool]:
        """For each block whether it is a page number, or a line that ends or begins with the number of this page."""
        return [self._is_number(page, block) and self._is_outermost(page, block) for block in page.blocks]

    def _is_number(self, page: Page, block: Block) -> bool:
        if len(block.text) <= _NUMBER_CHARS and _mask(block) == "#":
            return True
        return self._number is not None and self._number in _differences(page, block)

    def _printed_numbers(self, page: Page) -> Iterator[tuple[int, str]]:
        """The numbers at the ends of a page, each less the page's place in the file, with the side."""
        for block in page.blocks:
            if differences := _differences(page, block):
                yield from differences if self._is_outermost(page, block) else ()

    def _is_outermost(self, page: Page, block: Block) -> bool:
        """Whether a line in the margin has nothing but furniture above it, or below it, or beside it."""
        if block.bbox is None or not _in_margin(page, block, _NUMBER_MARGIN) or "\n" in block.text:
            return False
        others = [
            other.bbox
            for other in page.blocks
            if other is not block and other.bbox and not other.hidden and not self._is_repeated(other)
        ]
        top, bottom = block.bbox[1], block.bbox[3]
        return all(bottom <= box[1] + 1 for box in others) or all(top >= box[3] - 1 for box in others)


def _candidates(page: Page) -> Iterator[str]:
    seen = [block for block in page.blocks if not block.hidden and _in_margin(page, block, _MARGIN)]
    for block in seen[:2] + seen[-2:]:
        lines = block.text.split("\n")
        texts = {block.text} if block.kind == "heading" else {block.text, lines[0], lines[-1]}
        yield from {_mask(replace(block, text=text)) for text in texts if text and len(text) <= _CHARS} - {"#"}


def _differences(page: Page, block: Block) -> set[tuple[int, str]]:
    if block.kind == "heading" or len(block.text) > _CHARS or "\n" in block.text or block.bbox is None:
        return set()
    words = block.text.split()
    side = "top" if block.bbox[1] < page.height / 2 else "bottom"
    ends = (words[0], words[-1]) if words else ()
    return {(int(word) - page.number, side) for word in ends if word.isdecimal() and len(word) <= 5}


def _in_margin(page: Page, block: Block, margin: float) -> bool:
    if not page.height or block.bbox is None:
        return False
    return block.bbox[1] < margin * page.height or block.bbox[3] > (1 - margin) * page.height


def _mask(block: Block) -> str:
    """What a text has in common from page to page; ``Report 12`` in large type is a heading and no header."""
    masked = _masked(block.text)
    return masked if block.kind != "heading" or masked == "#" else " ".join(block.text.split())


@lru_cache(maxsize=4096)  # each text is asked for about three times
def _masked(text: str) -> str:
    return _OF.sub("#", " ".join(_NUMBER.sub("#", text).split()))
