"""Saves the objects of the server to a file and loads them, so that a laptop's cluster survives a restart.

The file is replaced as a whole, from time to time and at the end; a crash loses later writes. Nothing is kept here
alone: the ledger has the facts, and services write missing objects again.
"""

import asyncio
from pathlib import Path

import orjson
import structlog

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.store import CollectionKey, Store
from gpuledger.local.kubeapi.terminating import CRDS, NAMESPACES

SAVE_EVERY_S = 30.0
FORMAT = 1

log = structlog.get_logger("gpuledger.local.kubeapi")


class ObjectsFileError(Exception):
    """The file cannot be read; the message says what to do."""


def save(store: Store, path: Path) -> None:
    """Write every object.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(orjson.dumps({"format": FORMAT, "revision": store.revision}) + b"\n")
        for key, collection in store:
            for obj in collection.objects():
                file.write(orjson.dumps([key, obj]) + b"\n")
    fresh.replace(path)


def load(store: Store, path: Path) -> None:
    """Load the file into an empty store; CRDs come first, so that the other objects have their types.

    Raises:
        ObjectsFileError: the file has another format.
        OSError: it cannot be read.
    """
    if not path.exists():
        return
    try:
        head, *lines = path.read_bytes().splitlines()
        about = orjson.loads(head)
        if about["format"] != FORMAT:
            raise ObjectsFileError(
                f"{path} has the format {about['format']}, not {FORMAT}. Move it away and start again."
            )
        objects = [orjson.loads(line) for line in lines]
        found: list[tuple[CollectionKey, Object]] = [((group, plural), obj) for (group, plural), obj in objects]
    except (ValueError, KeyError, TypeError) as error:
        raise ObjectsFileError(f"{path} cannot be read ({error}). Move it away and start again.") from error
    store.restore(int(about["revision"]), sorted(found, key=_order))


async def keep_saved(store: Store, path: Path) -> None:
    """Save after changes until cancelled, then once more."""
    saved = store.revision
    try:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            saved = _saved(store, path, saved)
    finally:
        _saved(store, path, saved)


def _saved(store: Store, path: Path, saved: int) -> int:
    if store.revision == saved:
        return saved
    try:
        save(store, path)
    except OSError as error:
        log.warning("kube.objects-not-saved", path=str(path), reason=str(error))
        return saved
    return store.revision


def _order(found: tuple[CollectionKey, Object]) -> int:
    return {CRDS: 0, NAMESPACES: 1}.get(found[0], 2)
