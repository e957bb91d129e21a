"""Orders agree with the assignments whatever happens to pools and devices, and are all that an agent needs."""

from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.pool_ref import PoolRef
from gpuledger.deciders.pools.decide import on_fact
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.orders import last_orders
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined, PoolGone
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, rows_of
from support.pools import (
    A100,
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
DEVICES = ("n1-0", "n1-1", "n2-0")
POOLS = ("a/p", "q", "auto")
ROUNDS_MAX = 20
"""How often agents answer at most what they are told; a device leaves one pool, and is set up for the next."""

devices, pool_ids = st.sampled_from(DEVICES), st.sampled_from(POOLS)
marks = st.sampled_from(
    [marked("p"), marked(cluster="q"), marked(cluster="auto"), marked(), marked(tier="gold"), marked("nobody")]
)
cards = st.sampled_from([A100, *(A100.model_copy(update={"uuid": f"GPU-{number}"}) for number in range(2))])
specs = st.one_of(
    st.sampled_from([{}, {"slices_per_unit": 2}, {"slices_per_unit": 9}]),
    st.sampled_from([{"unit": "MIG", "mig_profile": "1g.5gb"}, {"unit": "MIG", "mig_profile": "3g.20gb"}]),
    st.sampled_from([{"unit": "MIG"}, {"mig_profile": "1g.5gb"}, {"backend": "DRA"}, {"deleting": True}]),
    st.sampled_from([{"include": {"products": ["B200"]}}, {"maintenance": "enabled"}, {"uid": "another"}]),
)


def definition(pool_id: str, spec: dict[str, Any]) -> PoolDefined:
    """One pool takes by itself what is gold."""
    gold = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}} if pool_id == "auto" else {}
    return pool(**spec, **gold)


class Agents:
    """Nodes' agents that know nothing but their lists, and answer for a device whenever `asked_at` is another."""

    def __init__(self) -> None:
        self.answered: dict[str, datetime] = {}

    def answers(self, facts: PoolFacts) -> list[tuple[str, Payload]]:
        """Their reports on unanswered orders."""
        orders = {name: one for node in NODES for name, one in last_orders(facts, node).items()}
        self.answered = {name: time for name, time in self.answered.items() if name in orders}
        open_orders = [one for one in orders.values() if self.answered.get(one.device) != one.asked_at]
        self.answered |= {one.device: one.asked_at for one in open_orders}
        return [(one.device, self.answer(one)) for one in open_orders]

    def answer(self, one: WantedDevice) -> Payload:
        if one.releasing:
            return released(one.pool)
        return applied(one.pool, 7 if one.unit == "MIG" else None)


