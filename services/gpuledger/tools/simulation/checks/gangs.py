"""The gangs that pods of the simulated fleet belong to, as their ConfigMaps have them. Pure."""

from typing import Any, NamedTuple

from gpuledger.api.preflight import CONFIG_MAP_PREFIX, GangKey
from gpuledger.edge.kube.reflector import ChangeBatch, Listed
from gpuledger.tools.simulation.checks.pods import ConfigMapKey

Object = dict[str, Any]


class GangConfig(NamedTuple):
    """What a gang's ConfigMap says: how many pods it has, and the names and addresses of those that are there."""

    key: ConfigMapKey
    expected: int
    peers: tuple[tuple[str, str], ...]

    @property
    def is_complete(self) -> bool:
        """Whether all pods are there."""
        return 0 < self.expected <= len(self.peers)


def gang_config(live: Object) -> GangConfig | None:
    """The gang of a ConfigMap; None where it is none of a gang."""
    metadata, data = live["metadata"], live.get("data") or {}
    expected = data.get(GangKey.EXPECTED_COUNT, "")
    if not metadata["name"].startswith(CONFIG_MAP_PREFIX) or not (expected.isascii() and expected.isdigit()):
        return None
    lines = (line.strip().partition(":") for line in data.get(GangKey.PEERS, "").splitlines())
    peers = tuple((pod, address) for pod, _, address in lines if pod and address)
    return GangConfig(ConfigMapKey(metadata["namespace"], metadata["name"]), int(expected), peers)


GangChanges = Listed[GangConfig | None] | ChangeBatch[GangConfig | None]


class Gangs:
    """The gangs of the cluster."""

    def __init__(self) -> None:
        self._configs: dict[ConfigMapKey, GangConfig] = {}

    def follow(self, changes: GangChanges) -> set[ConfigMapKey]:
        """Take changes of ConfigMaps; returns the gangs that they concern."""
        if isinstance(changes, Listed):
            before = set(self._configs)
            self._configs = {one.key: one for one in changes.objects if one is not None}
            return before | set(self._configs)
        touched = set()
        for change in changes.changes:
            if change.object is None:
                continue
            touched.add(change.object.key)
            if change.type == "DELETED":
                self._configs.pop(change.object.key, None)
            else:
                self._configs[change.object.key] = change.object
        return touched

    def complete(self, key: ConfigMapKey) -> dict[str, str] | None:
        """The addresses of a gang's pods by name; None where some are missing."""
        config = self._configs.get(key)
        return dict(config.peers) if config is not None and config.is_complete else None
