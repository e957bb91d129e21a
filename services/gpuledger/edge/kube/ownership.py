"""Which ledger a cluster belongs to: a ConfigMap of the cluster names it, and every other ledger writes nothing there.

Two ledgers that write to one cluster undo each other's work without end. The first claims the cluster by creating the
ConfigMap, which the API server lets only one do. Nothing here ever takes a cluster from another ledger by itself:
`take_over` is for a person who asked for it. The ConfigMap stays in `kube-system`, which every cluster has, because
it must be the same one whichever namespace a ledger's services run in.
"""

import platform
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog

from gpuledger.api.kinds import CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForeignClusterError,
    NotFoundError,
    UnclaimedClusterError,
)

LEDGER_ID: Final = "ledger-id"
SINCE: Final = "since"
HOST: Final = "host"

TAKE_OVER_TRIES_MAX: Final = 8
"""How often a take-over begins anew because somebody else was faster."""

log = structlog.get_logger("gpuledger.cluster")


class ClusterOwner(NamedTuple):
    """The ledger that a cluster belongs to: its id, since when (RFC 3339), and the host that claimed the cluster.

    The id is empty where the ConfigMap names none.
    """

    ledger_id: str
    since: str
    host: str

    def __str__(self) -> str:
        return f"the ledger {self.ledger_id or '(no id)'} (since {self.since or '?'}, claimed on {self.host or '?'})"


def owner(ledger_id: str, now: datetime) -> ClusterOwner:
    """A ledger as owner of a cluster from now on, claimed on this host."""
    return ClusterOwner(ledger_id, now.isoformat(timespec="seconds"), platform.node())


async def claim(client: KubeClient, ours: ClusterOwner, cluster: str) -> ClusterOwner:
    """Claim a cluster that belongs to no ledger; returns its owner, which has our id. `cluster` is for messages.

    Raises:
        ForeignClusterError: it belongs to another ledger.
        KubeError: the API server cannot be used, or does not let us.
    """
    found = await _owner_of(client)
    if found is None:
        try:
            await client.create(CONFIG_MAPS, _config_map(ours))
        except AlreadyExistsError:
            found = await _owner_of(client)
        else:
            log.info("cluster.claimed", cluster=cluster, ledger=ours.ledger_id)
            return ours
    if found is None or found.ledger_id != ours.ledger_id:
        raise ForeignClusterError(_foreign(cluster, found, ours.ledger_id))
    return found


async def confirm_owner(client: KubeClient, ledger_id: str, cluster: str) -> None:
    """Return if the cluster belongs to this ledger; claims nothing.

    Raises:
        UnclaimedClusterError: it belongs to no ledger yet.
        ForeignClusterError: it belongs to another one.
        KubeError: the API server cannot be used, or does not let us.
    """
    found = await _owner_of(client)
    if found is None:
        raise UnclaimedClusterError(_foreign(cluster, None, ledger_id))
    if found.ledger_id != ledger_id:
        raise ForeignClusterError(_foreign(cluster, found, ledger_id))


async def take_over(client: KubeClient, ours: ClusterOwner) -> ClusterOwner | None:
    """Make the cluster ours, whoever has it; returns who had it before, if that was another ledger.

    Raises:
        ConflictError: others changed the owner again and again meanwhile.
        KubeError: the API server cannot be used, or does not let us.
    """
    for _ in range(TAKE_OVER_TRIES_MAX - 1):
        try:
            return await _replaced(client, ours)
        except (ConflictError, NotFoundError):
            continue
    return await _replaced(client, ours)


async def _replaced(client: KubeClient, ours: ClusterOwner) -> ClusterOwner | None:
    before = await _config_map_of(client)
    if before is None:
        await client.create(CONFIG_MAPS, _config_map(ours))
        return None
    found = _read(before)
    if found.ledger_id == ours.ledger_id:
        return None
    await client.replace(CONFIG_MAPS, _config_map(ours, before["metadata"]["resourceVersion"]))
    return found


async def _owner_of(client: KubeClient) -> ClusterOwner | None:
    found = await _config_map_of(client)
    return None if found is None else _read(found)


async def _config_map_of(client: KubeClient) -> dict[str, Any] | None:
    try:
        return await client.get(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
    except NotFoundError:
        return None


def _read(config_map: dict[str, Any]) -> ClusterOwner:
    data = config_map.get("data") or {}
    return ClusterOwner(data.get(LEDGER_ID, ""), data.get(SINCE, ""), data.get(HOST, ""))


def _config_map(owner: ClusterOwner, resource_version: str | None = None) -> dict[str, Any]:
    metadata = {"name": LEDGER_CONFIG_MAP, "namespace": LEDGER_CONFIG_MAP_NAMESPACE}
    metadata |= {"resourceVersion": resource_version} if resource_version else {}
    data = {LEDGER_ID: owner.ledger_id, SINCE: owner.since, HOST: owner.host}
    return {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": metadata, "data": data}


def _foreign(cluster: str, found: ClusterOwner | None, ours: str) -> str:
    if found is None:
        return (
            f"The cluster {cluster} belongs to no ledger yet. The status writer of a ledger claims it before it "
            "writes; if it stays so, see `statuswriter` in /healthz of `gpuledger up`."
        )
    return (
        f"The cluster {cluster} belongs to {found}, and this is the ledger {ours}, which "
        f"writes nothing to it. Run gpuledger with the cluster's own ledger; or stop that, and give the cluster to "
        f"this ledger by `gpuledger up --take-over` or by `kubectl --namespace {LEDGER_CONFIG_MAP_NAMESPACE} delete "
        f"configmap {LEDGER_CONFIG_MAP}`."
    )
