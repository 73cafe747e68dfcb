"""HTML: headings, paragraphs, lists, tables and code in order; scripts, styles and navigation are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ingest.model import Block
from ingest.parse.clean import clean
from ingest.parse.parts import Whole, inspect_parts, parse_parts
from ingest.parse.result import Inspection, ParsedPages
from ingest.parse.text import decode

_DROPPED = "script, style, noscript, template, nav, svg, iframe, object, [hidden], [aria-hidden=true]"
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_CONTAINERS = frozenset(
    {"html", "body", "main", "article", "section", "div", "header", "footer", "aside", "form", "fieldset", "figure"}
    | {"details", "center", "blockquote", "dl"}
)
_PARAGRAPHS = frozenset({"p", "dt", "dd", "figcaption", "summary", "address", "legend", "caption"})
_SPACE = re.compile(r"[ \t\r\n\f]+")
_META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.I)


def inspect(path: str) -> Inspection:
    """Number of parts and title of a page."""
    return inspect_parts(path, "html", read)


def parse(path: str, page_from: int, page_to: int) -> ParsedPages:
    """Blocks of some parts of a page."""
    return parse_parts(path, "html", read, (page_from, page_to))


def read(data: bytes) -> Whole:
    """All blocks of a page; the title is that of its head."""
    text, repairs = _decode(data)
    tree = LexborHTMLParser(text)
    for node in tree.css(_DROPPED):
        node.decompose()
    for node in tree.css("[style]"):
        if _HIDDEN_STYLE.search(node.attributes.get("style") or ""):
            node.decompose()
    title = tree.css_first("title")
    blocks, more = _cleaned(_walk(tree.body)) if tree.body is not None else ((), 0)
    return Whole(blocks, _words(title) if title is not None else "", repairs + more)


def _decode(data: bytes) -> tuple[str, int]:
    stated = _META_CHARSET.search(data[:4096])
    if stated and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        try:
            return clean(data.decode(stated[1].decode()))
        except (LookupError, UnicodeDecodeError):
            pass  # a page that lies about its charset
    return decode(data)


def _cleaned(blocks: Iterator[Block]) -> tuple[tuple[Block, ...], int]:
    """Entities can spell what the bytes did not hold, so the blocks are cleaned once more."""
    kept, repairs = [], 0
    for block in blocks:
        text, more = clean(block.text)
        repairs += more
        if text.strip():
            kept.append(Block(block.kind, text, block.level))
    return tuple(kept), repairs


def _walk(root: LexborNode) -> Iterator[Block]:
    """Blocks below a node, without recursion: pages nest deeper than Python does."""
    loose: list[str] = []
    stack: list[LexborNode | None] = [root.child]
    while stack:
        node = stack.pop()
        if node is None:
            yield from _flush(loose)
            continue
        stack.append(node.next) if node.next is not None else None
        tag = node.tag or ""
        if tag in _CONTAINERS:
            yield from _flush(loose)
            stack.append(None)
            stack.append(node.child) if node.child is not None else None
        elif (block := _block(node, tag)) is not None:
            yield from _flush(loose)
            yield block
        elif tag == "br":
            loose.append("\n")
        elif not tag.startswith(("_", "-!")) or tag in ("-text",):
            loose.append(node.text(deep=True) or "")
    yield from _flush(loose)


def _flush(loose: list[str]) -> Iterator[Block]:
    text = _SPACE.sub(" ", "".join(loose)).strip()
    loose.clear()
    if text:
        yield Block("text", text)


def _block(node: LexborNode, tag: str) -> Block | None:
    if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
        return Block("heading", _words(node), int(tag[1]))
    if tag in _PARAGRAPHS:
        return Block("text", _words(node))
    if tag == "pre":
        return Block("code", (node.text(deep=True) or "").strip("\n"))
    if tag == "table":
        return Block("table", "\n".join(_rows(node)))
    if tag in ("ul", "ol"):
        return Block("list", "\n".join(f"- {words}" for item in node.css("li") if (words := _own_words(item))))
    return None


def _rows(table: LexborNode) -> Iterator[str]:
    for row in table.css("tr"):
        cells = [_words(cell) for cell in row.css("th, td")]
        if any(cells):
            yield f"| {' | '.join(cells)} |"


def _words(node: LexborNode) -> str:
    return _SPACE.sub(" ", node.text(deep=True, separator="") or "").strip()


def _own_words(item: LexborNode) -> str:
    """The words of a list item without those of lists inside it, which have items of their own."""
    own = [
        child.text(deep=True) or "" for child in item.iter(include_text=True) if (child.tag or "") not in ("ul", "ol")
    ]
    return _SPACE.sub(" ", "".join(own)).strip()
