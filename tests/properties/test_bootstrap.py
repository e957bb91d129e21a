"""What holds for a node's preparation whatever happens to it, in whatever order, and after every single thing."""

from typing import Any, Literal

from hypothesis import settings as running
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpuledger.deciders.bootstrap.decide import is_in_force, on_fact
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.domain.bootstrap.facts import BootstrapFacts
from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceHealthChanged, DeviceStateChanged, DeviceWithdrawn
from gpuledger.events.envelope import Decoded
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeBootstrapChanged, NodeComponentsObserved, NodeInventoryWithdrawn
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.bootstrap import (
    ALL_READY,
    MODULE,
    NODE,
    Prepared,
    assigned,
    cards,
    components,
    described,
    detected,
    heartbeat,
    inventory,
    shown,
)
from support.events import GENERATION, rows_of
from support.thoroughness import examples

LEGAL = {
    "Discovered": {"Validating"},
    "Validating": {"Ready", "PendingAssignment", "Faulted", "Discovered"},
    "Ready": {"PendingAssignment", "Validating", "Faulted", "Discovered"},
    "PendingAssignment": {"Assigned", "Ready", "Validating", "Faulted", "Discovered"},
    "Assigned": {"Ready", "Faulted"},
    "Faulted": {"Validating", "Discovered"},
}
"""Where the state that a GPUDevice shows may go."""

PHASES: dict[str | None, set[str]] = {
    None: {"Disabled", "Validating"},
    "Disabled": {"Validating"},
    "Validating": {"GFD", "Monitoring", "Ready", "ValidatingFailed", "Disabled"},
    "GFD": {"Validating", "Monitoring", "Ready", "ValidatingFailed", "Disabled"},
    "Monitoring": {"Validating", "GFD", "Ready", "ValidatingFailed", "Disabled"},
    "Ready": {"Validating", "ValidatingFailed", "Disabled"},
    "ValidatingFailed": {"Validating", "Disabled"},
}

HELD = {"Assigned", "Unassigning"}
HARDWARE = {"HardwareFault", "NotObserved", "Recovering"}
names = st.sampled_from(["d1", "d2"])
standings = st.sampled_from(["ready", "ready", "waiting", "failing"])
validators = st.sampled_from(["ready", "ready", "waiting", "failing", "failing:toolkit-validation", "waiting:cuda"])


@st.composite
def observed_components(draw: st.DrawFn) -> NodeComponentsObserved:
    """Mostly everything ready, for otherwise nothing ever is."""
    if draw(st.booleans()):
        return components(**ALL_READY, **draw(st.sampled_from([{}, {"node_agent": "ready"}])))
    recorded = {name: draw(standings) for name in ("gfd", "dcgm", "dcgm_exporter", "node_agent") if draw(st.booleans())}
    return components(**recorded, **({"validator": draw(validators)} if draw(st.booleans()) else {}))


flags = st.sampled_from([True, True, True, False])
module_settings = st.builds(
    SettingsChanged,
    enabled=flags,
    validator_enabled=flags,
    gfd_enabled=flags,
    dcgm_enabled=flags,
    dcgm_exporter_enabled=flags,
    heartbeats=st.integers(1, 4),
    recovery_heartbeats=st.integers(1, 4),
)


