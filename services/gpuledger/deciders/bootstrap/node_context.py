"""The facts about one node, with the values that the rules derive from them: components, heartbeats, devices. Pure."""

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
from gpuledger.domain.bootstrap.observations import heartbeat_times, unbroken_heartbeats
from gpuledger.events.settings import HEARTBEATS_MAX

HEARTBEAT_MAX_AGE = timedelta(seconds=HEARTBEAT_MAX_AGE_S)


@dataclass(frozen=True)
class NodeContext:
    """The facts about one node, and the settings in force."""

    row: BootstrapNode
    settings: BootstrapSettings
    components: dict[str, BootstrapComponent]
    devices: list[BootstrapDevice]
    health: list[BootstrapHealth]

    @cached_property
    def begun_at(self) -> datetime:
        """When the preparation last began anew; losses before that time do not count."""
        times = (self.row.managed_at, self.row.devices_at, self.settings.begun_at)
        return max(time for time in times if time is not None)

    @cached_property
    def heartbeats(self) -> list[datetime]:
        """Times of heartbeats, the oldest first: the k-th from the end is when the last k in a row began."""
        return heartbeat_times(self.row)

    @cached_property
    def unbroken_heartbeats(self) -> list[datetime]:
        """The heartbeats since the last one that was missed."""
        return unbroken_heartbeats(self.row)

    @property
    def expects_heartbeats(self) -> bool:
        """Whether gpuledger runs an exporter, whose heartbeats count."""
        return self.settings.dcgm_exporter_enabled

    @cached_property
    def monitors(self) -> list[Component]:
        """The monitoring components whose pods have to be ready.

        Of DCGM the exporter's heartbeat says enough: GPU Operator's default is an exporter with a host engine of its
        own, without a pod of DCGM beside it.
        """
        enabled = {
            Component.DCGM: self.settings.dcgm_enabled and not self.expects_heartbeats,
            Component.DCGM_EXPORTER: self.settings.dcgm_exporter_enabled,
        }
        return [component for component, is_enabled in enabled.items() if is_enabled]

    def is_ready(self, component: Component) -> bool:
        """Whether the component's pod is ready."""
        row = self.components.get(component)
        return row is not None and row.ready

    def is_failing(self, component: Component) -> bool:
        """Whether the component's pod fails."""
        row = self.components.get(component)
        return row is not None and row.failing

    def was_ready(self, component: Component) -> bool:
        """Whether the component is ready, or was at some time since the preparation began."""
        row = self.components.get(component)
        return row is not None and (row.ready or (row.contrary_at is not None and row.since > self.begun_at))

    def validator_unready_since(self) -> datetime | None:
        """Since when the preparation waits for the validator; None where it does not."""
        if not self.settings.validator_enabled:
            return None
        row = self.components.get(Component.VALIDATOR)
        if row is None:
            return self.begun_at
        return None if row.ready or row.failing else max(row.since, self.begun_at)

    def gfd_unready_since(self) -> datetime | None:
        """Since when the preparation waits for GPU feature discovery; None where it does not."""
        validated_at = self._validated_at()
        if validated_at is None or not self.settings.gfd_enabled:
            return None
        return self._unready_since(Component.GFD, validated_at)

    def monitors_unready_since(self) -> datetime | None:
        """Since when the preparation waits for the first monitoring component that is not ready; None where none is."""
        validated_at, gfd = self._validated_at(), self.components.get(Component.GFD)
        pending = next((one for one in self.monitors if not self.is_ready(one)), None)
        if validated_at is None or pending is None or not self.row.complete:
            return None
        if self.settings.gfd_enabled and not self.is_ready(Component.GFD):
            return None
        described_at = self.row.complete_at if gfd is None or not self.settings.gfd_enabled else gfd.since
        waits_since = latest([validated_at, self.row.complete_at, described_at])
        return None if waits_since is None else self._unready_since(pending, waits_since)

    def _validated_at(self) -> datetime | None:
        """Since when driver and toolkit work, but not before the preparation began; None while they do not."""
        if self.row.driver_missing:
            return None
        if not self.settings.validator_enabled:
            return self.begun_at
        row = self.components.get(Component.VALIDATOR)
        return max(row.since, self.begun_at) if row is not None and row.ready else None

    def _unready_since(self, component: Component, waits_since: datetime) -> datetime | None:
        """Since when the component, which is waited for since some time, is not ready; None where it is, or fails."""
        row = self.components.get(component)
        if row is None:
            return waits_since
        return None if row.ready or row.failing else max(row.since, waits_since)

    def agent_unready_since(self) -> datetime | None:
        """Since when the node-agent is not ready; None where it is ready or there never was one."""
        row = self.components.get(Component.NODE_AGENT)
        return None if row is None or row.ready or not self.expects_heartbeats else max(row.since, self.begun_at)

    def silence_since(self) -> datetime | None:
        """Since when monitoring is ready and the agent, which stops after enough heartbeats, has reported no loss."""
        if (
            not self.expects_heartbeats
            or len(self.unbroken_heartbeats) < HEARTBEATS_MAX
            or not all(map(self.is_ready, self.monitors))
        ):
            return None
        agent = self.components.get(Component.NODE_AGENT)
        if agent is not None and not agent.ready:
            return None
        rows = [self.components[component] for component in self.monitors] + ([] if agent is None else [agent])
        return latest([*(row.since for row in rows), self.monitoring_lost_at])

    @cached_property
    def is_agent_lost(self) -> bool:
        """Whether the node-agent has been unready for too long."""
        return is_overdue(self.row.agent_overdue_since, self.agent_unready_since())

    @cached_property
    def monitoring_lost_at(self) -> datetime | None:
        """When a monitoring pod, or the agent that watches it, was last lost."""
        rows = [row for component in self.monitors if (row := self.components.get(component)) is not None]
        return latest([*(row.streak.lost_at for row in rows), self._agent_lost_at()])

    def _agent_lost_at(self) -> datetime | None:
        row, record_timeout = self.components.get(Component.NODE_AGENT), self.row.agent_overdue_since
        if row is None or record_timeout is None:
            return None
        lost_at = record_timeout + HEARTBEAT_MAX_AGE
        return None if row.ready and row.since < lost_at else lost_at


def context_of(state: BootstrapFacts, row: BootstrapNode) -> NodeContext:
    """The context of the row's node."""
    components = {one.component: one for one in state.component.where("node", row.node)}
    devices = sorted(state.device.where("node", row.node))
    return NodeContext(row, state.settings_in_force(), components, devices, state.health.where("node", row.node))


def is_overdue(recorded: datetime | None, since: datetime | None) -> bool:
    """Whether the timeout of a wait that began at `since` is recorded."""
    return recorded is not None and since is not None and recorded >= since


def latest(times: Iterable[datetime | None]) -> datetime | None:
    """The latest of the times that are known."""
    return max((time for time in times if time is not None), default=None)
