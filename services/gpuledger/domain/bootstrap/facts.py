"""The rows of the `bootstrap` decider: facts from watchers, agents, inventory and pools, and the settings.

Facts from watchers and agents take effect by event time, whatever the order of recording; a decision of another service
replaces its previous one. A fold only marks the nodes that a fact touches; it decides nothing.
"""

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.bootstrap.state import BOOTSTRAP_SPECS, Bootstrap
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.settings import SettingsChanged


class Streak(NamedTuple):
    """Whether something holds, since when, when that was last reported, and when the contrary last was."""

    holds: bool
    since: datetime
    reported_at: datetime
    contrary_at: datetime | None

    @property
    def lost_at(self) -> datetime | None:
        """When the latest report said that it does not hold."""
        return self.contrary_at if self.holds else self.reported_at


def extend_streak(streak: Streak | None, holds: bool, time: datetime) -> Streak:
    """The streak with one more report, which may be late."""
    if streak is None:
        return Streak(holds, time, time, None)
    if holds == streak.holds:
        return _confirmed(streak, time)
    if time >= streak.reported_at:
        return Streak(holds, time, time, streak.reported_at)
    return _interrupted(streak, time)


def _confirmed(streak: Streak, time: datetime) -> Streak:
    is_of_streak = streak.contrary_at is None or streak.contrary_at < time
    since = min(streak.since, time) if is_of_streak else streak.since
    return streak._replace(since=since, reported_at=max(streak.reported_at, time))


def _interrupted(streak: Streak, time: datetime) -> Streak:
    """Add a late report of the contrary: the streak began after it."""
    contrary_at = time if streak.contrary_at is None else max(streak.contrary_at, time)
    since = streak.reported_at if streak.since <= time else streak.since
    return streak._replace(since=since, contrary_at=contrary_at)


class BootstrapNode(NamedTuple):
    """The facts about a node other than its components' pods and its devices.

    `managed_at` and `complete_at` are when these flags last changed; where `in_inventory` is false, `managed_at` is
    when the inventory withdrew the node. `devices_at` is when the node got its first device. `heartbeats` are times in
    microseconds since 1970: the k-th from the end is when the last k in a row began. `stale_at` is the time of the last
    missed one. `verdict` is the validator's last one; `driver_missing` comes from the node's agent. The columns
    `..._overdue_since` hold the beginning of the last wait that timed out; `decided_at` is the time of the last
    decision.
    """

    node: str
    in_inventory: bool = False
    managed: bool = False
    managed_at: datetime | None = None
    complete: bool = False
    complete_at: datetime | None = None
    devices_at: datetime | None = None
    components_at: datetime | None = None
    verdict: str | None = None
    verdict_at: datetime | None = None
    heartbeats: str = ""
    stale_at: datetime | None = None
    driver_missing: bool | None = None
    driver_reported_at: datetime | None = None
    validator_overdue_since: datetime | None = None
    agent_overdue_since: datetime | None = None
    exporter_overdue_since: datetime | None = None
    decided_at: datetime | None = None
    gfd_overdue_since: datetime | None = None
    dcgm_overdue_since: datetime | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the inventory had the node and no longer has it."""
        return not self.in_inventory and self.managed_at is not None


class BootstrapComponent(NamedTuple):
    """A component on a node, with the streak of its readiness and the last state of its pod."""

    node: str
    component: str
    ready: bool
    since: datetime
    reported_at: datetime
    contrary_at: datetime | None
    failing: bool
    step: str | None

    @property
    def has_pod(self) -> bool:
        """Whether there is a pod that has started; one that is ending does not count."""
        return self.ready or self.failing or self.step is not None

    @property
    def streak(self) -> Streak:
        """Since when it is ready or not."""
        return Streak(self.ready, self.since, self.reported_at, self.contrary_at)


class BootstrapHealth(NamedTuple):
    """The health of a card as its node's agent reports it, with its streak; `kind` is the kind of failure."""

    node: str
    card: str
    healthy: bool
    since: datetime
    reported_at: datetime
    contrary_at: datetime | None
    kind: str | None
    message: str

    @property
    def streak(self) -> Streak:
        """Since when it is healthy or not."""
        return Streak(self.healthy, self.since, self.reported_at, self.contrary_at)


class BootstrapDevice(NamedTuple):
    """The facts about a GPUDevice; `found_at` is when it was last seen again, `assignment` its assignment's phase."""

    name: str
    node: str
    card: str
    pci_address: str | None
    provisional: bool
    missing: bool
    found_at: datetime | None
    assignment: str | None
    ignored: bool


