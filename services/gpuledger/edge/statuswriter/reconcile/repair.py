"""Removes what another ledger left behind in our cluster: objects of our kinds that our ledger does not have.

Only a person starts this. The status writer never does it, because an empty ledger would then remove everything.
"""

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.kube.ownership import confirm_owner
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.objects import NAMES, Key, resource_of
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.edge.statuswriter.reconcile.verify import OUR_KINDS, observed_objects
from gpuledger.ledger.api import Ledger
from gpuledger.projection.replay import fold_until


async def remove_strange(client: KubeClient, ledger: Ledger, names: SharingNames = NAMES) -> list[Key]:
    """Remove GPUDevices, GPUNodeStates, Devices and ResourceSliceStatuses that the ledger does not have; returns which.

    The ledger is folded after the objects were listed: what was created until then, the ledger had before. A kind that
    nobody keeps is left alone, and so is everything while the module is disabled.

    Raises:
        ForeignClusterError: the cluster does not belong to this ledger; nothing is removed.
        KubeError: the API server cannot be used.
        ProjectionError: the ledger does not fold.
    """
    await confirm_owner(client, ledger.identity.ledger_id, client.url)
    found = await observed_objects(client, OUR_KINDS, names)
    fold = await fold_until(DesiredProjection(names), ledger)
    assert isinstance(fold.state, DesiredState)
    planner = Planner(fold.state, node_feature_rule())
    strange = sorted(key for key in found if fold.state.keeps(key.kind) and planner.desired(key) is None)
    for key in strange:
        try:
            await client.delete(resource_of(key.kind, names), key.name, key.namespace or None, uid=found[key].uid)
        except NotFoundError:
            continue
    return strange
