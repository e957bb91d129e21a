"""Decides what the ConfigMap of a gang is to have, and when it is written. Pure.

A complete gang is written at once, because its pods wait for it. Until then nobody needs the list, so an incomplete one
is written at growing pauses, and at most `partial_writes_max` times a round: however its pods arrive, a gang costs
few writes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import MANAGED_BY
from gpuledger.api.preflight import MASTER_PORT, GangKey, gang_config_map
from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.edge.preflight.coordinator.state import GangPod, GangRow, peers_of_text
from gpuledger.events.preflight import PEERS_MAX, GangPeer

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
DOUBLINGS_MAX: Final = 30

CONFIG_BYTES_MAX: Final = 900 * 1024
"""How much the peers may take in an event: servers of the ledger take 1 MiB a message."""

PEER_BYTES: Final = 48
"""What a peer takes beside its names."""

AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)
"""Due whatever the time is: facts have the time of whoever watches, whose clock may be ahead."""


class GangConfig(NamedTuple):
    """What a gang's ConfigMap is to have; `expected` is 0 where nobody says how many pods the gang has.

    `passed` pods of the gang have passed before, and go through no checks any more; `expected` leaves them out.
    """

    peers: tuple[GangPeer, ...]
    expected: int
    is_complete: bool
    passed: int = 0


class Pacing(NamedTuple):
    """The pause before the second write of an incomplete gang, which doubles with each, and how many there may be.

    A gang that is complete but for pods that have passed before is written once nothing was recorded of its pods for
    `settle_s`: where all of them are replaced, the others of the old ones are still on their way out.
    """

    first_s: float = 2.0
    partial_writes_max: int = 15
    settle_s: float = 30.0


def config_of(row: GangRow, pods: Sequence[GangPod], size: int | None) -> GangConfig | None:
    """What the ConfigMap is to have; None where no pod is left that would read it, so that it stays as it is.

    Pods that have passed stay peers of a gang that was complete with them, for those that are still at it; all others
    that are done are stale. Those that had passed before the round never come to their checks again, so that nobody
    waits for them. Pods beyond the size that its source says count as soon as they have a node: the checks of all of
    them go through one communicator.
    """
    active = [one for one in pods if not one.is_done]
    if not active:
        return None
    uids = {one.uid for one in peers_of_text(row.peers)} if row.is_complete else set()
    stays = uids >= {one.uid for one in active}
    members = [one for one in pods if not one.is_done or (stays and one.has_passed and one.uid in uids)]
    peers = tuple(GangPeer(pod=one.name, uid=one.uid, ip=one.ip, node=one.node) for one in members if one.ip)
    placed = sum(one.node is not None for one in members)
    passed = row.passed if stays else _passed_before(pods, members, size)
    expected = 0 if size is None else max(size - passed, placed)
    return GangConfig(peers, expected, 0 < expected <= len(peers), passed)


def _passed_before(pods: Sequence[GangPod], members: Sequence[GangPod], size: int | None) -> int:
    """How many of the pods that a gang has beside its members need not come, because so many have passed."""
    passed = sum(one.has_passed for one in pods)
    return 0 if size is None else max(0, min(passed, size - len(members)))


def config_of_row(row: GangRow) -> GangConfig | None:
    """What the ConfigMap has, as the ledger has it; None where it was never written."""
    if row.configured_at is None:
        return None
    return GangConfig(peers_of_text(row.peers), row.expected, row.is_complete, row.passed)


def size_of_row(row: GangRow) -> int | None:
    """How many pods the gang has, as far as its ConfigMap says; None where that does not."""
    return row.expected + row.passed or None


def is_too_large(config: GangConfig) -> bool:
    """Whether the gang has more pods, or longer names of them, than an event and a ConfigMap can hold."""
    if max(config.expected, len(config.peers)) > PEERS_MAX:
        return True
    names = sum(len(one.pod) + len(one.uid) + len(one.ip) + len(one.node or "") for one in config.peers)
    return names + PEER_BYTES * len(config.peers) > CONFIG_BYTES_MAX


def size_of(pods: Sequence[GangPod]) -> int | None:
    """How many pods the gang has, as its pods say that are at their checks; the most, where they differ.

    Those that are done may be left from a gang of this name before.
    """
    active = [one for one in pods if not one.is_done] or pods
    return max((one.size for one in active if one.size is not None), default=None)


def source_of(pods: Sequence[GangPod]) -> str:
    """How the gang was found, as its first pod says."""
    return next((one.source for one in pods if one.source), "")


def write_at(row: GangRow, config: GangConfig, pacing: Pacing) -> datetime | None:
    """When a ConfigMap that has something else is to be written; None: not before something else changes."""
    if config.is_complete and config.passed:
        return row.fact_recorded_at + timedelta(seconds=pacing.settle_s)
    if config.is_complete or row.configured_at is None or not row.writes:
        return AT_ONCE
    if row.writes > pacing.partial_writes_max:
        return None
    return row.configured_at + timedelta(seconds=pacing.first_s * 2.0 ** min(row.writes - 1, DOUBLINGS_MAX))


def is_history(row: GangRow, now: datetime, max_age: timedelta) -> bool:
    """Whether nothing was recorded about its pods for so long that they may be others by now."""
    return not is_fresh(now, max_age, row.fact_at, row.fact_recorded_at)


def data_of(gang: str, config: GangConfig) -> dict[str, str | None]:
    """The entries of the ConfigMap; None for those that it must not have yet. `gang` is the id in its namespace."""
    return {
        GangKey.GANG_ID.value: gang,
        GangKey.EXPECTED_COUNT.value: str(config.expected) if config.expected else None,
        GangKey.PASSED_COUNT.value: str(config.passed) if config.passed else None,
        GangKey.PEERS.value: "".join(f"{one.pod}:{one.ip}\n" for one in config.peers),
        GangKey.MASTER_ADDRESS.value: config.peers[0].ip if config.peers else None,
        GangKey.MASTER_PORT.value: str(MASTER_PORT),
    }


def new_config_map(gang: str, namespace: str, data: dict[str, str | None]) -> dict[str, Any]:
    """The object to create."""
    metadata = {"name": gang_config_map(gang), "namespace": namespace, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    return {"metadata": metadata, "data": {key: value for key, value in data.items() if value is not None}}


def patch_of(config_map: dict[str, Any], data: dict[str, str | None]) -> dict[str, Any]:
    """The merge patch after which a ConfigMap of this version has these entries and no others.

    What somebody added may be as large as a ConfigMap can be, or have one of our keys among its binary entries.
    """
    others = dict.fromkeys(config_map.get("data") or {})
    patch = {"metadata": {"resourceVersion": config_map["metadata"]["resourceVersion"]}, "data": others | data}
    return patch | ({"binaryData": None} if config_map.get("binaryData") else {})


def is_ours(config_map: dict[str, Any], gang: str) -> bool:
    """Whether a ConfigMap is one that we made for this gang."""
    labels = config_map["metadata"].get("labels") or {}
    data = config_map.get("data") or {}
    return labels.get(MANAGED_BY_LABEL) == MANAGED_BY and data.get(GangKey.GANG_ID, gang) == gang


def has_all(config_map: dict[str, Any], data: dict[str, str | None]) -> bool:
    """Whether it has the entries, and not those that it must not have."""
    found = config_map.get("data") or {}
    return all(found.get(key) == value for key, value in data.items())
