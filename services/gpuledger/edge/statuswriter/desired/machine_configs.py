"""Desired RenderedMachineConfigs, statuses of MachineConfigPools and annotations of Nodes, as decided. Pure.

A RenderedMachineConfig is ours and stays until the rollout withdraws it, a MachineConfigPool a person's, a Node its
kubelet's. Nothing here decides what a node is to have.
"""

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.conditions import rfc3339, rfc3339_exact
from gpuledger.api.machine_config import (
    ANNOTATION_CORDONED,
    ANNOTATION_DESIRED,
    ANNOTATION_DESIRED_SET_AT,
    ANNOTATION_DRAIN_RETRY_COUNT,
    ANNOTATION_DRAIN_STARTED_AT,
    ANNOTATION_POOL,
    REBOOT_INTERVAL_DEFAULT_S,
    RebootStrategy,
)
from gpuledger.domain.conditions import put_conditions
from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.inventory.status import condition
from gpuledger.domain.machineconfig.rendered_document import rendered_document
from gpuledger.domain.machineconfig.state import IDLE
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import LatestRows, RowEnds
from gpuledger.edge.statuswriter.fields import canonical, main_of, rendered_identity
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Kind
from gpuledger.events.machine_config import (
    MachineConfigPoolChanged,
    MachineConfigPoolDefined,
    MachineConfigPoolGone,
    MachineConfigPoolWithdrawn,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigReported,
)
from gpuledger.events.node import NodeGone

STATUS_FIELDS: Final[Mapping[str, str]] = {
    "target_revision": "targetRevision",
    "current_revision": "currentRevision",
    "last_successful_revision": "lastSuccessfulRevision",
    "machine_count": "machineCount",
    "ready_count": "readyMachineCount",
    "updated_count": "updatedMachineCount",
    "updating_count": "updatingMachineCount",
    "degraded_count": "degradedMachineCount",
    "unavailable": "unavailableMachineCount",
    "cordoned_count": "cordonedMachineCount",
    "draining_count": "drainingMachineCount",
    "pending_reboot_count": "pendingRebootCount",
    "max_unavailable": "maxUnavailable",
    "observed_generation": "observedGeneration",
}
"""What of a pool's state its object shows beside its conditions, and under which name."""


class RebootPolicy(NamedTuple):
    """Whether a pool's nodes reboot where their configuration requires it, and how soon after the last time."""

    strategy: str
    min_interval_s: int


POLICY_DEFAULT: Final = RebootPolicy(RebootStrategy.NEVER, REBOOT_INTERVAL_DEFAULT_S)


class ConfigPool(NamedTuple):
    """A MachineConfigPool; `definition` is a JSON list of its object's UID and its reboot policy, None: it is gone."""

    pool: str
    definition: str | None
    at: datetime

    @property
    def uid(self) -> str | None:
        """The UID of its object; None: it is gone."""
        return None if self.definition is None else str(orjson.loads(self.definition)[0])

    @property
    def policy(self) -> RebootPolicy:
        """Its reboot policy."""
        return POLICY_DEFAULT if self.definition is None else RebootPolicy(*orjson.loads(self.definition)[1:])


class RenderedConfig(NamedTuple):
    """A RenderedMachineConfig: a `MachineConfigRendered` as JSON, and the reboot policy of its pool as a JSON list."""

    name: str
    pool: str
    rendered: str
    policy: str

    @property
    def payload(self) -> MachineConfigRendered:
        """What was rendered."""
        return MachineConfigRendered.model_validate_json(self.rendered)


class ConfigPoolState(NamedTuple):
    """The state of a pool as it was decided last; `fields` are those of `STATUS_FIELDS`, as a JSON object."""

    pool: str
    target: str | None
    fields: str


class ConfigPoolCondition(NamedTuple):
    """A condition of a pool; `changed_at` is when its status last changed."""

    pool: str
    type: str
    status: str
    reason: str
    message: str
    changed_at: datetime


class ConfigNode(NamedTuple):
    """What a Node shows of its configuration; `annotations` is a JSON object.

    `agent_state` is what its agent reported last. `ended_at` is since when no pool has the node.
    """

    node: str
    uid: str
    pool: str | None
    desired: str | None
    phase: str
    annotations: str
    agent_state: str | None
    ended_at: datetime | None

    @property
    def shown(self) -> dict[str, str]:
        """The annotations."""
        found: dict[str, str] = orjson.loads(self.annotations)
        return found


CONFIG_POOL: Final = TableSpec("config_pool_definition", ConfigPool, ("pool",))
RENDERED_CONFIG: Final = TableSpec("rendered_config", RenderedConfig, ("name",))
CONFIG_POOL_STATE: Final = TableSpec("config_pool_state", ConfigPoolState, ("pool",))
CONFIG_POOL_CONDITION: Final = TableSpec("config_pool_condition", ConfigPoolCondition, ("pool", "type"))
CONFIG_NODE: Final = TableSpec("config_node", ConfigNode, ("node",))


