"""Pure: which versions of a key are new, which is the newest, and what revision each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from ingest.model import ObjectVersion

BEFORE_COUNTING = 0  # revision of a version found later that is older than what was counted already


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a version of the key."""

    document_id: str
    revision: int
    last_modified: float
    is_newest: bool
    is_delete_marker: bool


@dataclass(frozen=True, slots=True)
class Numbering:
    """``added`` are unknown versions with their revision, ``renumbered`` known ones that came back as the newest."""

    added: tuple[tuple[ObjectVersion, int], ...]
    renumbered: tuple[tuple[ObjectVersion, int], ...]
    newest: str | None
    newest_is_marker: bool

    @property
    def changed(self) -> bool:
        return bool(self.added or self.renumbered)


def number(known: Mapping[str, Known], versions: Sequence[ObjectVersion], all_versions: bool) -> Numbering:
    """Revisions for one key's ``versions`` (newest first): the newest gets one more than the highest known.

    Only the newest is taken unless ``all_versions``. What is older than the newest known never gets a higher revision.
    """
    newest = next((row for row in known.values() if row.is_newest), None)
    top = max((row.revision for row in known.values()), default=0)
    added: list[tuple[ObjectVersion, int]] = []
    renumbered: list[tuple[ObjectVersion, int]] = []
    marker = newest.is_delete_marker if newest else False
    last = newest.document_id if newest else None
    order = {version.document_id: place for place, version in enumerate(versions)}
    for version in reversed(_distinct(versions)):
        before = known.get(version.document_id)
        if before is not None and not _came_back(before, version):
            continue
        if _is_older(version, newest, order):
            if all_versions and before is None:
                added.append((version, BEFORE_COUNTING))
            continue
        if not (version.is_latest or all_versions):
            continue
        top += 1
        (renumbered if before else added).append((version, top))
        last, marker = version.document_id, version.is_delete_marker
    return Numbering(tuple(added), tuple(renumbered), last, marker)


def _distinct(versions: Sequence[ObjectVersion]) -> list[ObjectVersion]:
    return list({version.document_id: version for version in versions}.values())


def _came_back(known: Known, version: ObjectVersion) -> bool:
    # Without version ids equal content gives an equal version: A, B, A again is a third revision.
    unversioned = version.version.startswith("null:")
    return unversioned and not known.is_newest and version.is_latest and version.last_modified > known.last_modified


def _is_older(version: ObjectVersion, newest: Known | None, order: Mapping[str, int]) -> bool:
    if newest is None:
        return False
    if newest.document_id in order:
        return order[version.document_id] > order[newest.document_id]
    return _time(version.last_modified, newest.last_modified) < _time(newest.last_modified, version.last_modified)


def _time(one: float, other: float) -> float:
    # Listings tell whole seconds, events milliseconds: 10.0 may be later than 10.4, so compare what both tell.
    return float(floor(one)) if floor(one) == one or floor(other) == other else one
