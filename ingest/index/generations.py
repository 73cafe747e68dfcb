"""Physical indices, one for each generation, and the alias that readers use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ingest.errors import StoreRefused
from ingest.index.client import Cluster

MAX_NAME_BYTES = 255
# Under load nothing searches the new index: no refresh, and replicas get finished segments later.
LOAD_SETTINGS: Mapping[str, str] = {"index.refresh_interval": "-1", "index.number_of_replicas": "0"}


def index_name(alias: str, strategy: str, model: str, now: float) -> str:
    """A legal, lower-case name; ``now`` in seconds since 1970, to the second."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    parts = [re.sub(r"[^a-z0-9_.]+", "-", part.lower()).strip("-") for part in (alias, strategy, model)]
    return f"{'-'.join(parts).lstrip('-_.')[: MAX_NAME_BYTES - 40]}-{stamp}"


def write_alias(index: str) -> str:
    """The hidden alias that writers use: with ``require_alias`` a deleted index is an error, not a new one by guess."""
    return f"{index}.write"


def create(cluster: Cluster, name: str, body: Mapping[str, Any]) -> str:
    """Makes the index and its write alias and gives its uuid; raises StoreRefused if the name is taken."""
    aliases = {write_alias(name): {"is_write_index": True, "is_hidden": True}}
    cluster.call("PUT", f"/{name}", {**body, "aliases": aliases})
    return uuid(cluster, name)


def create_or_adopt(cluster: Cluster, name: str, body: Mapping[str, Any]) -> str:
    """As ``create``; an index of that name with the same ``_meta`` is adopted.

    It was made by a run that was killed then, or by one that began at the same moment.
    """
    try:
        return create(cluster, name, body)
    except StoreRefused:
        if not cluster.find("GET", f"/{name}/_settings", filter_path="*.settings.index.uuid"):
            raise
    if meta(cluster, name) != body["mappings"]["_meta"]:
        raise StoreRefused(f"index {name} is there and is not ours; delete or rename it, then run again")
    return uuid(cluster, name)


def uuid(cluster: Cluster, index: str) -> str:
    """The uuid of an index; another one under the same name means that it was deleted and made anew."""
    answer = cluster.find("GET", f"/{index}/_settings", filter_path="*.settings.index.uuid")
    if not answer or index not in answer:
        raise StoreRefused(f"index {index} does not exist; run a backfill with a new generation")
    return str(answer[index]["settings"]["index"]["uuid"])


def exists(cluster: Cluster, index: str, expected_uuid: str) -> bool:
    """Whether the index is there and is the one that had this uuid; raises StoreRefused for another of its name."""
    if not cluster.find("GET", f"/{index}/_settings", filter_path="*.settings.index.uuid"):
        return False
    require(cluster, index, expected_uuid)
    return True


def require(cluster: Cluster, index: str, expected_uuid: str = "") -> None:
    """Raises StoreRefused unless the index is there, is the one that the ledger knows, and has its write alias."""
    found = uuid(cluster, index)
    if expected_uuid and found != expected_uuid:
        raise StoreRefused(f"index {index} was deleted and made anew (uuid {found}, not {expected_uuid})")
    if targets(cluster, write_alias(index)) != [index]:
        raise StoreRefused(f"alias {write_alias(index)} does not point to {index} alone; add it again")


def meta(cluster: Cluster, index: str) -> dict[str, Any]:
    """The ``_meta`` of an index: its fingerprints."""
    answer = cluster.call("GET", f"/{index}/_mapping")
    return dict(answer[index]["mappings"].get("_meta", {}))


# ---------------------------------------------------------------- the readers' alias


def targets(cluster: Cluster, alias: str) -> list[str]:
    """The indices behind an alias, sorted; none if there is no such alias."""
    return sorted(cluster.find("GET", f"/_alias/{alias}") or ())


def serving(cluster: Cluster, alias: str) -> str | None:
    """The one index behind the readers' alias, or None; raises StoreRefused where it is ambiguous or no alias."""
    found = targets(cluster, alias)
    if len(found) > 1:
        raise StoreRefused(f"alias {alias} points to {', '.join(found)}; readers see chunks twice: remove all but one")
    if not found and cluster.find("GET", f"/{alias}/_settings", filter_path="*.settings.index.uuid"):
        raise StoreRefused(
            f"{alias} is an index, and the name is needed for an alias. Nothing was deleted: move it to another "
            "name with _reindex and delete it yourself, or set index.alias to another name"
        )
    return found[0] if found else None


def ensure_alias(cluster: Cluster, alias: str, index: str) -> str:
    """The index that ``alias`` serves: ``index`` where it served none before."""
    found = serving(cluster, alias)
    if found is None:
        cluster.call("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": alias}}]})
    return found or index


def promote(cluster: Cluster, alias: str, new: str) -> None:
    """Lets ``alias`` serve ``new`` in one step, instead of what it served; a repeat changes nothing."""
    old = serving(cluster, alias)
    if old == new:
        return
    remove = [{"remove": {"index": old, "alias": alias, "must_exist": True}}] if old else []
    actions = [*remove, {"add": {"index": new, "alias": alias}}]
    cluster.call("POST", "/_aliases", {"actions": actions})


# ---------------------------------------------------------------- settings of a load


def bulk_settings_on(cluster: Cluster, index: str) -> dict[str, str | None]:
    """Turns refresh and replicas off and gives what was set before (None = not set), for ``restore_settings``.

    Keep the first answer: after a crash a second call would save the settings of the load.
    """
    saved = settings(cluster, index)
    cluster.call("PUT", f"/{index}/_settings", LOAD_SETTINGS)
    return saved


def restore_settings(cluster: Cluster, index: str, saved: Mapping[str, str | None]) -> None:
    """Sets the settings of a load exactly as they were; a repeat changes nothing."""
    cluster.call("PUT", f"/{index}/_settings", dict(saved))


def settings(cluster: Cluster, index: str) -> dict[str, str | None]:
    """The settings that a load changes, as they are now; None = not set."""
    answer = cluster.call("GET", f"/{index}/_settings", flat_settings=True)
    found = answer[index]["settings"]
    return {name: found.get(name) for name in LOAD_SETTINGS}
