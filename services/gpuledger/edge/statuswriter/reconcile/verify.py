"""Proof that the API server shows what the ledger says: a fold from the start, compared object by object.

Nothing is written. What is compared by digest first is fetched whole only where it differs.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.statuswriter.cache.objects import View
from gpuledger.edge.statuswriter.cache.observed import Seen, read
from gpuledger.edge.statuswriter.desired.fold import WantedProjection
from gpuledger.edge.statuswriter.desired.objects import Wanted
from gpuledger.edge.statuswriter.reconcile.decide import RESOURCES, Actual, Desired, Document, Key, Kind, key_of
from gpuledger.edge.statuswriter.reconcile.differences import COMPARED, Difference, differing, first_difference
from gpuledger.ledger.api import Ledger, Position
from gpuledger.projection.asof import OnProgress, fold_until

SHOWN_MAX = 20
"""How many differences are told in full."""


class KubeVerification(NamedTuple):
    """The outcome: up to where the ledger was folded, how many objects were compared, how many differ, and the first.

    `enabled` False says that the module is disabled, and nobody keeps the objects.
    """

    position: Position
    enabled: bool
    objects: int
    differences: int
    first: tuple[Difference, ...]


async def compare(client: KubeClient, ledger: Ledger, on_progress: OnProgress | None = None) -> KubeVerification:
    """Compare every GPUDevice, GPUNodeState, pool and ResourceSliceStatus with the ledger.

    ResourceSliceStatuses are left out while nobody keeps them; a kind that the server does not have has no objects.
    The API server is listed after the ledger was folded, so what is decided or written meanwhile may show as a
    difference; compare again then.

    Raises:
        KubeError: the API server cannot be asked.
        ProjectionError: the ledger does not fold.
    """
    fold = await fold_until(WantedProjection(), ledger, on_progress=on_progress)
    state = fold.state
    assert isinstance(state, Wanted)
    desired = _desired(state)
    actual = await _actual(client, state)
    keys = list(differing(desired, actual))
    shown = [await _difference(client, key, desired) for key in sorted(keys)[:SHOWN_MAX]]
    first = tuple(one for one in shown if one is not None)
    position = Position(ledger.generation, fold.sequence)
    return KubeVerification(position, state.enabled, len(desired.keys() | actual.keys()), len(keys), first)


def _desired(state: Wanted) -> dict[Key, Desired]:
    view = View(state, node_feature_rule())
    wanted = {key: view.desired(key) for kind in _compared(state) for key in view.keys(kind)}
    return {key: one for key, one in wanted.items() if one is not None}


def _compared(state: Wanted) -> list[Kind]:
    return [kind for kind in COMPARED if kind is not Kind.SLICE or state.settings_in_force().dra_availability]


async def _actual(client: KubeClient, state: Wanted) -> dict[Key, Actual]:
    return {
        key_of(kind, seen.id): seen.actual
        for kind in _compared(state)
        for seen in await _seen(client, kind)
        if not seen.actual.deleting
    }


async def _seen(client: KubeClient, kind: Kind) -> list[Seen]:
    try:
        return (await client.collect(RESOURCES[kind], partial(read, kind))).items
    except NotFoundError:
        return []


async def _difference(client: KubeClient, key: Key, desired: Mapping[Key, Desired]) -> Difference | None:
    obj: Document | None
    try:
        obj = await client.get(RESOURCES[key.kind], key.name, key.namespace or None)
    except NotFoundError:
        obj = None
    return first_difference(key, desired.get(key), obj)