class MachineConfigs(TableState):
    """Pools, rendered configurations and nodes, as far as the API server shows them."""

    def __init__(self) -> None:
        self._pools = LatestRows(CONFIG_POOL)
        self.pool = self._pools.table
        self.rendered = Table(RENDERED_CONFIG, "pool")
        self.state = Table(CONFIG_POOL_STATE)
        self.condition = Table(CONFIG_POOL_CONDITION, "pool")
        self.node = Table(CONFIG_NODE)
        for table in (self.rendered, self.state, self.condition, self.node):
            table.never_written()
        self._ends = RowEnds(self.node, lambda row: row.ended_at)
        self._touched_rendered: dict[str, None] = {}
        self._touched_pools: dict[str, None] = {}
        self._touched_nodes: dict[str, None] = {}

    def take_rendered(self) -> dict[str, None]:
        """The rendered configurations that changed since the last call."""
        touched, self._touched_rendered = self._touched_rendered, {}
        return touched

    def take_pools(self) -> dict[str, None]:
        """The pools that changed since the last call."""
        touched, self._touched_pools = self._touched_pools, {}
        return touched

    def take_nodes(self) -> dict[str, None]:
        """The nodes that changed since the last call."""
        touched, self._touched_nodes = self._touched_nodes, {}
        return touched

    def put_pool(self, fact: Fact, row: ConfigPool) -> bool:
        """A pool was defined, or is gone; False where the ledger has something later."""
        is_taken = self._pools.put(fact, row)
        if is_taken:
            self.touch(row.pool)
        return is_taken

    def put_rendered(self, row: RenderedConfig) -> None:
        """A configuration was rendered, or its pool has another reboot policy."""
        if self.rendered.get(row.name) != row:
            self.rendered.delete(row.name)
            self.rendered.put(row)
            self._touched_rendered[row.name] = None

    def put_node(self, fact: Fact, row: ConfigNode) -> None:
        """Another decision about a node."""
        self.node.put(row)
        self._ends.note(row)
        self._ends.forget(fact)
        self._touched_nodes[row.node] = None

    def touch(self, pool: str) -> None:
        """Something else was decided about a pool."""
        self._touched_pools[pool] = None

    def forget_state(self, pool: str) -> None:
        """The pool, or all that was decided about it, is gone."""
        self.state.delete(pool)
        for row in self.condition.where("pool", pool):
            self.condition.delete((pool, row.type))
        self.touch(pool)

    def policy_of(self, pool: str) -> RebootPolicy:
        """The reboot policy of a pool."""
        row = self.pool.get(pool)
        return POLICY_DEFAULT if row is None else row.policy

    def pools(self) -> list[str]:
        """The pools whose objects have a status of ours."""
        return [pool for pool in self.state.rows if (row := self.pool.get(pool)) is not None and row.uid is not None]


def desired_rendered(state: MachineConfigs, name: str) -> DesiredObject | None:
    """How a RenderedMachineConfig should be; None where there should be none."""
    row = state.rendered.get(name)
    if row is None:
        return None
    document = _document(row.pool, row.payload, RebootPolicy(*orjson.loads(row.policy)))
    return DesiredObject(main_of(Kind.RENDERED_CONFIG, document), {}, about=rendered_identity(document))


def _document(pool: str, rendered: MachineConfigRendered, policy: RebootPolicy) -> Document:
    """The object; raises ValueError where the event has contents that are not what their hashes say."""
    strategy: Any = policy.strategy
    definition = MachineConfigPoolDefined(
        uid=pool, reboot_strategy=strategy, reboot_min_interval_s=policy.min_interval_s
    )
    return rendered_document(pool, rendered, definition)


def desired_status(state: MachineConfigs, pool: str) -> DesiredObject | None:
    """The status of a MachineConfigPool; None where nothing was decided, or its object is gone."""
    row, decided = state.pool.get(pool), state.state.get(pool)
    if row is None or row.uid is None or decided is None:
        return None
    fields = orjson.loads(decided.fields)
    generation = {"observedGeneration": fields["observedGeneration"]}
    conditions = [
        condition(one.type, one.status, one.reason, one.changed_at, one.message) | generation
        for one in state.condition.where("pool", pool)
    ]
    return DesiredObject({}, canonical(fields | {"conditions": conditions}), uid=row.uid)