class OrdersMachine(RuleBasedStateMachine):
    """People, watchers, other services, and agents that get every order or none for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PoolsLog()
        self.agents = Agents()
        self.lists: dict[str, tuple[datetime, tuple[WantedDevice, ...]]] = {}

    @property
    def facts(self) -> PoolFacts:
        return self.world.state

    @initialize()
    def begin(self) -> None:
        self.world.begin("n1", devices=2).begin("n2")
        for pool_id in POOLS:
            self.record(pool_id, definition(pool_id, {}))

    def record(self, subject: str, data: Payload, *, late: float = 0) -> None:
        world = self.world
        self.check(world.record(subject, data, at=max(0, world.clock + 1 - late)))
        fact = Fact(world.event(subject, data, world.clock), len(world.log), 0)
        world.state.touch_all()
        assert list(on_fact(world.state, fact)) == [], "What was decided is decided again."

    def check(self, decided: list[Decoded]) -> None:
        """Every list is another than the last, and not before it."""
        for one in decided:
            if isinstance(one.data, NodeDevicesWanted):
                time, before = self.lists.get(one.subject, (one.time, ()))
                assert (one.time >= time, one.data.devices != before) == (True, True)
                self.lists[one.subject] = (one.time, one.data.devices)
                self.check_setups(one.data, {was.device: was for was in before})

    def check_setups(self, data: NodeDevicesWanted, before: dict[str, WantedDevice]) -> None:
        """A device is set up as its pool asks, else as it was."""
        for one in data.devices:
            found, was = self.facts.pool.get(one.pool), before.get(one.device)
            now = (one.unit, one.mig_profile, one.slices_per_unit)
            ways = [] if was is None or was.pool != one.pool else [(was.unit, was.mig_profile, was.slices_per_unit)]
            if found is not None:
                spec, cap = found.spec.definition, self.facts.settings_in_force().max_slices_per_device
                ways.append((spec.unit, spec.mig_profile, min(spec.slices_per_unit, cap)))
            assert now in ways
            assert (one.unit == "MIG") == (one.mig_profile is not None)

    @rule(device=devices, mark=marks, late=st.integers(0, 2))
    def mark(self, device: str, mark: Payload, late: int) -> None:
        self.record(device, mark, late=late)

    @rule(pool_id=pool_ids, spec=specs)
    def define(self, pool_id: str, spec: dict[str, Any]) -> None:
        self.record(pool_id, definition(pool_id, spec))

    @rule(pool_id=pool_ids)
    def remove(self, pool_id: str) -> None:
        self.record(pool_id, PoolGone())

    @rule(device=devices, card=cards, late=st.integers(0, 2))
    def show(self, device: str, card: Any, late: int) -> None:
        self.record(device, described(card), late=late)

    @rule(device=devices)
    def come_or_go(self, device: str) -> None:
        is_there = device in self.facts.device.rows
        self.record(device, DeviceWithdrawn() if is_there else detected(device.partition("-")[0]))

    @rule(device=devices, name=st.sampled_from(["Ready", "Ready", "Faulted"]), late=st.integers(0, 2))
    def prepare(self, device: str, name: str, late: int) -> None:
        self.record(device, state(name), late=late)

    @rule(node=st.sampled_from(NODES), ready=st.sampled_from([True, True, False]))
    def fall(self, node: str, ready: bool) -> None:
        self.record(node, prepared(ready=ready))

    @rule(device=devices)
    def refuse(self, device: str) -> None:
        """Of a device that it has set up, and does not any more."""
        held, phase = self.world.of(device)
        if held is not None and phase == "Assigned":
            self.record(device, refused(held))

    @rule(
        changed=st.sampled_from([{}, {"max_slices_per_device": 1}, {"max_slices_per_device": 16}, {"enabled": False}])
    )
    def set(self, changed: dict[str, Any]) -> None:
        self.record(MODULE_CONFIG, SettingsChanged(**changed))

    @rule()
    def answer(self) -> None:
        """Agents have the last lists, and answer until no order is open: then nobody waits for them."""
        for _ in range(ROUNDS_MAX):
            answers = self.agents.answers(self.facts)
            if not answers:
                break
            for device, report in answers:
                self.record(device, report)
        else:
            raise AssertionError("Agents answer, and it never ends.")
        if self.facts.is_in_force():
            self.check_nobody_waits()

    def check_nobody_waits(self) -> None:
        for row in self.facts.assignment.rows.values():
            assert row.phase != "Unassigning"
            if row.phase == "Pending" and self.facts.device.rows[row.device].prepared == "Ready":
                assert self.facts.setup.rows[row.device].report == "refused", row

    @rule()
    def restart(self) -> None:
        """Begin again with the rows alone, as they come back from their store."""
        self.world.fold = restored(self.world.fold)

    @invariant()
    def orders_list_every_device_of_a_pool(self) -> None:
        facts = self.facts
        if not facts.is_in_force():
            return
        held = {row.device: row for row in facts.assignment.rows.values() if row.pool is not None}
        orders = {name: one for node in facts.orders.rows for name, one in last_orders(facts, node).items()}
        assert sorted(orders) == sorted(held)
        for name, one in orders.items():
            assert (one.pool, one.releasing) == (held[name].pool, held[name].phase == "Unassigning")
            assert one.uuid == facts.device.rows[name].uuid
            assert one.resource == PoolRef.parse(one.pool).resource_name

    @invariant()
    def rows_agree_with_the_published_orders(self) -> None:
        orders = {node: (row.changed_at, last_orders(self.facts, node)) for node, row in self.facts.orders.rows.items()}
        expected = {node: (time, {one.device: one for one in found}) for node, (time, found) in self.lists.items()}
        assert orders == expected
        assert all(list(found) == sorted(found) for _, found in orders.values())

    def teardown(self) -> None:
        again = Fold(PoolsProjection(), GENERATION, numbering=Numbering("own", 1))
        again.apply_all(self.world.log)
        assert rows_of(again) == rows_of(self.world.fold)
        assert again.outstanding() == []


TestOrders = OrdersMachine.TestCase
