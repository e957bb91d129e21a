"""Clearing devices, and cards that others use or change: nothing in use is touched."""

import asyncio
from typing import Any

import pytest

from gpuledger.agent.hardware.errors import HungError
from gpuledger.agent.setup.decide import KUBELET_SILENT_S
from gpuledger.agent.setup.timing import DEBOUNCE_S, RETRY
from gpuledger.agent.survey_history import MISSED_SURVEYS_MAX
from support.device_setup import HALF, SETTLED_S, SMALL, Node, desired, desired_list, later, ready
from support.waiting import eventually


async def test_what_is_released_is_withdrawn_at_once_cleared_and_reported() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.reconcile()
    assert (node.offered(), node.recorded(), node.calls.changes) == ({}, [], [])
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]
    assert node.calls.changes == [*["destroy"] * 7, "mig off"]
    assert (node.card().mig_enabled, node.card().instances) == (False, ())
    await node.settle()
    assert node.recorded() == []


async def test_what_is_in_use_is_not_taken_back_before_it_is_free() -> None:
    node = await ready(mig_profile=SMALL)
    unit = node.units()[3]
    node.use("gpu.deckhouse.io/p", unit.id)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.settle()
    await node.reconcile(600.0)
    assert (node.offered(), node.recorded(), node.calls.changes) == ({}, [], [])
    node.hardware.use(unit.address, unit.uuid)
    node.use("gpu.deckhouse.io/p")
    await node.reconcile(600.0)
    assert node.recorded() == [], "a process uses it still"
    node.hardware.free(unit.address, unit.uuid)
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]


@pytest.mark.parametrize("by", ["container", "process"])
async def test_a_whole_card_in_use_is_not_reported_released(by: str) -> None:
    node = await ready()
    unit = node.units()[0]
    if by == "container":
        node.use("gpu.deckhouse.io/p", unit.id)
    else:
        node.hardware.use(unit.address)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.settle(200.0)
    assert (node.offered(), node.recorded()) == ({}, [])
    node.hardware.free(unit.address)
    node.use("gpu.deckhouse.io/p")
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]


async def test_after_a_restart_what_was_withdrawn_is_waited_for_again() -> None:
    node = await ready(mig_profile=SMALL)
    released = later(desired_list(node)[0], releasing=True)
    node.set_desired(released)
    await node.reconcile()
    node.restart()
    node.see_use()
    node.set_desired(released)
    await node.reconcile()
    await node.reconcile(DEBOUNCE_S)
    assert node.calls.changes == []
    await node.reconcile(SETTLED_S)
    assert node.recorded() == [("gpu-0", "released", "p")]


async def test_units_that_were_just_withdrawn_may_be_given_away_for_a_while() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.reconcile()
    await node.reconcile(DEBOUNCE_S)
    assert node.calls.changes == []
    await node.reconcile(SETTLED_S)
    assert node.recorded() == [("gpu-0", "released", "p")]


@pytest.mark.parametrize("change", ["release", "profile"])
async def test_while_the_use_is_unknown_nothing_is_taken_back_or_divided(change: str) -> None:
    node = await ready(mig_profile=SMALL)
    node.board.put(in_use=None)
    other = {"releasing": True} if change == "release" else {"mig_profile": HALF}
    node.set_desired(later(desired_list(node)[0], **other))
    await node.settle(KUBELET_SILENT_S)
    assert (node.calls.changes, node.recorded(), node.offered()) == ([], [], {})
    await node.reconcile(600.0)
    assert (node.calls.changes, node.offered()) == ([], {})
    assert node.recorded() == ([] if change == "release" else [("gpu-0", "refused", "p", "UseUnknown")])
    node.see_use()
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p") if change == "release" else ("gpu-0", "applied", "p", 2)]


async def test_a_device_that_is_desired_no_more_is_cleared_and_nothing_reported() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired()
    await node.settle()
    assert (node.card().mig_enabled, node.offered(), node.recorded()) == (False, {}, [])


