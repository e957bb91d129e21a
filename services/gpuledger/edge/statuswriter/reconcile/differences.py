"""Where objects of the API server are not as the ledger says. Pure; for people who ask, and for tests."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.edge.statuswriter.reconcile.decide import (
    POOL_KINDS,
    Action,
    Actual,
    Desired,
    Document,
    Key,
    Kind,
    decide,
    main_of,
    status_of,
)

OURS: Final = (Kind.DEVICE, Kind.NODE, Kind.SLICE)
"""Kinds whose every object follows from the ledger."""

COMPARED: Final = (*OURS, *POOL_KINDS)
"""Kinds that are held against the ledger."""


class Difference(NamedTuple):
    """A place where an object is not as the ledger says; None: there is nothing on that side."""

    key: Key
    path: str
    expected: object
    found: object


def differing(desired: Mapping[Key, Desired], actual: Mapping[Key, Actual]) -> Iterator[Key]:
    """The objects that are not as wanted, by digests; one that the ledger never knew is not as wanted either."""
    for key, wanted in desired.items():
        found = actual.get(key)
        if decide(key.kind, wanted, withdrawn=False, actual=found) is not Action.NOTHING:
            yield key
    for key in actual:
        if key.kind in OURS and key not in desired:
            yield key


def first_difference(key: Key, desired: Desired | None, obj: Document | None) -> Difference | None:
    """Where an object first differs from what is wanted."""
    if desired is None or obj is None:
        return None if desired is None and obj is None else Difference(key, "", _told(desired), _found(key, obj))
    found = {"main": main_of(key.kind, obj), "status": status_of(key.kind, obj)}
    return next(_walk(key, "", {"main": desired.main, "status": desired.status}, found), None)


def _told(desired: Desired | None) -> object:
    return None if desired is None else {**desired.main, "status": desired.status}


def _found(key: Key, obj: Document | None) -> object:
    return None if obj is None else {**main_of(key.kind, obj), "status": status_of(key.kind, obj)}


def _walk(key: Key, path: str, expected: object, found: object) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted(expected.keys() | found.keys()):
            yield from _walk(key, f"{path}.{name}", expected.get(name), found.get(name))
    elif expected != found:
        yield Difference(key, path.removeprefix(".main").removeprefix("."), expected, found)