class Preparation(RuleBasedStateMachine):
    """One node, two places for devices, and everybody who reports on them; time never stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Prepared()
        self.now = 1.0
        self.shown: dict[str, str] = {}
        self.phase: str | None = None

    def record(self, subject: str, data: Payload, **others: Any) -> None:
        self.now += 1
        before = dict(self.assignments())
        decided = self.node.record(self.now, subject, data, **others)
        self.follow(before, decided)

    def assignments(self) -> dict[str, str | None]:
        return {name: row.assignment for name, row in self.node.state.device.rows.items()}

    def follow(self, before: dict[str, str | None], decided: list[Decoded]) -> None:
        """Look at every state and phase that was come into, one after the other."""
        now = self.assignments()
        prepared = {name: self.prepared_of(name, decided) for name in now}
        for name in now:
            self.show(name, shown(prepared[name], now[name]), is_new=name not in before)
        self.shown = {name: state for name, state in self.shown.items() if name in now}
        for one in decided:
            if isinstance(one.data, DeviceStateChanged):
                self.show(one.subject, shown(one.data.state, now[one.subject]))
            elif isinstance(one.data, NodeBootstrapChanged):
                assert one.data.phase == self.phase or one.data.phase in PHASES[self.phase]
                self.phase = one.data.phase
        if self.node.phase() is None:
            self.phase = None

    def prepared_of(self, name: str, decided: list[Decoded]) -> str:
        """The state before what was decided; it is known from what was shown."""
        if not any(one.subject == name for one in decided):
            return self.node.device(name)[0]
        return self.before.get(name, "Discovered")

    @property
    def before(self) -> dict[str, str]:
        return self._before

    _before: dict[str, str] = {}

    def show(self, name: str, state: str, *, is_new: bool = False) -> None:
        current = "Discovered" if is_new else self.shown.get(name, "Discovered")
        is_legal = state == current or state in LEGAL[current] or self.is_taken_back(name, current, state)
        assert is_legal, (name, current, state)
        self.shown[name] = state

    def is_taken_back(self, name: str, current: str, state: str) -> bool:
        """A device that was Pending and is taken back shows Assigned until then, also after its node was validated."""
        return (current, state) == ("Validating", "Assigned") and self.assignments()[name] == "Unassigning"

    @rule(data=observed_components())
    def components_are_observed(self, data: NodeComponentsObserved) -> None:
        self.record(NODE, data)

    @rule(fresh=st.sampled_from([True, True, True, False]), times=st.integers(1, 10))
    def agent_looks(self, fresh: bool, times: int) -> None:
        for _ in range(times):
            self.record(NODE, heartbeat(fresh=fresh))

    @rule(driver=flags)
    def agent_queries_the_driver(self, driver: bool) -> None:
        self.record(NODE, cards(driver=driver))

    @rule(name=names, healthy=st.booleans())
    def health_changes(self, name: str, healthy: bool) -> None:
        self.record(f"GPU-{name}", DeviceHealthChanged(healthy=healthy, kind=None if healthy else "XID 79"))

    @rule(name=names, missing=st.booleans(), ignored=st.booleans())
    def device_is_described(self, name: str, missing: bool, ignored: bool) -> None:
        if name in self.node.state.device.rows:
            self.record(name, described(missing=missing, ignored=ignored))

    @rule(name=names)
    def device_comes_or_goes(self, name: str) -> None:
        is_there = name in self.node.state.device.rows
        self.record(name, DeviceWithdrawn() if is_there else detected(f"GPU-{name}"))

    @rule(managed=flags, complete=flags)
    def inventory_changes(self, managed: bool, complete: bool) -> None:
        self.record(NODE, inventory(managed=managed, complete=complete))

    @precondition(lambda self: not self.node.state.device.rows)
    @rule()
    def node_goes(self) -> None:
        self.record(NODE, NodeInventoryWithdrawn())

    @rule(name=names, data=st.data())
    def assignment_changes(self, name: str, data: st.DataObject) -> None:
        """As pools decide: what is shown Ready is taken, what is Pending and Ready confirmed, what failed waits."""
        row = self.node.state.device.get(name)
        if row is None:
            return
        state = self.node.device(name)[0]
        choices: dict[str | None, list[Literal["Pending", "Assigned", "Unassigning"] | None]] = {
            None: ["Pending"] if state == "Ready" else [],
            "Pending": ["Unassigning", *(["Assigned"] if state == "Ready" else [])],  # type: ignore[list-item]
            "Assigned": ["Pending"] if state == "Faulted" else ["Unassigning"],
            "Unassigning": [None],
        }
        if choices[row.assignment]:
            self.record(name, assigned(data.draw(st.sampled_from(choices[row.assignment]))))

    @rule(data=module_settings)
    def settings_change(self, data: SettingsChanged) -> None:
        self.record(MODULE, data)

    @rule(met=flags)
    def prerequisite_changes(self, met: bool) -> None:
        self.record(MODULE, ModulePrerequisiteChanged(met=met, reason="Told"))

    @rule(seconds=st.sampled_from([60, 121, 301]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.follow(self.assignments(), self.node.wait(self.now))

    @rule(seconds=st.sampled_from([121, 301]), data=observed_components())
    def time_passes_while_a_fact_is_recorded(self, seconds: int, data: NodeComponentsObserved) -> None:
        self.now += seconds
        self.follow(self.assignments(), self.node.race(self.now, self.now - 1, NODE, data))

    @invariant()
    def states_are_kept_for_the_next_step(self) -> None:
        self._before = {name: self.node.device(name)[0] for name in self.node.state.device.rows}

    @invariant()
    def conditions_are_what_a_recount_by_the_rules_gives(self) -> None:
        if self.phase is None or not is_in_force(self.node.state):
            return
        row = self.node.state.node.rows[NODE]
        status = {kind: recorded[0] for kind, recorded in self.node.conditions().items()}
        missing = [status[f"{what}Missing"] for what in ("Driver", "Toolkit", "Monitoring")]
        is_held = any(phase in HELD for phase in self.assignments().values())
        devices = self.node.state.device.rows.values()
        usable = [
            one for one in devices if not (one.missing or one.ignored) and self.node.device(one.name)[0] == "Ready"
        ]
        infrastructure = status["GFDReady"] == "True" and missing == ["False"] * 3
        degraded = "True" in missing or (status["DriverMissing"], status["ToolkitMissing"]) == ("False", "Unknown")
        assert status["InfraDegraded"] == str(degraded)
        assert status["DegradedWorkloads"] == str(degraded and is_held)
        assert status["ReadyForPooling"] == str(row.managed and row.complete and infrastructure and bool(usable))

    @invariant()
    def phase_follows_from_the_conditions(self) -> None:
        if self.phase is None or not is_in_force(self.node.state):
            return
        status = {kind: recorded[0] for kind, recorded in self.node.conditions().items()}
        driver, toolkit, gfd, monitoring = (
            status[kind] for kind in ("DriverMissing", "ToolkitMissing", "GFDReady", "MonitoringMissing")
        )
        is_fine = (driver, toolkit, gfd, monitoring) == ("False", "False", "True", "False")
        assert (self.phase == "Disabled") == (not self.node.state.node.rows[NODE].managed)
        assert (self.phase == "Ready") == is_fine
        if "True" in (driver, toolkit):
            assert self.phase == "ValidatingFailed"
        if self.phase == "Validating":
            assert (driver, toolkit) == ("Unknown", "Unknown")
        if self.phase == "GFD":
            assert (driver, toolkit, gfd) == ("False", "False", "False")
        if self.phase == "Monitoring":
            assert (driver, toolkit, gfd, monitoring) == ("False", "False", "True", "True")

    @invariant()
    def devices_are_as_far_as_their_node(self) -> None:
        if self.phase is None or not is_in_force(self.node.state):
            return
        desired = {"Ready": "Ready", "Disabled": "Discovered", "ValidatingFailed": "Faulted"}.get(
            self.phase, "Validating"
        )
        for name, assignment in self.assignments().items():
            state, reason = self.node.device(name)
            if assignment not in HELD and (state != "Faulted" or reason not in HARDWARE):
                assert state == desired, (self.phase, name, state, reason)

    @invariant()
    def deciding_twice_decides_nothing(self) -> None:
        state = self.node.state
        if state.take_touched() or self.node.log:
            state.touch_all()
            last = self.node.event(self.now, NODE, heartbeat(fresh=False), source="/nodes/w9/agent")
            assert list(on_fact(state, Fact(last, 1, 0))) == []

    def teardown(self) -> None:
        """A replay of the log, and a restart from the rows, come to the same."""
        again = Fold(BootstrapProjection(), GENERATION, numbering=Numbering("own", 1))
        again.apply_all(self.node.log)
        assert rows_of(again) == rows_of(self.node.fold)
        assert again.outstanding() == []


def restarted(node: Prepared) -> None:
    """Begin again with the rows alone, as they come back from their store."""
    state, before = BootstrapFacts(), dict(node.state.tables())
    for name, table in state.tables().items():
        table.load(sorted(before[name].rows.values(), key=str))
    fold = node.fold
    node.fold = Fold(
        BootstrapProjection(),
        GENERATION,
        state=state,
        seen=fold.seen,
        numbering=fold.numbering,
        sequence=fold.sequence,
    )


class Restarting(Preparation):
    """The same, where the decider now and then has its rows only."""

    @rule()
    def restart(self) -> None:
        restarted(self.node)


TestPreparation = Preparation.TestCase
TestPreparation.settings = running(examples(), stateful_step_count=30)
TestRestarting = Restarting.TestCase
TestRestarting.settings = running(examples(0.3), stateful_step_count=30)