async def test_a_device_whose_pool_gave_it_back_is_reported_released_though_it_is_gone_from_the_list() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.reconcile()
    node.set_desired()
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]


async def test_a_release_that_is_taken_back_offers_the_device_again() -> None:
    node = await ready(mig_profile=SMALL)
    first, offered = desired_list(node)[0], node.offered()
    node.use("gpu.deckhouse.io/p", node.units()[0].id)
    node.set_desired(later(first, releasing=True))
    await node.reconcile(1.0)
    assert node.offered() == {}
    node.set_desired(later(first, 2))
    await node.settle()
    assert node.offered() == offered
    assert (node.recorded(), node.calls.changes) == ([("gpu-0", "applied", "p", 7)], [])


async def test_a_card_that_is_gone_is_released_and_one_that_is_silent_is_waited_for() -> None:
    node = await ready(mig_profile=SMALL)
    node.hardware.inject("off-bus@0")
    node.set_desired(later(desired_list(node)[0], releasing=True))
    await node.settle()
    assert node.recorded() == []
    del node.hardware._cards[node.card().address]
    for _ in range(MISSED_SURVEYS_MAX):
        await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]


async def test_what_nobody_remembers_is_released_when_requested() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node, releasing=True))
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]
    assert node.calls.changes == []


async def test_a_clearing_that_fails_is_tried_again() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired(later(desired_list(node)[0], releasing=True))
    node.calls.fail_at = 3
    await node.settle()
    assert node.recorded() == [("gpu-0", "released", "p")]
    assert node.card().mig_enabled is False


@pytest.mark.parametrize("other", [{"pool": "q"}, {"mig_profile": HALF}, {"slices_per_unit": 2}])
async def test_a_card_that_changes_hands_is_nobodys_until_it_is_free(other: dict[str, Any]) -> None:
    node = await ready(mig_profile=SMALL)
    node.use("gpu.deckhouse.io/p", node.units()[0].id)
    node.set_desired(later(desired(node, **{"mig_profile": SMALL, **other})))
    await node.settle()
    await node.reconcile(600.0)
    assert (node.offered(), node.calls.changes) == ({}, [])
    assert [each[1::2] for each in node.recorded()] == [("refused", "DeviceInUse")]
    node.use("gpu.deckhouse.io/p")
    await node.settle()
    assert [each[1] for each in node.recorded()] == ["applied"]
    assert len(node.units()) == {"pool": 7, "mig_profile": 2, "slices_per_unit": 14}[next(iter(other))]


async def test_a_card_whose_units_somebody_else_gave_away_is_waited_for() -> None:
    node = Node()
    node.use("nvidia.com/gpu", node.card().uuid)
    node.set_desired(desired(node))
    await node.settle()
    assert (node.offered(), node.recorded()) == ({}, [("gpu-0", "refused", "p", "DeviceInUse")])
    node.use("nvidia.com/gpu")
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_a_card_whose_users_are_unknown_is_not_offered_anew() -> None:
    node = Node()
    node.set_desired(desired(node))
    await node.settle(KUBELET_SILENT_S)
    assert (node.offered(), node.recorded()) == ({}, [])
    await node.settle()
    assert (node.offered(), node.recorded()) == ({}, [("gpu-0", "refused", "p", "UseUnknown")])
    node.use("nvidia.com/gpu", node.card().uuid)
    await node.settle()
    assert (node.offered(), node.recorded()) == ({}, [("gpu-0", "refused", "p", "DeviceInUse")])


async def test_a_card_that_somebody_else_turned_mig_on_for_is_withdrawn_before_that_is_undone() -> None:
    node = await ready()
    node.hardware.set_mig(node.card().address, enabled=True)
    await node.reconcile()
    assert (node.offered(), node.calls.changes) == ({}, [])
    await node.reconcile(SETTLED_S)
    assert node.calls.changes == ["mig off"]
    assert len(node.units()) == 1


