"""Pure: which versions of a key are new, which is the newest, and what revision each gets."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Document ids with their revision: ``added`` were unknown, ``renumbered`` are known and came back as newest."""

    added: Mapping[str, int]
    renumbered: Mapping[str, int]
    newest: str | None
    newest_is_marker: bool

    @property
    def changed(self) -> bool:
        return bool(self.added or self.renumbered)


def number(known: Mapping[str, Known], versions: Mapping[str, ObjectVersion], all_versions: bool) -> Numbering:
    """Revisions for one key's ``versions`` (by document id, newest first): the newest gets one more than the highest.

    Only the newest is taken unless ``all_versions``. The listing's latest is the newest, whatever was known: a delete
    marker or a newer version may have been removed for good.
    """
    # Right for listings, and only they come here. An event, or a listing older than one, must not pass as the latest:
    # a listing that is out of date puts an old version back until the next one is read.
    newest = next((row for row in known.values() if row.is_newest), None)
    top = max((row.revision for row in known.values()), default=0)
    added: dict[str, int] = {}
    renumbered: dict[str, int] = {}
    last, marker = (newest.document_id, newest.is_delete_marker) if newest else (None, False)
    order = {name: place for place, name in enumerate(versions)}
    for name, version in reversed(list(versions.items())):
        before = known.get(name)
        if before is not None and (before.is_newest or not version.is_latest):
            continue
        if version.is_latest or (all_versions and not _is_older(name, version, newest, order)):
            top += 1
            (renumbered if before else added)[name] = top
            last, marker = name, version.is_delete_marker
        elif all_versions:
            added[name] = BEFORE_COUNTING
    return Numbering(added, renumbered, last, marker)


def _is_older(name: str, version: ObjectVersion, newest: Known | None, order: Mapping[str, int]) -> bool:
    if newest is None:
        return False
    if newest.document_id in order:
        return order[name] > order[newest.document_id]
    return _time(version.last_modified, newest.last_modified) < _time(newest.last_modified, version.last_modified)


def _time(one: float, other: float) -> float:
    # Listings tell whole seconds, events milliseconds: 10.0 may be later than 10.4, so compare what both tell.
    return float(floor(one)) if floor(one) == one or floor(other) == other else one
