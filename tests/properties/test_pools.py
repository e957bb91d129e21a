"""What holds whatever people, watchers, agents and other services do to pools and devices, and in whatever order."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.pool_ref import PoolRef
from gpuledger.deciders.pools.decide import on_fact
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.status import shown_state
from gpuledger.domain.pools.spec import selects
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn, Hardware
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolGone, PoolReleased
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, rows_of
from support.pools import (
    A100,
    MET,
    PoolsLog,
    applied,
    described,
    detected,
    marked,
    pool,
    prepared,
    refused,
    released,
    restored,
    state,
)

NODES = ("n1", "n2")
DEVICES = ("n1-0", "n1-1", "n1-2", "n2-0")
POOLS = ("a/p", "p", "a/limited", "auto", "divided")
H100 = Hardware(product="NVIDIA H100", pci_vendor="10de", pci_device="2330")
INDIVISIBLE = A100.model_copy(update={"mig_profiles": ("1g.10gb",)})
"""A card that has not the profile by which pools divide theirs."""

NEXT_STATES = {
    "Discovered": ("Validating", "Validating", "Validating"),
    "Validating": ("Ready", "Ready", "Faulted"),
    "Ready": ("Faulted", "Discovered", "Validating"),
    "Faulted": ("Validating", "Validating", "Validating"),
}
LEGAL_PHASES = {
    (None, "Pending"),
    ("Pending", "Assigned"),
    ("Pending", "Unassigning"),
    ("Assigned", "Unassigning"),
    ("Assigned", "Pending"),
    ("Unassigning", None),
}

LEGAL_STATES = {
    ("Ready", "PendingAssignment"),
    ("PendingAssignment", "Assigned"),
    ("PendingAssignment", "Ready"),
    ("Assigned", "PendingAssignment"),
    ("Assigned", "Ready"),
}
"""How what a GPUDevice shows may change by a decision about pools; the fourth when its agent has it set up no more."""

nodes, devices, pools = st.sampled_from(NODES), st.sampled_from(DEVICES), st.sampled_from(POOLS)
marks = st.sampled_from(
    [
        marked("p"),
        marked(cluster="p"),
        marked("limited"),
        marked("limited"),
        marked(cluster="auto"),
        marked(cluster="divided"),
        marked("nobody"),
        marked("p", cluster="auto"),
        marked(),
        marked(tier="gold"),
    ]
)
shows = st.sampled_from(
    [
        {},
        {},
        {},
        {"ignored": True},
        {"managed": False},
        {"missing": True},
        {"hardware": H100},
        {"hardware": INDIVISIBLE},
        None,
    ]
)
"""What a GPUDevice shows; None: that it is no more."""

specs = st.fixed_dictionaries(
    {},
    optional={
        "slices_per_unit": st.sampled_from([2, 9]),
        "devices_per_node_max": st.sampled_from([1, 2]),
        "backend": st.just("DRA"),
        "include": st.just({"products": [A100.product]}),
        "exclude": st.just({"products": [H100.product]}),
        "node_selector": st.just({"labels": {"zone": "a"}}),
        "maintenance": st.sampled_from(["enabled", "confirmed"]),
        "unit": st.just("MIG"),
        "mig_profile": st.just("1g.5gb"),
        "uid": st.sampled_from(["u1", "u2"]),
    },
)


def spec_for(pool_id: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Three pools are what they are called, whatever else is said."""
    if PoolRef.parse(pool_id).name == "auto":
        return {**spec, "requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}
    if PoolRef.parse(pool_id).name == "divided":
        return {**spec, "unit": "MIG", "mig_profile": "1g.5gb"}
    return {**spec, "devices_per_node_max": 1} if PoolRef.parse(pool_id).name == "limited" else spec


settings = st.sampled_from(
    [
        {},
        {},
        {"enabled": False},
        {"approval_mode": "Manual"},
        {"approval_mode": "Selector"},
        {"max_slices_per_device": 1},
    ]
)


class PoolsMachine(RuleBasedStateMachine):
    """People, watchers, agents and other services, each doing whatever they may do next."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PoolsLog()
        self.released: Counter[str] = Counter()
        self.leaves_assigned: dict[str, bool] = {}

    @initialize()
    def begin(self) -> None:
        for node in NODES:
            self.record(node, prepared())
            self.record(node, NodeLabelled(uid="n", labels={"zone": "a"}))
        for device in DEVICES:
            hardware = INDIVISIBLE if device == "n2-0" else A100
            self.record(device, detected(device.partition("-")[0], hardware))
            self.record(device, state("Ready"))
        self.record(MODULE_CONFIG, MET)
        for pool_id in ("a/p", "a/limited", "auto", "divided"):
            self.record(pool_id, pool(**spec_for(pool_id, {})))

    def record(self, subject: str, data: Payload, *, late: int = 0, source: str | None = None) -> None:
        """Record a fact; a late one happened some hours ago."""
        world = self.world
        before = {row.device: row for row in world.state.assignment.rows.values()}
        decided = world.record(subject, data, at=world.clock + 1 - late, source=source)
        self.check_steps({device: (row.pool, row.phase) for device, row in before.items()}, subject, data, decided)
        fact = Fact(world.event(subject, data, world.clock, source), len(world.log), 0)
        world.state.touch_all()
        assert list(on_fact(world.state, fact)) == [], "What was decided is decided again."
        world.state.take_devices()
        world.state.take_pools()

    def check_steps(
        self, was: dict[str, tuple[str | None, str | None]], subject: str, data: Payload, decided: list[Decoded]
    ) -> None:
        """Every step is a legal one from the step before it."""
        if isinstance(data, DeviceWithdrawn):
            was.pop(subject, None)
        for one in decided:
            if isinstance(one.data, PoolReleased):
                self.released[one.subject] += 1
                assert all(held != one.subject for held, _ in was.values())
            if not isinstance(one.data, DeviceAssignmentChanged):
                continue
            device, now = one.subject, (one.data.pool, one.data.phase)
            before = was.get(device, (None, None))
            if now != before:
                assert (before[1], now[1]) in LEGAL_PHASES
                assert None in (before[0], now[0]) or before[0] == now[0], "From pool to pool without a release."
            if now[1] == "Assigned" or (before[1], now[1]) == (None, "Pending"):
                assert self.prepared(device) == "Ready"
            self.check_shown(device, before[1], now[1])
            if (before[1], now[1]) == (None, "Pending"):
                self.check_room(was, device, one.data.pool)
                self.check_divisible(device, one.data.pool)
            was[device] = now

    def check_shown(self, device: str, before: str | None, now: str | None) -> None:
        """What is shown changes by legal steps, and not at all when a device is to leave its pool."""
        leaves_assigned = self.leaves_assigned.get(device, False)
        shown = shown_state(self.prepared(device), before, leaves_assigned)
        if now != before:
            leaves_assigned = self.leaves_assigned[device] = (before, now) == ("Assigned", "Unassigning")
        then = shown_state(self.prepared(device), now, leaves_assigned)
        assert shown == then or ((shown, then) in LEGAL_STATES and now != "Unassigning")

    def prepared(self, device: str) -> str:
        return self.world.state.device.rows[device].prepared

    def check_room(self, was: dict[str, tuple[str | None, str | None]], device: str, pool_id: str | None) -> None:
        assert pool_id is not None
        limit = self.world.state.pool.rows[pool_id].spec.definition.devices_per_node_max
        node = device.partition("-")[0]
        held = sum(pool_id == one for name, (one, _) in was.items() if name.startswith(f"{node}-"))
        assert limit is None or held < limit

    def check_divisible(self, device: str, pool_id: str | None) -> None:
        """No card is taken for partitions that it is known not to have."""
        assert pool_id is not None
        spec, row = self.world.state.pool.rows[pool_id].spec.definition, self.world.state.device.rows[device]
        assert spec.unit != "MIG" or not row.mig_profiles or spec.mig_profile in row.mig_profiles.split(",")

    @rule(device=devices, mark=marks, late=st.integers(0, 2))
    def mark(self, device: str, mark: Payload, late: int) -> None:
        self.record(device, mark, late=late)

    @rule(pool_id=pools, spec=specs)
    def define(self, pool_id: str, spec: dict[str, Any]) -> None:
        self.record(pool_id, pool(**spec_for(pool_id, spec)))

    @rule(pool_id=pools, is_gone=st.booleans())
    def remove(self, pool_id: str, is_gone: bool) -> None:
        row = self.world.state.pool.get(pool_id)
        if row is not None:
            deleting = row.spec.definition.model_copy(update={"deleting": True})
            self.record(pool_id, PoolGone() if is_gone else deleting)

    @rule(device=devices, shown=shows)
    def describe(self, device: str, shown: dict[str, Any] | None) -> None:
        if shown is None:
            self.record(device, DeviceWithdrawn())
        elif device in self.world.state.device.rows:
            self.record(device, described(**shown))
        else:
            self.record(device, detected(device.partition("-")[0], **shown))

    @rule(device=devices, choice=st.integers(0, 2))
    def prepare(self, device: str, choice: int) -> None:
        row = self.world.state.device.get(device)
        if row is not None:
            self.record(device, state(NEXT_STATES[row.prepared][choice]))
            if self.prepared(device) == "Validating":
                self.record(device, state(NEXT_STATES["Validating"][choice]))

    @rule(node=nodes, ready=st.booleans())
    def prepare_node(self, node: str, ready: bool) -> None:
        self.record(node, prepared(ready=ready))

    @rule(node=nodes, zone=st.sampled_from(["a", "b", None]), late=st.integers(0, 2))
    def label(self, node: str, zone: str | None, late: int) -> None:
        gone = zone is None
        self.record(node, NodeUnlabelled() if gone else NodeLabelled(uid="n", labels={"zone": str(zone)}), late=late)

    @rule(device=devices, word=st.sampled_from([applied, refused, released]), late=st.integers(0, 3), by=nodes)
    def answer(self, device: str, word: Any, late: int, by: str) -> None:
        held = self.world.of(device)[0]
        if held is not None:
            self.record(device, word(held), late=late, source=f"/nodes/{by}/agent")

    @rule(partitions=st.integers(0, 7))
    def answer_as_requested(self, partitions: int) -> None:
        for device in DEVICES:
            held, phase = self.world.of(device)
            if held is not None:
                self.record(device, released(held) if phase == "Unassigning" else applied(held, partitions))

    @rule(changed=settings)
    def configure(self, changed: dict[str, Any]) -> None:
        self.record(MODULE_CONFIG, SettingsChanged(**changed, approval_selector={"tier": "gold"}))

    @rule(met=st.sampled_from([True, True, False]))
    def find_features(self, met: bool) -> None:
        self.record(MODULE_CONFIG, MET.model_copy(update={"met": met}))

    @rule()
    def restart(self) -> None:
        """Begin again with the rows alone, as they come back from their store."""
        self.world.fold = restored(self.world.fold)

    @invariant()
    def the_sums_are_a_recount(self) -> None:
        facts = self.world.state
        held: Counter[str] = Counter()
        offered: dict[str, list[int]] = {}
        for row in facts.assignment.rows.values():
            if row.pool is not None:
                held[row.pool] += 1
                setup = facts.setup.rows[row.device]
                if facts.is_in_force():
                    assert row.phase != "Assigned" or setup.report == "applied"
                if row.phase == "Assigned" and setup.report == "applied":
                    offered.setdefault(row.pool, []).append(setup.partitions)
        counted = {row.pool: (row.devices, row.cards, row.partitions) for row in facts.tally.rows.values()}
        recount = {one: (held[one], len(offered.get(one, [])), sum(offered.get(one, []))) for one in held}
        assert counted == recount
        if facts.is_in_force():
            cap = facts.settings_in_force().max_slices_per_device
            for pool_id, one in facts.pool.rows.items():
                spec = one.spec.definition
                _, cards, partitions = recount.get(pool_id, (0, 0, 0))
                total = (partitions if spec.unit == "MIG" else cards) * min(spec.slices_per_unit, cap)
                assert self.world.total(pool_id) == (None if spec.backend == "DRA" else total)
                assert len(facts.condition.where("pool", pool_id)) == 5

    @invariant()
    def every_device_that_stays_was_requested(self) -> None:
        facts = self.world.state
        for row in facts.assignment.rows.values():
            if row.phase in ("Pending", "Assigned") and facts.is_in_force():
                assert row.pool is not None
                mark, found = facts.mark.get(row.device), facts.pool.rows[row.pool]
                requested = (
                    None if mark is None else mark.requested_pool if "/" in row.pool else mark.requested_cluster_pool
                )
                approves = found.spec.approves
                labels = {"tier": "gold"} if mark is not None and "gold" in mark.labels else {}
                assert row.automatic == (requested is None)
                assert requested == found.name or (approves is not None and selects(approves, row.device, labels))
                device = facts.device.rows[row.device]
                assert (device.managed, device.ignored, found.deleting) == (True, False, False)
                assert facts.owner(found.name) == found

    @invariant()
    def what_is_gone_leaves_nothing(self) -> None:
        facts = self.world.state
        assert set(facts.assignment.rows) <= set(facts.device.rows)
        assert set(facts.setup.rows) <= set(facts.device.rows)
        assert {row.pool for row in facts.condition.rows.values()} <= set(facts.pool.rows)
        drifted = {row.pool for row in facts.problem.rows.values() if row.kind == "drifted"}
        assert drifted <= set(facts.pool.rows)

    def teardown(self) -> None:
        again = Fold(PoolsProjection(), GENERATION, numbering=Numbering("own", 1))
        again.apply_all(self.world.log)
        assert rows_of(again) == rows_of(self.world.fold)
        assert again.outstanding() == []


TestPools = PoolsMachine.TestCase
