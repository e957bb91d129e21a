"""Reads, writes and deletes the ConfigMaps of gangs, and no other: one that is not ours is never touched.

Each write names the version that was looked at before, so that nothing comes between the look and the write.
"""

from typing import Any, NamedTuple

from gpuledger.api.kinds import CONFIG_MAPS
from gpuledger.api.preflight import gang_config_map
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.kube.owner import owned
from gpuledger.edge.preflight.coordinator import metrics
from gpuledger.edge.preflight.coordinator.decide import has_all, is_ours, new_config_map, patch_of
from gpuledger.edge.preflight.coordinator.state import GangRow

Data = dict[str, str | None]


class ForeignConfigMapError(Exception):
    """A ConfigMap of that name is somebody else's."""


class Written(NamedTuple):
    """A ConfigMap that has what it should have; `version` differs with each write."""

    version: str
    is_new: bool


class GangConfigMaps:
    """The ConfigMaps of gangs in a cluster, which go with the ClusterRole `owner`. Every method raises `KubeError`."""

    def __init__(self, client: KubeClient, breaker: CircuitBreaker, owner: str | None = None) -> None:
        self._client = client
        self._breaker = breaker
        self._owner = owner

    async def write(self, row: GangRow, data: Data) -> Written:
        """Have the ConfigMap of a gang have these entries.

        Raises:
            ForeignConfigMapError: there is one that is not ours.
        """
        found = await self._own(row)
        if found is not None and has_all(found, data):
            return Written(_version(found), is_new=False)
        if found is not None and found.get("immutable"):
            await self._delete(row, found)
            found = None
        if found is None:
            config_map = new_config_map(row.id, row.namespace, data)
            async with self._breaker.request():
                made = await self._client.create(CONFIG_MAPS, await owned(self._client, config_map, self._owner))
            metrics.WRITES.labels("create").inc()
            return Written(_version(made), is_new=True)
        async with self._breaker.request():
            made = await self._client.merge_patch(CONFIG_MAPS, _name(row), patch_of(found, data), row.namespace)
        metrics.WRITES.labels("patch").inc()
        return Written(_version(made), is_new=False)

    async def has(self, row: GangRow, data: Data) -> bool:
        """Whether the ConfigMap has these entries.

        Raises:
            ForeignConfigMapError: there is one that is not ours.
        """
        found = await self._own(row)
        return found is not None and has_all(found, data)

    async def delete(self, row: GangRow) -> bool:
        """Delete the ConfigMap; returns whether there was one of ours."""
        try:
            found = await self._own(row)
        except ForeignConfigMapError:
            return False
        if found is None:
            return False
        try:
            await self._delete(row, found)
        except NotFoundError:
            return False
        return True

    async def _delete(self, row: GangRow, found: dict[str, Any]) -> None:
        uid, version = (found["metadata"][one] for one in ("uid", "resourceVersion"))
        async with self._breaker.request():
            await self._client.delete(CONFIG_MAPS, _name(row), row.namespace, uid=uid, resource_version=version)
        metrics.WRITES.labels("delete").inc()

    async def _own(self, row: GangRow) -> dict[str, Any] | None:
        try:
            async with self._breaker.request():
                found = await self._client.get(CONFIG_MAPS, _name(row), row.namespace)
        except NotFoundError:
            return None
        if not is_ours(found, row.id):
            raise ForeignConfigMapError(
                f"The ConfigMap {row.namespace}/{_name(row)} is not gpuledger's, and is left as it is. Delete it, or "
                "give the gang another name."
            )
        return found


def _name(row: GangRow) -> str:
    return gang_config_map(row.id)


def _version(config_map: dict[str, Any]) -> str:
    metadata = config_map["metadata"]
    return f"{metadata['uid']}/{metadata['resourceVersion']}"
