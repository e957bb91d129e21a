"""The rows of machine configuration: definitions, rendered configurations, pools and nodes, as `rollout` folds them."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.machine_config import AgentState
from gpuledger.domain.table import TableSpec

AT_REST: Final = (AgentState.DONE, AgentState.IDLE)
"""The states of an agent that works on nothing."""

AT_WORK: Final = (AgentState.APPLYING, AgentState.REBOOTING)
"""The states of an agent that keeps its node from being of use."""


class MachineConfigRow(NamedTuple):
    """A MachineConfig as defined last; `definition` is a `MachineConfigDefined` as JSON text."""

    name: str
    uid: str
    generation: int
    priority: int
    definition: str
    changed_at: datetime


class ConfigPoolRow(NamedTuple):
    """A MachineConfigPool as defined last; `definition` is a `MachineConfigPoolDefined` as JSON text.

    `waits_since` is when an input of its rendering changed last that has not been rendered, None: none has; `problem`
    is why the last rendering failed, empty: it did not.
    """

    name: str
    uid: str
    generation: int
    definition: str
    paused: bool
    waits_since: datetime | None
    problem: str
    changed_at: datetime


class RenderedConfigRow(NamedTuple):
    """A RenderedMachineConfig; `config` is a `MachineConfigRendered` as JSON text.

    `place` counts the renderings of its pool, from 1: the newest one is the pool's last.
    """

    name: str
    pool: str
    revision: str
    config_hash: str
    config: str
    place: int
    rendered_at: datetime


class ConfigPoolStatusRow(NamedTuple):
    """The state of a pool as it was decided last: a `MachineConfigPoolChanged`, its conditions as JSON text."""

    pool: str
    target_revision: str | None
    current_revision: str | None
    last_successful_revision: str | None
    machine_count: int
    ready_count: int
    updated_count: int
    updating_count: int
    degraded_count: int
    cordoned_count: int
    draining_count: int
    pending_reboot_count: int
    unavailable: int
    max_unavailable: int
    observed_generation: int
    conditions: str
    changed_at: datetime


class ConfigNodeRow(NamedTuple):
    """A Node: what is known of its object, what its agent says, and what was decided about it last.

    `pool` is the one pool that selects it (None: none, or several), `decided_pool` the one of the last
    `NodeConfigChanged`. `desired_set_at`, `drain_started_at` and `drain_retries` are of the update in flight. `since`
    is when `phase` began. `labels` is a JSON object, `annotations` a JSON array of those that its agent writes.
    `agent_revision` is what the agent's last report is about (None: it does not say). Where its agent may still be at
    what the node is not to have any more, `confirms_after` is the time after which it has to report; None as well once
    it has said that it is about the last order. `decided_at` is the time of the last decision about the node.
    """

    node: str
    uid: str | None
    created: datetime | None
    labels: str
    unschedulable: bool
    current_revision: str | None
    agent_state: str | None
    last_error: str
    reboot_pending: bool
    reported_at: datetime | None
    observed_at: datetime | None
    pool: str | None
    decided_pool: str | None
    desired_revision: str | None
    desired_set_at: datetime | None
    cordoned: bool
    drain_started_at: datetime | None
    drain_retries: int
    phase: str
    reason: str
    message: str
    since: datetime | None
    agent_revision: str | None
    annotations: str
    labelled_at: datetime | None
    confirms_after: datetime | None
    decided_at: datetime | None

    def is_confirmed(self) -> bool:
        """Whether the agent has reported since then that it is at rest, or at what the node is to have now."""
        if self.confirms_after is None:
            return True
        is_about_it = self.desired_revision is not None and self.agent_revision == self.desired_revision
        is_later = self.reported_at is not None and self.reported_at > self.confirms_after
        return is_later and (is_about_it or self.agent_state in AT_REST)


class ConfigMaintenanceRow(NamedTuple):
    """How far the maintenance of a node is that the rollout requests.

    `requested_at` is the time of the request in force (None: none is); `owner`, `request`, which is its id, and
    `released_at` are of the last one. `is_answered` says that the maintenance service has decided on that very request.
    `intent` is the id of the newest isolation, and `intent_cordons` whether it cordons. `may_be_cordoned` holds from a
    request on until an isolation that does not cordon is applied; `failed_at` is when giving the node back came to
    nothing. `drain_intent` is the drain that includes the request's, and `drain` how far it is: empty, `draining`,
    `finished` or `superseded`. `retried_at` is when the last retry was over.
    """

    node: str
    owner: str
    requested_at: datetime | None
    released_at: datetime | None
    request: str
    is_answered: bool
    intent: str
    intent_cordons: bool
    may_be_cordoned: bool
    failed_at: datetime | None
    drain_intent: str
    drain: str
    pods_left: int
    message: str
    retried_at: datetime | None

    def awaits_release(self) -> bool:
        """Whether the node was released, and nothing says that it is given back."""
        return self.requested_at is None and self.may_be_cordoned


class ConfigHolderRow(NamedTuple):
    """Somebody who holds devices of a node: an allocation, or a pod."""

    holder: str
    node: str


class ConfigControllerRow(NamedTuple):
    """Where the service `rollout` runs, since which event; `node` is None where that is on no node."""

    id: str
    node: str | None
    event: str


MACHINE_CONFIG = TableSpec("machine_config", MachineConfigRow, ("name",))
CONFIG_POOL = TableSpec("machine_config_pool", ConfigPoolRow, ("name",))
RENDERED_CONFIG = TableSpec("rendered_machine_config", RenderedConfigRow, ("name",))
CONFIG_POOL_STATUS = TableSpec("machine_config_pool_status", ConfigPoolStatusRow, ("pool",))
CONFIG_NODE = TableSpec("machine_config_node", ConfigNodeRow, ("node",))
CONFIG_MAINTENANCE = TableSpec("machine_config_maintenance", ConfigMaintenanceRow, ("node",))
CONFIG_HOLDER = TableSpec("machine_config_holder", ConfigHolderRow, ("holder",))
CONFIG_CONTROLLER = TableSpec("machine_config_controller", ConfigControllerRow, ("id",))

SPECS: tuple[TableSpec[Any], ...] = (
    MACHINE_CONFIG,
    CONFIG_POOL,
    RENDERED_CONFIG,
    CONFIG_POOL_STATUS,
    CONFIG_NODE,
    CONFIG_MAINTENANCE,
    CONFIG_HOLDER,
    CONFIG_CONTROLLER,
)
