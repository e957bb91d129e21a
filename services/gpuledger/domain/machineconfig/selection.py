"""Which nodes and MachineConfigs a MachineConfigPool selects. Pure.

A pool without a selector selects nothing, an empty selector everything, as label selectors of Kubernetes do. A pool
that is not fully understood selects nothing, so that it never takes more than its author meant.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gpuledger.domain.dra.objects import NodeExpression
from gpuledger.domain.pools.spec import requirements_of, selects
from gpuledger.events.machine_config import MachineConfigDefined, MachineConfigPoolDefined
from gpuledger.events.pool import LabelSelector

DEFINITIONS_CACHED_MAX: Final = 1024


@lru_cache(DEFINITIONS_CACHED_MAX)
def read_config(definition: str) -> MachineConfigDefined:
    """The MachineConfig in a row."""
    return MachineConfigDefined.model_validate_json(definition)


@lru_cache(DEFINITIONS_CACHED_MAX)
def read_pool(definition: str) -> MachineConfigPoolDefined:
    """The MachineConfigPool in a row."""
    return MachineConfigPoolDefined.model_validate_json(definition)


class Requirements(NamedTuple):
    """What a selector requires: labels with one value, which are quick to compare, and everything else."""

    labels: tuple[tuple[str, str], ...]
    expressions: tuple[NodeExpression, ...]

    def hold(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether an object of this name with these labels is selected."""
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        return selects(self.expressions, name, labels)


class Selection(NamedTuple):
    """What a pool requires of its nodes and of its MachineConfigs; None where it selects none of them."""

    nodes: Requirements | None
    configs: Requirements | None

    def has_node(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node belongs to the pool."""
        return self.nodes is not None and self.nodes.hold(name, labels)

    def has_config(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the MachineConfig goes into the pool's configuration."""
        return self.configs is not None and self.configs.hold(name, labels)


@lru_cache(DEFINITIONS_CACHED_MAX)
def read_selection(definition: str) -> Selection:
    """What the pool in a row selects."""
    return selection_of(read_pool(definition))


def selection_of(pool: MachineConfigPoolDefined) -> Selection:
    """What a pool selects."""
    if pool.problems:
        return Selection(None, None)
    return Selection(_requirements(pool.node_selector), _requirements(pool.config_selector))


def in_merge_order(configs: Iterable[tuple[str, MachineConfigDefined]]) -> list[tuple[str, MachineConfigDefined]]:
    """MachineConfigs with their names as they are merged: by priority, then by name; the last one wins."""
    return sorted(configs, key=lambda item: (item[1].priority, item[0]))


def _requirements(selector: LabelSelector | None) -> Requirements | None:
    if selector is None:
        return None
    expressions = requirements_of(LabelSelector(requirements=selector.requirements))
    return Requirements(tuple(sorted(selector.labels.items())), expressions)
