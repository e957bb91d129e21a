"""A node as its facts show it: components, heartbeats and devices, asked for as the rules need them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S, Component
from gpuledger.domain.bootstrap.facts import (
    BootstrapComponent,
    BootstrapDevice,
    BootstrapFacts,
    BootstrapHealth,
    BootstrapNode,
    BootstrapSettings,
)
from gpuledger.domain.bootstrap.observations import beats_of, look_times
from gpuledger.events.settings import HEARTBEATS_MAX

HEARTBEAT_MAX_AGE = timedelta(seconds=HEARTBEAT_MAX_AGE_S)


@dataclass(frozen=True)
class NodeView:
    """The facts about one node, and the settings in force."""

    row: BootstrapNode
    settings: BootstrapSettings
    components: dict[str, BootstrapComponent]
    devices: list[BootstrapDevice]
    health: list[BootstrapHealth]

    @cached_property
    def begun_at(self) -> datetime:
        """When the preparation last began from nothing; what was lost before says nothing now."""
        times = (self.row.managed_at, self.row.devices_at, self.settings.begun_at)
        return max(time for time in times if time is not None)

    @cached_property
    def looks(self) -> list[datetime]:
        """Fresh looks at the monitoring, the oldest first: the k-th from the end is when the last k in a row began."""
        return look_times(self.row)

    @cached_property
    def beats(self) -> list[datetime]:
        """The fresh looks since the last one that was not."""
        return beats_of(self.row)

    @property
    def tells_heartbeats(self) -> bool:
        """Whether there is an exporter of ours whose heartbeats count."""
        return self.settings.dcgm_exporter_enabled

    @cached_property
    def monitors(self) -> list[Component]:
        """The components that watch over the node's GPUs and are ours to run."""
        enabled = {
            Component.DCGM: self.settings.dcgm_enabled,
            Component.DCGM_EXPORTER: self.settings.dcgm_exporter_enabled,
        }
        return [component for component, is_enabled in enabled.items() if is_enabled]

    def is_ready(self, component: Component) -> bool:
        """Whether the component's pod is ready."""
        row = self.components.get(component)
        return row is not None and row.ready

    def is_failing(self, component: Component) -> bool:
        """Whether the component's pod will not get ready by itself."""
        row = self.components.get(component)
        return row is not None and row.failing

    def was_ready(self, component: Component) -> bool:
        """Whether the component is ready, or was at some time since the preparation began."""
        row = self.components.get(component)
        return row is not None and (row.ready or (row.other_at is not None and row.since > self.begun_at))

    def validator_since(self) -> datetime | None:
        """Since when a validator that may still get ready is not; None where there is none to wait for."""
        if not self.settings.validator_enabled:
            return None
        row = self.components.get(Component.VALIDATOR)
        if row is None:
            return self.begun_at
        return None if row.ready or row.failing else max(row.since, self.begun_at)

    def agent_since(self) -> datetime | None:
        """Since when the node-agent is not ready; None where it is, or where there never was one."""
        row = self.components.get(Component.NODE_AGENT)
        return None if row is None or row.ready or not self.tells_heartbeats else max(row.since, self.begun_at)

    def silence_since(self) -> datetime | None:
        """Since when an agent that has told all its looks had nothing to say against monitoring that is ready."""
        if not self.tells_heartbeats or len(self.beats) < HEARTBEATS_MAX or not all(map(self.is_ready, self.monitors)):
            return None
        agent = self.components.get(Component.NODE_AGENT)
        if agent is not None and not agent.ready:
            return None
        rows = [self.components[component] for component in self.monitors] + ([] if agent is None else [agent])
        return latest([*(row.since for row in rows), self.monitoring_lost_at])

    @cached_property
    def is_agent_lost(self) -> bool:
        """Whether the node-agent has not been ready for too long."""
        return is_over(self.row.agent_waited, self.agent_since())

    @cached_property
    def monitoring_lost_at(self) -> datetime | None:
        """When a pod of the monitoring, or the agent that looks at it, was last lost."""
        rows = [row for component in self.monitors if (row := self.components.get(component)) is not None]
        return latest([*(row.streak.lost_at for row in rows), self._agent_lost_at()])

    def _agent_lost_at(self) -> datetime | None:
        row, waited = self.components.get(Component.NODE_AGENT), self.row.agent_waited
        if row is None or waited is None:
            return None
        lost_at = waited + HEARTBEAT_MAX_AGE
        return None if row.ready and row.since < lost_at else lost_at


def view_of(state: BootstrapFacts, row: BootstrapNode) -> NodeView:
    """The node that the row is of."""
    components = {one.component: one for one in state.component.where("node", row.node)}
    devices = sorted(state.device.where("node", row.node))
    return NodeView(row, state.settings_in_force(), components, devices, state.health.where("node", row.node))


def is_over(recorded: datetime | None, since: datetime | None) -> bool:
    """Whether it was recorded that this wait, which lasts since then, was over."""
    return recorded is not None and since is not None and recorded >= since


def latest(times: Iterable[datetime | None]) -> datetime | None:
    """The latest of the times that there are."""
    return max((time for time in times if time is not None), default=None)
