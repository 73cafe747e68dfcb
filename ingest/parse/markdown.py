"""Markdown by the tokens of markdown-it, never by pattern: a ``#`` in a fence is no heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.model import Block
from ingest.parse.parts import Whole, inspect_parts, parse_parts
from ingest.parse.result import Inspection, ParsedPages
from ingest.parse.text import decode

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_TAG = re.compile(r"<[^>]*>")


def inspect(path: str) -> Inspection:
    """Number of parts and title of a Markdown file."""
    return inspect_parts(path, "markdown", read)


def parse(path: str, page_from: int, page_to: int) -> ParsedPages:
    """Blocks of some parts of a Markdown file."""
    return parse_parts(path, "markdown", read, (page_from, page_to))


def read(data: bytes) -> Whole:
    """All blocks of a Markdown file; front matter gives the title and is no text."""
    text, repairs = decode(data)
    matter = _FRONT_MATTER.match(text)
    title = _matter_title(matter[1] or "") if matter else ""
    body = text[matter.end() :] if matter else text
    return Whole(tuple(_blocks(_engine().parse(body), body.split("\n"))), title, repairs)


@lru_cache(maxsize=1)
def _engine() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table"])


def _matter_title(matter: str) -> str:
    try:
        fields = yaml.safe_load(matter)
    except yaml.YAMLError:
        return ""
    title = fields.get("title", "") if isinstance(fields, dict) else ""
    return str(title).strip() if isinstance(title, (str, int, float)) else ""


def _blocks(tokens: list[Token], lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = _closing(tokens, at)
        block = _block(token, tokens[at : end + 1], lines)
        # A quote may hold headings and tables: its tokens are walked like those of the document.
        if token.type == "blockquote_open":
            at += 1
            continue
        if block is not None and block.text.strip():
            yield block
        at = end + 1


def _closing(tokens: list[Token], at: int) -> int:
    if tokens[at].nesting != 1:
        return at
    level = tokens[at].level
    return next(n for n in range(at + 1, len(tokens)) if tokens[n].level == level and tokens[n].nesting == -1)


def _block(token: Token, inner: list[Token], lines: list[str]) -> Block | None:
    if token.type == "heading_open":
        return Block("heading", _inline(inner[1]), int(token.tag[1]))
    if token.type == "paragraph_open":
        return Block("text", _inline(inner[1]))
    if token.type in ("fence", "code_block"):
        return Block("code", token.content.rstrip("\n"))
    if token.type == "html_block":
        return Block("text", _TAG.sub("", token.content).strip())
    if token.type == "table_open":
        return Block("table", "\n".join(_rows(inner)))
    if token.type in ("bullet_list_open", "ordered_list_open") and token.map:
        return Block("list", "\n".join(lines[token.map[0] : token.map[1]]).rstrip())
    return None


def _rows(tokens: list[Token]) -> Iterator[str]:
    cells: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(_inline(token))
        elif token.type == "tr_close":
            yield f"| {' | '.join(cells)} |"


def _inline(token: Token) -> str:
    """The words of an inline token; signs of emphasis go, alternative texts and line breaks stay."""
    return "".join(_word(child) for child in token.children or ()).strip()


def _word(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    if token.type in ("text", "code_inline", "image", "text_special"):
        return token.content
    return ""