class BootstrapSettings(NamedTuple):
    """The settings in force; `met` is whether the module's prerequisites are met.

    `begun_at` is when the module or one of its components was last switched on or off.
    """

    module: str
    changed_at: datetime | None
    begun_at: datetime | None
    met: bool
    enabled: bool
    validator_enabled: bool
    gfd_enabled: bool
    dcgm_enabled: bool
    dcgm_exporter_enabled: bool
    heartbeats: int
    recovery_heartbeats: int
    validation_timeout_s: int


SWITCHES = ("enabled", "validator_enabled", "gfd_enabled", "dcgm_enabled", "dcgm_exporter_enabled")
VALUES = (*SWITCHES, "heartbeats", "recovery_heartbeats", "validation_timeout_s")
"""The settings that the preparation depends on."""

_DEFAULTS = {name: getattr(SettingsChanged(), name) for name in VALUES}
DEFAULT_SETTINGS = BootstrapSettings(MODULE_CONFIG, None, None, False, **_DEFAULTS)

BOOTSTRAP_NODE = TableSpec("bootstrap_node", BootstrapNode, ("node",))
BOOTSTRAP_COMPONENT = TableSpec("bootstrap_component", BootstrapComponent, ("node", "component"))
BOOTSTRAP_HEALTH = TableSpec("bootstrap_health", BootstrapHealth, ("node", "card"))
BOOTSTRAP_DEVICE = TableSpec("bootstrap_device", BootstrapDevice, ("name",))
BOOTSTRAP_SETTINGS = TableSpec("bootstrap_settings", BootstrapSettings, ("module",))
SPECS: tuple[TableSpec[Any], ...] = (
    *BOOTSTRAP_SPECS,
    BOOTSTRAP_NODE,
    BOOTSTRAP_COMPONENT,
    BOOTSTRAP_HEALTH,
    BOOTSTRAP_DEVICE,
    BOOTSTRAP_SETTINGS,
)


class PendingTimeout(NamedTuple):
    """A node's wait for a component since a time."""

    since: datetime
    node: str


class Timeouts:
    """The nodes' waits by component, the longest first, so that a query costs what is due and not how many wait."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[PendingTimeout]] = {}
        self._noted: dict[tuple[str, str], datetime] = {}

    def track(self, component: str, since: datetime | None, node: str) -> None:
        """Set since when the node waits for the component; None: not any more."""
        if since is None:
            self._noted.pop((component, node), None)
        elif self._noted.get((component, node)) != since:
            self._noted[component, node] = since
            heappush(self._heaps.setdefault(component, []), PendingTimeout(since, node))

    def expired(self, component: str, until: datetime, most: int) -> Iterator[PendingTimeout]:
        """Remove and return the waits that began at `until` or before, at most `most`; those that ended are skipped."""
        heap = self._heaps.get(component, [])
        while most > 0 and heap and heap[0].since <= until:
            wait = heappop(heap)
            if self._noted.get((component, wait.node)) == wait.since:
                del self._noted[component, wait.node]
                most -= 1
                yield wait


class BootstrapFacts(Bootstrap):
    """The state of the `bootstrap` decider: facts and decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Table(BOOTSTRAP_NODE)
        self.component = Table(BOOTSTRAP_COMPONENT, "node")
        self.health = Table(BOOTSTRAP_HEALTH, "node")
        self.device = Table(BOOTSTRAP_DEVICE, "node")
        self.settings = Table(BOOTSTRAP_SETTINGS)
        self.timeouts: Timeouts | None = None
        self._touched: set[str] = set()
        self._all_touched = False

    def settings_in_force(self) -> BootstrapSettings:
        """The settings, or their defaults where nobody has set any."""
        return self.settings.get(MODULE_CONFIG) or DEFAULT_SETTINGS

    def nodes(self) -> list[str]:
        """Every node with a fact or a decision."""
        return sorted({*self.node.rows, *self.phase.rows})

    def touch(self, node: str) -> None:
        """Mark the node: a fact about its preparation changed."""
        self._touched.add(node)

    def touch_all(self) -> None:
        """Mark every node."""
        self._all_touched = True

    def take_touched(self) -> list[str]:
        """The nodes marked since the last call, in order."""
        nodes = self.nodes() if self._all_touched else sorted(self._touched)
        self._touched, self._all_touched = set(), False
        return nodes
