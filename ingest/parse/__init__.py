"""From the bytes of a document to pages of blocks: one file per format, run in a child process (``sandbox.py``).

An engine is a function ``(path, page_from, page_to) -> ParsedPages``; pages count from 1, both ends are read. To add
one: write it in a module of its own, name it in ``ENGINES``, and give its formats a row in ``LADDERS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from ingest.config import ParseConfig
from ingest.model import fingerprint

ENGINES: Mapping[str, str] = {
    "pymupdf": "ingest.parse.pdf:parse",
    "text": "ingest.parse.text:parse",
    "markdown": "ingest.parse.markdown:parse",
    "html": "ingest.parse.html:parse",
}
LADDERS: Mapping[str, tuple[str, ...]] = {
    "pdf": ("pymupdf",),
    "text": ("text",),
    "markdown": ("markdown",),
    "html": ("html",),
}

# Raised by hand when the same bytes come out as other blocks, so that artifacts of the old rules are not taken for new.
RULES = 1
_LIBRARIES = ("pymupdf", "markdown-it-py", "selectolax")


def parser_fingerprint(config: ParseConfig) -> str:
    """Name of all engines with their versions; limits such as ``timeout_s`` change no text and are left out."""
    del config  # no option of today changes what a page says
    options = {"rules": RULES, "engines": dict(ENGINES), "libraries": {name: version(name) for name in _LIBRARIES}}
    return fingerprint("parse", str(RULES), options)