async def test_nothing_that_may_be_gone_is_offered_because_something_else_is_withdrawn() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node, 0, mig_profile=SMALL), desired(node, 1))
    await node.settle()
    for each in node.card().instances:
        node.hardware.destroy_instance(node.card().address, each.uuid)
    node.restart()
    node.see_use()
    node.set_desired(desired(node, 0, mig_profile=SMALL), desired(node, 1, releasing=True))
    node.calls.survey_error = HungError("no answer")
    await node.setup.reconcile(node._record)
    assert node.offered() == {}


async def test_an_idle_instance_that_vanished_is_made_again_and_reported() -> None:
    node = await ready(mig_profile=SMALL)
    node.hardware.destroy_instance(node.card().address, node.units()[2].uuid)
    await node.settle()
    assert len(node.units()) == 7
    assert node.calls.changes == [f"create {SMALL}"]
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_an_instance_made_by_hand_is_taken_back_when_it_is_free() -> None:
    node = await ready(mig_profile=SMALL)
    address, units = node.card().address, node.units()
    for unit in units[:4]:
        node.hardware.destroy_instance(address, unit.uuid)
    strange = node.hardware.create_instance(address, HALF, 0)
    node.hardware.use(address, strange.uuid)
    node.use("gpu.deckhouse.io/p", units[5].id)
    await node.settle(100.0)
    assert [unit.uuid for unit in node.units()] == [unit.uuid for unit in units[4:]]
    assert node.recorded() == [("gpu-0", "applied", "p", 3)]
    node.hardware.free(address, strange.uuid)
    await node.settle()
    assert len(node.units()) == 7
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_after_a_reboot_of_the_node_the_card_is_divided_again_and_no_loss_is_reported() -> None:
    node = await ready(mig_profile=SMALL)
    wishes = desired_list(node)
    for unit in node.units():
        node.hardware.destroy_instance(unit.address, unit.uuid)
    node.restart()
    node.see_use()
    await node.reconcile()
    assert node.offered() == {}
    node.set_desired(*wishes)
    await node.settle()
    assert len(node.units()) == 7
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_what_is_offered_is_withdrawn_before_a_repair_that_would_touch_it() -> None:
    node = await ready(mig_profile=SMALL)
    offered, card = node.offered(), node.hardware._cards[node.card().address]
    node.use("gpu.deckhouse.io/p", node.units()[0].id)
    card.facts = card.facts._replace(mig_pending=True)
    await node.settle(100.0)
    assert (node.offered(), node.calls.changes) == (offered, [])
    node.use("gpu.deckhouse.io/p")
    await node.reconcile(RETRY.max_s)
    assert (node.offered(), node.calls.changes) == ({}, [])
    await node.settle()
    assert (node.offered(), node.calls.changes) == (offered, ["mig on"])


async def test_a_drift_that_cannot_be_repaired_to_anything_is_refused_once() -> None:
    node = await ready(mig_profile=SMALL)
    address = node.card().address
    for unit in node.units():
        node.hardware.destroy_instance(address, unit.uuid)
    strange = node.hardware.create_instance(address, "7g.80gb", 0)
    node.hardware.use(address, strange.uuid)
    await node.settle(300.0)
    assert node.recorded() == [("gpu-0", "applied", "p", 0), ("gpu-0", "refused", "p", "DeviceInUse")]
    node.hardware.free(address, strange.uuid)
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_the_part_works_on_what_changes_and_ends_when_cancelled() -> None:
    node = Node()
    ran = asyncio.create_task(node.setup.run(node._record))
    node.discover()
    node.see_use()
    node.set_desired(desired(node, mig_profile=SMALL))

    async def is_reported() -> bool:
        node.now += 1.0
        node.board.put(unfit={"": str(node.now)})
        return bool(node.facts)

    await eventually(is_reported)
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]
    assert node.setup.alive_at is not None
    ran.cancel()
    await asyncio.wait([ran])
    assert ran.cancelled()
