"""First look at a file: what it is, whether it can be read at all, how many pages it has."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ingest.errors import ParseError
from ingest.parse.result import Inspection
from ingest.parse.sniff import OFFICE, sniff_file

_INSPECTORS = {
    "pdf": "ingest.parse.pdf:inspect",
    "text": "ingest.parse.text:inspect",
    "markdown": "ingest.parse.markdown:inspect",
    "html": "ingest.parse.html:inspect",
}


def inspect(path: str, key: str) -> Inspection:
    """Format, page count and title of a file; raises ParseError with a poison reason for what can't be read."""
    kind = sniff_file(path, key)
    _refuse(kind, key)
    found: Inspection = load(_INSPECTORS[kind])(path)
    return found


def load(target: str) -> Callable[..., Any]:
    """The function that ``module:function`` names."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _refuse(kind: str, key: str) -> None:
    if kind == "empty":
        raise ParseError("empty_file")
    if kind == "locked":
        raise ParseError("password_required", "an encrypted Office file")
    if key.lower().endswith(".pdf") and kind != "pdf" and kind not in OFFICE:
        raise ParseError("not_a_pdf", f"the content is {kind.upper()}")
    if kind not in _INSPECTORS:
        raise ParseError("unsupported_type", f"the content is {kind.upper()}")
