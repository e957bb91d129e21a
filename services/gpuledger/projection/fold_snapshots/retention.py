"""Which snapshots are kept, and which objects of a ledger's snapshots nobody needs any more.

The last ones are kept, then the last of each day, then the last of each month, by when their events were recorded. A
piece is deleted that no manifest names, once it is old enough not to be of a snapshot that is being written. Whoever
collects holds the lock of those who write; and a reader that finds a piece gone begins at the snapshot before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.projection.fold_snapshots.manifest import (
    ManifestError,
    Place,
    digest_of_key,
    digests_in,
    folds_folder,
    pieces_folder,
    place_of_key,
)
from gpuledger.projection.snapshot_store import OTHER_LAYOUTS_KEPT_DAYS
from gpuledger.runtime.objects import ObjectMissingError, Objects, StoredObject

PIECE_AGE_MIN: Final = timedelta(hours=6)
"""A younger piece may be of a snapshot whose manifest is not written yet; clocks may differ by less."""


@dataclass(frozen=True, slots=True)
class SnapshotRetention:
    """How many snapshots of a fold are kept: the last ones, then one a day, then one a month."""

    last: int = 512
    days: int = 400
    months: int = 240


class Collected(NamedTuple):
    """How many objects were deleted."""

    manifests: int
    pieces: int
    bytes: int


def kept(places: Iterable[Place], retention: SnapshotRetention) -> set[Place]:
    """Those of a fold's snapshots that are kept; the last one always is."""
    ordered = sorted(places, key=lambda one: one.order, reverse=True)
    days: dict[str, Place] = {}
    months: dict[str, Place] = {}
    for place in ordered:
        days.setdefault(f"{place.recorded_at:%Y-%m-%d}", place)
        months.setdefault(f"{place.recorded_at:%Y-%m}", place)
    found = {*ordered[: max(1, retention.last)]}
    found.update(list(days.values())[: retention.days])
    found.update(list(months.values())[: retention.months])
    return found


async def collect(
    objects: Objects, ledger_id: str, layouts: Iterable[str], now: datetime, retention: SnapshotRetention
) -> Collected:
    """Delete what nobody needs of a ledger's snapshots.

    Args:
        objects: the object store.
        ledger_id: the ledger.
        layouts: the folders of this build's folds; those of others go when they are old.
        now: the time.
        retention: how many snapshots are kept.

    Raises:
        ObjectsError: the store cannot be used; what is deleted stays so, and nothing that is needed is.
    """
    pieces = [one async for one in objects.list(pieces_folder(ledger_id))]  # before the manifests that may name them
    folders: dict[str, list[StoredObject]] = {}
    async for one in objects.list(folds_folder(ledger_id)):
        folders.setdefault(one.key.rpartition("/")[0], []).append(one)
    needed, manifests, ours = set[str](), 0, set(layouts)
    for folder, stored in folders.items():
        keys = {} if _is_outlived(folder, stored, ours, now) else _kept_keys(stored, retention)
        for one in stored:
            if one.key in keys:
                needed |= await _digests(objects, one.key)
            else:
                await objects.delete(one.key)
                manifests += 1
    old = [one for one in pieces if digest_of_key(one.key) not in needed and now - one.modified_at >= PIECE_AGE_MIN]
    for one in old:
        await objects.delete(one.key)
    return Collected(manifests, len(old), sum(one.size for one in old))


def _is_outlived(folder: str, stored: Sequence[StoredObject], ours: set[str], now: datetime) -> bool:
    """Whether a folder is of another build that has written nothing for long."""
    last = max(one.modified_at for one in stored)
    return folder not in ours and now - last >= timedelta(days=OTHER_LAYOUTS_KEPT_DAYS)


def _kept_keys(stored: Sequence[StoredObject], retention: SnapshotRetention) -> set[str]:
    places = {place: one.key for one in stored if (place := place_of_key(one.key)) is not None}
    staying = kept(places, retention)
    others = {one.key for one in stored if place_of_key(one.key) is None}  # not ours to delete
    return others | {key for place, key in places.items() if place in staying}


async def _digests(objects: Objects, key: str) -> set[str]:
    try:
        return digests_in(await objects.get(key))
    except (ObjectMissingError, ManifestError):
        return set()  # nobody can load it
