"""How many units a pool could have at most: with every device that its selectors select, whoever has it now. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.domain.mig.geometry import COMPUTE_SLICES, partitions_of
from gpuledger.domain.pools.spec import Spec, facts_of, matches, profiles_of, selects, units
from gpuledger.events.pool import PoolDefined

LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a node, by its name."""


def potential_units(spec: Spec, devices: Iterable[GpuDevice], labels_of: LabelsOf, cap: int) -> int | None:
    """The units of all devices that the pool selects and that are not ignored, faulted and missing ones included.

    `cap` is the most slices of a unit. None while the pool selects no device: nodes that come later may bring any.
    """
    by_node: dict[str, list[int]] = defaultdict(list)
    for row in devices:
        if not row.ignored and matches(spec, facts_of(row)):
            by_node[row.node].append(_partitions(spec.definition, row))
    chosen = [
        count
        for node, counts in by_node.items()
        if selects(spec.nodes, node, labels_of(node))
        for count in sorted(counts, reverse=True)[: spec.definition.devices_per_node_max]
    ]
    return units(spec.definition, cards=len(chosen), partitions=sum(chosen), cap=cap) if chosen else None


def _partitions(definition: PoolDefined, row: GpuDevice) -> int:
    """How many partitions of the pool's profile a card has; as many as any has while nobody reports its profiles."""
    profiles = profiles_of(row.mig_profiles)
    if definition.unit != UNIT_MIG or not profiles:
        return COMPUTE_SLICES
    return partitions_of(definition.mig_profile or "", profiles) or 0
