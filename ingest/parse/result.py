"""What an engine and an inspection give back."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.model import Failure, Page


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a first look tells: the format by content, the number of pages, and the title the file states."""

    format: str
    pages: int
    title: str = ""


@dataclass(frozen=True, slots=True)
class ParsedPages:
    """Pages of one range; a page is in ``pages`` or in ``failed_pages``, never in both.

    ``outline`` holds the entries (level, title, page) that point into the range.
    """

    pages: tuple[Page, ...]
    engine: str = ""
    title: str = ""
    outline: tuple[tuple[int, str, int], ...] = ()
    failed_pages: tuple[tuple[int, Failure], ...] = ()
    repairs: int = 0
