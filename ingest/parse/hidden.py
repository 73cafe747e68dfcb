"""Text that is in the file but can not be seen on the page: a way to speak to a language model behind a reader's back.

Found: render mode 3, and light text on a ground of its own colour. Seen as usual: text over an image, since a
searchable scan keeps its recognised words unseen above the picture of them. Not found: dark text on dark, text under a
shape drawn later, and states set by a resource instead of an operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

Judge = Callable[[dict[str, Any]], bool]

# Operators that set a render mode or a fill colour, save and restore the state, or show something.
_OPERATOR = re.compile(rb"[\s\])>](Tr|r?g|scn?|k|q|Q|T[jJ]|'|\"|Do)(?=[\s\[(</]|$)")
_SHOWS = frozenset((b"Tj", b"TJ", b"'", b'"', b"Do"))
_COLORS = frozenset((b"g", b"rg", b"k", b"sc", b"scn"))
_FILLED, _PAINTED, _CLIPPED = 16, 16 | 32, 64  # MuPDF's char flags: filled; filled or stroked; used as a clip
_WHITE = (1.0, 1.0, 1.0)
_NEAR = 0.06  # of 1: below it two colours look the same
_suspect_forms: dict[int, bool] = {}


def forget() -> None:
    """Drops what is known of the forms of the last document."""
    _suspect_forms.clear()


def suspicious(document: Any, page: Any) -> bool:
    """Whether the page's content, or a form it draws, shows text in render mode 3 or in a colour near white."""
    try:
        content = page.read_contents() or b""
        if shows_unseen(content):
            return True
        return b" Do" in content and any(_form(document, form[0]) for form in page.get_xobjects())
    except (RuntimeError, ValueError):
        return True


def shows_unseen(content: bytes) -> bool:
    """Whether a content stream sets mode 3 or a colour near white and shows something before that ends.

    Found by plain substring search, since a pattern over the whole stream costs as much as reading the page's text.
    """
    flat = b" ".join(content.split())
    for operator, operands in _OPERANDS.items():
        at = flat.find(b" " + operator)
        while at >= 0:
            if _sets_unseen(operator, operands, flat[max(0, at - 40) : at]) and _is_used(flat, operator, at + 1):
                return True
            at = flat.find(b" " + operator, at + 2)
    return False


_OPERANDS = {b"Tr": 1, b"g": 1, b"rg": 3, b"k": 4, b"sc": 0, b"scn": 0}  # 0: as many as the colour space has


def _sets_unseen(operator: bytes, operands: int, before: bytes) -> bool:
    if before.endswith(b" 0") and operator in (b"g", b"rg", b"Tr"):
        return False  # black and ordinary mode: what nearly every page sets again and again
    values = before.split()[-(operands or 1) :]
    if operator == b"Tr":
        return values == [b"3"]
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return False
    if operator == b"k":
        return all(number <= _NEAR for number in numbers)
    if operands:
        return all(number >= 1 - _NEAR for number in numbers)
    return bool(numbers) and (numbers[-1] >= 1 - _NEAR or numbers[-1] <= _NEAR)


def _is_used(flat: bytes, setter: bytes, start: int) -> bool:
    depth = 0
    for match in _OPERATOR.finditer(flat, start + len(setter)):
        operator = match[1]
        if operator in _SHOWS:
            return True
        depth += (operator == b"q") - (operator == b"Q")
        ends = operator == b"Tr" if setter == b"Tr" else operator in _COLORS
        if depth < 0 or (ends and depth == 0):
            return False
    return False


def _form(document: Any, xref: int) -> bool:
    if xref not in _suspect_forms:
        _suspect_forms[xref] = shows_unseen(document.xref_stream(xref) or b"")
    return _suspect_forms[xref]


def judge(page: Any) -> Judge:
    """A function that tells of a span of ``extractDICT`` whether it can not be seen on this page."""
    cache: list[tuple[list[Any], list[Any]]] = []

    def unseen(span: dict[str, Any]) -> bool:
        flags, color = int(span["char_flags"]), _rgb(int(span["color"]))
        unpainted = not flags & (_PAINTED | _CLIPPED) or span["alpha"] < 8
        if not unpainted and (flags & _PAINTED != _FILLED or min(color) < 1 - 4 * _NEAR):
            return False  # dark text is taken as seen: what lies under it need not be asked
        if not cache:
            cache.append(_painted(page))
        images, fills = cache[0]
        point = ((span["bbox"][0] + span["bbox"][2]) / 2, (span["bbox"][1] + span["bbox"][3]) / 2)
        if any(_holds(box, point) for box in images):
            return False
        return unpainted or _near(color, next((fill for box, fill in reversed(fills) if _holds(box, point)), _WHITE))

    return unseen


def _painted(page: Any) -> tuple[list[Any], list[Any]]:
    """Boxes of the images of a page, and (box, colour) of its filled shapes in the order in which they are drawn."""
    images = [box for kind, box in page.get_bboxlog() if kind in ("fill-image", "fill-shade", "fill-imgmask")]
    return images, [(d["rect"], d["fill"]) for d in page.get_cdrawings() if d.get("fill") is not None]


def runs(spans: Iterable[dict[str, Any]], unseen: Judge) -> Iterator[tuple[bool, Sequence[dict[str, Any]]]]:
    """Spans of one line in runs of seen and unseen ones; a blank goes with what stands before it."""
    marked: list[tuple[bool, dict[str, Any]]] = []
    for span in spans:
        blank = not str(span["text"]).strip()
        marked.append((marked[-1][0] if marked and blank else (not blank and unseen(span)), span))
    for is_hidden, group in groupby(marked, key=lambda item: item[0]):
        yield is_hidden, [span for _, span in group]


def _holds(box: Sequence[float], point: tuple[float, float]) -> bool:
    return bool(box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3])


def _rgb(color: int) -> tuple[float, float, float]:
    return (color >> 16 & 255) / 255, (color >> 8 & 255) / 255, (color & 255) / 255


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    if len(other) == 1:
        other = (other[0],) * 3
    return len(other) == 3 and max(abs(a - b) for a, b in zip(one, other, strict=True)) < _NEAR