def annotations_of(data: NodeConfigChanged) -> dict[str, str]:
    """The annotations of a Node that say so; none where no pool has it.

    The node's agent repeats when the order was given, so that is there to the microsecond.
    """
    if data.pool is None:
        return {}
    found = {
        ANNOTATION_POOL: data.pool,
        ANNOTATION_DESIRED: data.desired_revision,
        ANNOTATION_DESIRED_SET_AT: None if data.desired_set_at is None else rfc3339_exact(data.desired_set_at),
        ANNOTATION_CORDONED: "true" if data.cordoned else None,
        ANNOTATION_DRAIN_STARTED_AT: None if data.drain_started_at is None else rfc3339(data.drain_started_at),
        ANNOTATION_DRAIN_RETRY_COUNT: str(data.drain_retries) if data.drain_retries else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _policy_text(policy: RebootPolicy) -> str:
    return json_text(list(policy))


def _defined(state: MachineConfigs, fact: Fact, data: MachineConfigPoolDefined) -> None:
    pool, policy = intern(fact.event.subject), RebootPolicy(data.reboot_strategy, data.reboot_min_interval_s)
    before = state.pool.get(pool)
    row = ConfigPool(pool, json_text([data.uid, *policy]), fact.event.time)
    if state.put_pool(fact, row):
        if before is not None and before.uid != data.uid:
            state.forget_state(pool)
        for one in state.rendered.where("pool", pool):
            state.put_rendered(one._replace(policy=_policy_text(policy)))


def _gone(state: MachineConfigs, fact: Fact, _data: MachineConfigPoolGone) -> None:
    pool = intern(fact.event.subject)
    if state.put_pool(fact, ConfigPool(pool, None, fact.event.time)):
        state.forget_state(pool)


def _rendered(state: MachineConfigs, fact: Fact, data: MachineConfigRendered) -> None:
    """One that nobody can write as an object stops the fold: a decision with a content that has another hash.

    What is rendered again while its object is there, perhaps from other MachineConfigs, is that object still.
    """
    pool = intern(fact.event.subject)
    before = state.rendered.get(data.name)
    if before is not None and (before.pool, before.payload.config_hash) == (pool, data.config_hash):
        return
    policy = state.policy_of(pool)
    _document(pool, data, policy)
    state.put_rendered(RenderedConfig(data.name, pool, json_text(data.model_dump(mode="json")), _policy_text(policy)))


def _rendered_withdrawn(state: MachineConfigs, _fact: Fact, data: MachineConfigRenderedWithdrawn) -> None:
    state.rendered.delete(data.name)


def _changed(state: MachineConfigs, fact: Fact, data: MachineConfigPoolChanged) -> None:
    """A decision that was recorded behind its pool's end is void."""
    pool = intern(fact.event.subject)
    row = state.pool.get(pool)
    if row is None or row.uid is None:
        return
    fields = {shown: value for name, shown in STATUS_FIELDS.items() if (value := getattr(data, name)) is not None}
    state.state.put(ConfigPoolState(pool, data.target_revision, json_text(fields)))
    for gone in {one.type for one in state.condition.where("pool", pool)} - {one.type for one in data.conditions}:
        state.condition.delete((pool, gone))
    put_conditions(state.condition, pool, data.conditions, fact.event.time)
    state.touch(pool)


def _withdrawn(state: MachineConfigs, fact: Fact, _data: MachineConfigPoolWithdrawn) -> None:
    state.forget_state(fact.event.subject)


def _node_changed(state: MachineConfigs, fact: Fact, data: NodeConfigChanged) -> None:
    node = intern(fact.event.subject)
    before = state.node.get(node)
    reported = before.agent_state if before is not None and before.uid == data.uid else None
    ended_at = fact.event.time if data.pool is None else None
    text = json_text(annotations_of(data))
    row = ConfigNode(node, data.uid, data.pool, data.desired_revision, data.phase, text, reported, ended_at)
    state.put_node(fact, row)


def _reported(state: MachineConfigs, fact: Fact, data: NodeConfigReported) -> None:
    row = state.node.get(fact.event.subject)
    if row is not None:
        state.node.put(row._replace(agent_state=data.state))


def _node_gone(state: MachineConfigs, fact: Fact, data: NodeGone) -> None:
    """Nothing is decided any more about a Node that is gone, so its annotations are not shown for good."""
    row = state.node.get(fact.event.subject)
    if row is not None and data.uid in (None, row.uid):
        gone = row._replace(pool=None, desired=None, phase=IDLE, annotations=json_text({}), ended_at=fact.event.time)
        state.put_node(fact, gone)


HANDLERS: Final[Handlers] = {
    MachineConfigPoolDefined: _defined,
    MachineConfigPoolGone: _gone,
    MachineConfigRendered: _rendered,
    MachineConfigRenderedWithdrawn: _rendered_withdrawn,
    MachineConfigPoolChanged: _changed,
    MachineConfigPoolWithdrawn: _withdrawn,
    NodeConfigChanged: _node_changed,
    NodeConfigReported: _reported,
    NodeGone: _node_gone,
}
