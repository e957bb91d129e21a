"""Verifies that the API server shows what the ledger says: folds it from the start and compares object by object.

Nothing is written. Objects are compared by digest, and fetched whole only where they differ.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.statuswriter.cache.objects import ListedObject, read
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.fields import digest, for_object, main_of, status_of
from gpuledger.edge.statuswriter.objects import (
    NAMES,
    POOL_KINDS,
    DesiredObject,
    Document,
    Key,
    Kind,
    ObservedObject,
    key_of,
    resource_of,
)
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.events.position import Position
from gpuledger.ledger.api import Ledger
from gpuledger.projection.replay import OnProgress, fold_until

SHOWN_MAX: Final = 20
"""How many differences are shown in full."""

OUR_KINDS: Final = (Kind.DEVICE, Kind.NODE, Kind.SLICE, Kind.SHARED, Kind.RENDERED_CONFIG)
"""Kinds whose every object follows from the ledger."""

COMPARED: Final = (*OUR_KINDS, *POOL_KINDS, Kind.CONFIG_POOL, Kind.KUBE_NODE)
"""Kinds that are compared with the ledger; of Nodes only the annotations of their configuration are.

The others follow from more than the ledger: DaemonSets of components and labels of Nodes from the settings of
`gpuledger up`, the NodeFeatureRule from the build, and Deckhouse's own ModuleConfig drops our condition.
"""


class ObjectDifference(NamedTuple):
    """A place where an object is not as the ledger says; None where a side has nothing there."""

    key: Key
    path: str
    expected: object
    found: object


class KubeVerification(NamedTuple):
    """The outcome: up to where the ledger was folded, how many objects were compared, how many differ, and the first.

    `enabled` False says that the module is disabled, and nobody keeps the objects. `left_out` are the kinds that the
    status writer writes and nobody compared.
    """

    position: Position
    enabled: bool
    objects: int
    differences: int
    first: tuple[ObjectDifference, ...]
    left_out: tuple[Kind, ...]


async def compare(
    client: KubeClient, ledger: Ledger, on_progress: OnProgress | None = None, names: SharingNames = NAMES
) -> KubeVerification:
    """Compare every object of a kind of `COMPARED` with the ledger.

    ResourceSliceStatuses are left out while nobody keeps them; a kind that the server does not have has no objects.
    The API server is listed after the ledger was folded, so what is decided or written meanwhile may show as a
    difference; compare again then.

    Raises:
        KubeError: the API server cannot be read.
        ProjectionError: the ledger does not fold.
    """
    fold = await fold_until(DesiredProjection(names), ledger, on_progress=on_progress)
    state = fold.state
    assert isinstance(state, DesiredState)
    kinds = [kind for kind in COMPARED if kind is not Kind.SLICE or state.settings_in_force().dra_availability]
    planner = Planner(state, node_feature_rule())
    planned = {key: _compared_form(planner.desired(key), key) for kind in kinds for key in _keys(planner, kind)}
    found = await observed_objects(client, kinds, names)
    observed = {key: one for key, one in found.items() if key.kind is not Kind.KUBE_NODE or key in planned}
    complete = {key: for_object(key.kind, one, observed.get(key)) for key, one in planned.items()}
    desired = {key: one for key, one in complete.items() if one is not None}
    keys = list(differing(desired, observed))
    shown = [await _difference(client, key, desired, names) for key in sorted(keys)[:SHOWN_MAX]]
    first = tuple(one for one in shown if one is not None)
    position = ledger.generations.position(fold.sequence)
    left_out = tuple(kind for kind in Kind if kind not in kinds)
    return KubeVerification(position, state.enabled, len(desired.keys() | observed.keys()), len(keys), first, left_out)


def _keys(planner: Planner, kind: Kind) -> Iterator[Key]:
    """The objects to compare: of Nodes only those that a rollout has or had."""
    configured = planner.state.machine_configs.node.rows
    return (key for key in planner.keys(kind) if kind is not Kind.KUBE_NODE or key.name in configured)


def _compared_form(desired: DesiredObject | None, key: Key) -> DesiredObject | None:
    """The part of an object that follows from the ledger alone."""
    if desired is None or key.kind is not Kind.KUBE_NODE:
        return desired
    return desired._replace(main=_of_the_ledger(key.kind, desired.main), status={})


def _of_the_ledger(kind: Kind, main: Document) -> Document:
    return {"annotations": main["annotations"]} if kind is Kind.KUBE_NODE else main


def _read(kind: Kind, names: SharingNames, obj: Document) -> ListedObject:
    listed = read(kind, obj, names)
    if kind is not Kind.KUBE_NODE:
        return listed
    main = digest(_of_the_ledger(kind, main_of(kind, obj, names)))
    return listed._replace(observed=listed.observed._replace(main=main, status=digest({})))


def differing(desired: Mapping[Key, DesiredObject], observed: Mapping[Key, ObservedObject]) -> Iterator[Key]:
    """The objects that are not as desired, by digests; nor is one of ours that the ledger does not have."""
    for key, one in desired.items():
        if decide(key.kind, one, withdrawn=False, observed=observed.get(key)) is not Action.NOTHING:
            yield key
    for key in observed:
        if key.kind in OUR_KINDS and key not in desired:
            yield key


def first_difference(
    key: Key, desired: DesiredObject | None, obj: Document | None, names: SharingNames = NAMES
) -> ObjectDifference | None:
    """Where an object first differs from its desired form."""
    expected = None if desired is None else {"main": desired.main, "status": desired.status}
    found = None if obj is None else _found(key, obj, names)
    if expected is None or found is None:
        return None if expected is found else ObjectDifference(key, "", _flat(expected), _flat(found))
    return next(_walk(key, "", expected, found), None)


def _found(key: Key, obj: Document, names: SharingNames) -> dict[str, Document]:
    main = _of_the_ledger(key.kind, main_of(key.kind, obj, names))
    return {"main": main, "status": {} if key.kind is Kind.KUBE_NODE else status_of(key.kind, obj, names)}


def _flat(parts: dict[str, Document] | None) -> object:
    return None if parts is None else {**parts["main"], "status": parts["status"]}


def _walk(key: Key, path: str, expected: object, found: object) -> Iterator[ObjectDifference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted(expected.keys() | found.keys()):
            yield from _walk(key, f"{path}.{name}", expected.get(name), found.get(name))
    elif expected != found:
        yield ObjectDifference(key, path.removeprefix(".main").removeprefix("."), expected, found)


async def observed_objects(
    client: KubeClient, kinds: Iterable[Kind], names: SharingNames = NAMES
) -> dict[Key, ObservedObject]:
    """The objects of these kinds that are not being deleted."""
    return {
        key_of(kind, one.id): one.observed
        for kind in kinds
        for one in await _listed(client, kind, names)
        if not one.observed.deleting
    }


async def _listed(client: KubeClient, kind: Kind, names: SharingNames) -> list[ListedObject]:
    try:
        return (await client.collect(resource_of(kind, names), partial(_read, kind, names))).items
    except NotFoundError:
        return []


async def _difference(
    client: KubeClient, key: Key, desired: Mapping[Key, DesiredObject], names: SharingNames
) -> ObjectDifference | None:
    obj: Document | None
    try:
        obj = await client.get(resource_of(key.kind, names), key.name, key.namespace or None)
    except NotFoundError:
        obj = None
    return first_difference(key, desired.get(key), obj, names)
