"""What the preparation of nodes follows from: what watchers, agents, inventory and pools said, each for itself.

What watchers and agents say is ordered by event time, whatever the order of recording; what other services decided
replaces what they decided before. Nothing here is judged: who folds a fact only notes which nodes it touches.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.bootstrap.state import BOOTSTRAP_SPECS, Bootstrap
from gpuledger.domain.bootstrap.streaks import Streak
from gpuledger.domain.bootstrap.waits import Waits
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.settings import SettingsChanged


class BootstrapNode(NamedTuple):
    """What is known of a node apart from its components' pods and its devices.

    `is_known` says that the inventory keeps the node. `managed_at` and `complete_at` are when that last changed, and
    the first, where the inventory keeps the node no more, when it went; `devices_at` is when the node got the first of
    its devices. `looks` are times of fresh looks at its monitoring, in microseconds since 1970: the k-th from the end
    is when the last k in a row began. `stale_at` is the time of the last look that was not fresh. `verdict` is the
    validator's last, `driver_missing` what the node's agent last said of the driver. The last three before
    `decided_at`, the time of the last decision, say since when something stood unchanged when the time for it was over.
    """

    node: str
    is_known: bool = False
    managed: bool = False
    managed_at: datetime | None = None
    complete: bool = False
    complete_at: datetime | None = None
    devices_at: datetime | None = None
    components_at: datetime | None = None
    verdict: str | None = None
    verdict_at: datetime | None = None
    looks: str = ""
    stale_at: datetime | None = None
    driver_missing: bool | None = None
    driver_told_at: datetime | None = None
    validator_waited: datetime | None = None
    agent_waited: datetime | None = None
    exporter_waited: datetime | None = None
    decided_at: datetime | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the inventory kept the node, and keeps it no more."""
        return not self.is_known and self.managed_at is not None


class BootstrapComponent(NamedTuple):
    """A component on a node, as a streak of being ready or not; what its pod last said of itself."""

    node: str
    component: str
    ready: bool
    since: datetime
    told_at: datetime
    other_at: datetime | None
    failing: bool
    step: str | None

    @property
    def is_there(self) -> bool:
        """Whether a pod was named that has come to anything; one that is ending has not."""
        return self.ready or self.failing or self.step is not None

    @property
    def streak(self) -> Streak:
        """Since when it is ready, or not."""
        return Streak(self.ready, self.since, self.told_at, self.other_at)


class BootstrapHealth(NamedTuple):
    """A card that its node's agent told of, as a streak of being fit or not; `kind` is why it was not."""

    node: str
    card: str
    healthy: bool
    since: datetime
    told_at: datetime
    other_at: datetime | None
    kind: str | None
    message: str

    @property
    def streak(self) -> Streak:
        """Since when it is fit, or not."""
        return Streak(self.healthy, self.since, self.told_at, self.other_at)


class BootstrapDevice(NamedTuple):
    """What the preparation needs of a GPUDevice; `found_at` is when it was last seen again, `assignment` its phase."""

    name: str
    node: str
    card: str
    pci_address: str | None
    provisional: bool
    missing: bool
    found_at: datetime | None
    assignment: str | None


class BootstrapSettings(NamedTuple):
    """The settings in force; `met` says whether the module's prerequisites are.

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
    BOOTSTRAP_NODE,
    BOOTSTRAP_COMPONENT,
    BOOTSTRAP_HEALTH,
    BOOTSTRAP_DEVICE,
    BOOTSTRAP_SETTINGS,
    *BOOTSTRAP_SPECS,
)


class BootstrapFacts(Bootstrap):
    """The state of the preparation's decider: what was said, and what was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Table(BOOTSTRAP_NODE)
        self.component = Table(BOOTSTRAP_COMPONENT, "node")
        self.health = Table(BOOTSTRAP_HEALTH, "node")
        self.device = Table(BOOTSTRAP_DEVICE, "node")
        self.settings = Table(BOOTSTRAP_SETTINGS)
        self.waits: Waits | None = None
        self._touched: set[str] = set()
        self._all_touched = False

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        own: tuple[Table[Any], ...] = (self.node, self.component, self.health, self.device, self.settings)
        return {**{table.spec.name: table for table in own}, **super().tables()}

    def settings_in_force(self) -> BootstrapSettings:
        """The settings, or their defaults where nobody has set any."""
        return self.settings.get(MODULE_CONFIG) or DEFAULT_SETTINGS

    def nodes(self) -> list[str]:
        """Every node that something was said of, or decided about."""
        return sorted({*self.node.rows, *self.phase.rows})

    def touch(self, node: str) -> None:
        """Something that matters to the node's preparation changed."""
        self._touched.add(node)

    def touch_all(self) -> None:
        """Something that matters to every node changed."""
        self._all_touched = True

    def take_touched(self) -> list[str]:
        """The nodes that were touched since the last call, in order."""
        nodes = self.nodes() if self._all_touched else sorted(self._touched)
        self._touched, self._all_touched = set(), False
        return nodes
