"""Characters that no later stage can bear, taken out once for all engines."""

from __future__ import annotations

import re
from dataclasses import replace

from ingest.failure import failure
from ingest.parse.result import ParsedPages

# Lone halves break hashing and JSON, NUL breaks stores, the rest is invisible and splits words for the tokenizer.
_BAD = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BREAKS = re.compile("\r\n?|[\x0c\x85\u2028\u2029]")
_SOFT_HYPHEN = re.compile("\u00ad(?!\n|$)")


def clean(text: str) -> tuple[str, int]:
    """The text fit for every later stage, and how many characters were removed for it.

    Halves of a pair that stand side by side become one character; every kind of line break becomes ``\\n``; a soft
    hyphen stays only at the end of a line, where it tells that a word goes on. None of these three counts as a repair.
    """
    if not _SUSPECT.search(text):
        return text, 0
    text = _BREAKS.sub("\n", _PAIR.sub(_join_pair, text))
    if "\u00ad" in text:
        text = _SOFT_HYPHEN.sub("", text)
    return _BAD.subn("", text)


def _join_pair(match: re.Match[str]) -> str:
    return match[0].encode("utf-16", "surrogatepass").decode("utf-16")


def whole(parsed: ParsedPages, first: int, last: int) -> ParsedPages:
    """What an engine gave for pages ``first`` to ``last``, fit for every later stage: whatever it left is put right.

    Texts are cleaned, and pages of which it says nothing failed with ``pages_missing``.
    """
    pages, repairs = [], 0
    for page in parsed.pages:
        made = [clean(block.text) for block in page.blocks]
        repairs += sum(number for _, number in made)
        blocks = (replace(block, text=text) for block, (text, _) in zip(page.blocks, made, strict=True))
        pages.append(replace(page, blocks=tuple(blocks)))
    told = {page.number for page in pages} | {number for number, _ in parsed.failed_pages}
    missing = [(number, failure("pages_missing")) for number in range(first, last + 1) if number not in told]
    return replace(
        parsed,
        pages=tuple(pages),
        title=clean(parsed.title)[0],
        outline=tuple((level, clean(title)[0], page) for level, title, page in parsed.outline),
        failed_pages=tuple(sorted([*parsed.failed_pages, *missing], key=lambda pair: pair[0])),
        repairs=parsed.repairs + repairs,
    )
