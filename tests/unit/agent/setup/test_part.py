"""Setting devices up for pools: each rule, on simulated cards."""

import pytest

from gpuledger.agent.board import BoardState
from gpuledger.agent.hardware.errors import HungError
from gpuledger.agent.setup.mig_steps import MigExecutor, StepFailedError
from gpuledger.agent.setup.situation import Situation
from gpuledger.agent.setup.state import SetupState
from gpuledger.agent.setup.store import STATE_KEY
from gpuledger.agent.setup.timing import DEBOUNCE_MAX_S, DEBOUNCE_S, RETRY
from gpuledger.domain.mig.plan import Destroy, MigState
from support.device_setup import SMALL, Node, desired, desired_list, later, ready

ROUNDS = 100
"""More than there are before a series of changes is over."""


async def test_a_whole_card_is_offered_and_reported_without_touching_it() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node))
    await node.settle()
    assert node.offered() == {"gpu.deckhouse.io/p": [node.card().uuid]}
    assert node.recorded() == [("gpu-0", "applied", "p", None)]
    assert node.calls.changes == []


async def test_a_card_is_divided_and_its_instances_are_offered_by_place() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node, mig_profile=SMALL))
    await node.settle()
    instances = sorted(node.card().instances, key=lambda each: each.start)
    assert len(instances) == 7
    assert node.offered() == {"gpu.deckhouse.io/p": [each.uuid for each in instances]}
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]
    assert node.calls.changes == ["mig on", *[f"create {SMALL}"] * 7]


async def test_sliced_units_have_numbered_ids() -> None:
    node = await ready(slices_per_unit=3)
    assert node.offered() == {"gpu.deckhouse.io/p": [f"{node.card().uuid}::{n}" for n in range(3)]}


async def test_a_card_with_mig_on_is_made_whole_for_a_pool_of_cards() -> None:
    node = Node()
    node.see_use()
    node.hardware.set_mig(node.card().address, enabled=True)
    node.hardware.create_instance(node.card().address, SMALL, 0)
    node.set_desired(desired(node))
    await node.settle()
    assert node.calls.changes == ["destroy", "mig off"]
    assert node.offered() == {"gpu.deckhouse.io/p": [node.card().uuid]}


async def test_an_unchanged_wish_does_nothing_at_all() -> None:
    node = await ready(mig_profile=SMALL)
    await node.reconcile(60.0)
    surveys = node.calls.surveys
    for _ in range(5):
        await node.reconcile(60.0)
    assert (node.calls.changes, node.recorded(), node.calls.surveys) == ([], [], surveys)


async def test_what_is_requested_anew_is_reported_anew_and_changes_nothing() -> None:
    node = await ready(mig_profile=SMALL)
    node.set_desired(later(desired_list(node)[0]))
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]
    assert node.calls.changes == []


async def test_a_card_is_found_by_its_address_where_its_uuid_is_not_reported() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node, uuid=None, pci_address="0000" + node.card().address.upper()))
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_what_is_desired_one_after_the_other_is_applied_together() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node))
    await node.reconcile()
    node.set_desired(desired(node, mig_profile=SMALL))
    await node.reconcile(DEBOUNCE_S / 2)
    await node.reconcile(DEBOUNCE_S / 4)
    assert node.recorded() == []
    await node.reconcile(DEBOUNCE_S)
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_wishes_that_never_rest_are_granted_all_the_same() -> None:
    node = Node()
    node.see_use()
    step_s, began = DEBOUNCE_S / 2, node.now
    for number in range(ROUNDS):
        node.set_desired(later(desired(node), number))
        await node.reconcile(step_s)
        if node.recorded():
            break
    assert DEBOUNCE_MAX_S <= node.now - began <= DEBOUNCE_MAX_S + 2 * step_s


@pytest.mark.parametrize("now", [0.3, 5.05, 1e9 / 7])
def test_what_was_never_offered_is_settled_at_any_time(now: float) -> None:
    situation = Situation(BoardState(), SetupState(), {}, {}, now, 0.0)
    assert situation.settled_at("gpu-0") <= now


def test_a_card_is_not_held_up_for_half_of_the_time_in_which_it_is_to_be_set_up() -> None:
    assert DEBOUNCE_S < DEBOUNCE_MAX_S <= 0.25


async def test_while_nobody_has_reported_what_is_desired_nothing_changes() -> None:
    node = await ready(mig_profile=SMALL)
    offered = node.offered()
    node.restart()
    node.see_use()
    await node.reconcile()
    await node.reconcile(600.0)
    assert node.offered() == offered
    assert (node.calls.changes, node.recorded()) == ([], [])


async def test_nothing_is_divided_or_reported_anew_after_a_restart() -> None:
    node = await ready(mig_profile=SMALL)
    wishes, offered = desired_list(node), node.offered()
    node.restart()
    node.see_use()
    node.set_desired(*wishes)
    await node.settle()
    assert node.offered() == offered
    assert (node.calls.changes, node.recorded()) == ([], [])


@pytest.mark.parametrize("kept", [b"{", b"[]", b'{"version": 9}', b'{"version": 1, "held": {"a": 1}, "told": {}}'])
async def test_a_broken_memory_is_forgotten_and_the_card_found_as_it_is(kept: bytes) -> None:
    node = await ready(mig_profile=SMALL)
    wishes, offered = desired_list(node), node.offered()
    node.keep.values[STATE_KEY] = kept
    node.restart()
    node.see_use()
    node.set_desired(*wishes)
    await node.settle()
    assert node.offered() == offered
    assert node.calls.changes == []


async def test_a_card_that_is_not_there_is_refused_once_and_taken_when_it_comes() -> None:
    node = Node()
    node.see_use()
    node.hardware.inject("off-bus@0")
    node.set_desired(desired(node))
    await node.settle(300.0)
    assert node.recorded() == [("gpu-0", "refused", "p", "CardMissing")]
    node.hardware.inject("recover@0")
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_a_card_that_stops_answering_keeps_what_it_had() -> None:
    node = await ready(mig_profile=SMALL)
    offered = node.offered()
    node.hardware.inject("off-bus@0")
    surveys = node.calls.surveys
    await node.settle()
    assert node.offered() == offered
    assert node.recorded() == []
    assert node.calls.surveys == surveys, "the driver is not asked again and again for a card that is silent"


async def test_what_a_card_had_whose_place_another_card_took_is_withdrawn() -> None:
    node = await ready()
    (card,) = (each for each in node.hardware._cards.values() if each.facts.address == node.card().address)
    one = card.facts.uuid
    card.facts = card.facts._replace(uuid="GPU-another")
    node.restart()
    node.see_use()
    node.set_desired(desired(node, uuid=one))
    await node.settle(300.0)
    assert (node.offered(), node.recorded()) == ({}, [("gpu-0", "refused", "p", "CardMissing")])
    card.facts = card.facts._replace(uuid=one)
    await node.settle()
    assert (len(node.units()), node.recorded()) == (1, [("gpu-0", "applied", "p", None)])


async def test_a_card_that_moved_to_another_slot_keeps_what_it_had() -> None:
    node = await ready(mig_profile=SMALL)
    ids = [unit.id for unit in node.units()]
    first, second = node.hardware._cards.values()
    there, here = first.facts.address, second.facts.address
    first.facts, second.facts = first.facts._replace(address=here), second.facts._replace(address=there)
    node.hardware._cards = {there: second, here: first}
    await node.settle()
    assert [(unit.id, unit.address) for unit in node.units()] == [(each, here) for each in ids]
    assert node.recorded() == []


async def test_what_a_card_does_not_know_is_refused_with_the_reason() -> None:
    node = Node("1xT4")
    node.see_use()
    node.set_desired(desired(node, mig_profile=SMALL))
    await node.settle(300.0)
    assert node.recorded() == [("gpu-0", "refused", "p", "MigNotSupported")]
    assert node.offered() == {}


@pytest.mark.parametrize("fail_at", range(8))
async def test_a_step_that_fails_is_reported_the_card_restored_and_tried_again(fail_at: int) -> None:
    node = Node()
    node.see_use()
    node.calls.fail_at = fail_at
    node.set_desired(desired(node, mig_profile=SMALL))
    await node.reconcile(DEBOUNCE_S)
    await node.reconcile(DEBOUNCE_S / 2)
    assert node.recorded() == []
    before = node.card()
    await node.reconcile(DEBOUNCE_S)
    assert node.recorded() == [("gpu-0", "refused", "p", "HardwareRefused")]
    assert node.card() == before
    assert node.offered() == {}
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_pauses_grow_up_to_their_bound() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node, mig_profile="9g.90gb"))
    await node.reconcile()
    pauses = []
    for _ in range(12):
        until = await node.reconcile()
        assert until is not None
        pauses.append(until - node.now)
        node.now = until
    assert pauses[1:5] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == RETRY.max_s


async def test_a_changed_use_of_the_card_is_tried_at_once() -> None:
    node = Node()
    node.see_use()
    node.hardware.set_mig(node.card().address, enabled=True)
    instance = node.hardware.create_instance(node.card().address, SMALL, 0)
    node.hardware.use(node.card().address, instance.uuid)
    node.set_desired(desired(node))
    await node.settle(100.0)
    assert node.recorded() == [("gpu-0", "refused", "p", "DeviceInUse")]
    node.hardware.free(node.card().address, instance.uuid)
    node.use("other", "elsewhere")
    await node.reconcile(1.5)
    assert node.recorded() == [], "what other cards are used for does not matter"
    node.set_desired(later(desired(node)))
    await node.reconcile()
    await node.reconcile(DEBOUNCE_S)
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_a_card_that_changed_is_tried_at_once_however_long_the_pause_is() -> None:
    node = Node()
    node.see_use()
    node.hardware.inject("off-bus@0")
    node.set_desired(desired(node))
    await node.settle(300.0)
    node.recorded()
    await node.reconcile(RETRY.max_s)
    node.hardware.inject("recover@0")
    await node.reconcile(RETRY.first_s + 0.1)
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_what_a_container_gets_between_two_steps_is_left_alone() -> None:
    node = await ready(mig_profile=SMALL)
    card, uuids = node.card(), [unit.uuid for unit in node.units()]
    in_use: dict[str, frozenset[str]] = {}
    carrying = MigExecutor(
        node.calls, card.address, card.uuid, lambda: in_use, lambda: in_use.update(p=frozenset(uuids))
    )
    node.board.put(offers=())
    state = MigState(card.mig_enabled, False, card.profiles, card.instances)
    with pytest.raises(StepFailedError) as stopped:
        await carrying.divide([Destroy(uuids[0], SMALL, 0)], state)
    assert stopped.value.refusal.reason == "DeviceInUse"
    assert node.calls.changes == []


async def test_a_mode_that_waits_for_a_reset_is_refused_and_goes_on_after_it() -> None:
    node = Node()
    node.see_use()
    node.hardware.inject("mig-needs-reset@0")
    node.set_desired(desired(node, mig_profile=SMALL))
    await node.settle(300.0)
    assert node.recorded() == [("gpu-0", "refused", "p", "MigResetPending")]
    node.hardware.inject("recover@0")
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", 7)]


async def test_a_driver_that_hangs_refuses_what_is_new_and_keeps_the_rest() -> None:
    node = await ready()
    offered = node.offered()
    node.calls.survey_error = HungError("it hangs")
    node.set_desired(*desired_list(node), desired(node, 1, mig_profile=SMALL))
    await node.settle(300.0)
    assert node.recorded() == [("gpu-1", "refused", "p", "CardMissing")]
    assert node.offered() == offered
    node.calls.survey_error = None
    await node.settle()
    assert node.recorded() == [("gpu-1", "applied", "p", 7)]


async def test_without_a_driver_the_refusal_reports_so() -> None:
    node = Node()
    node.see_use()
    node.set_desired(desired(node))
    node.hardware.inject("driver-missing")
    await node.settle(300.0)
    assert node.recorded() == [("gpu-0", "refused", "p", "DriverMissing")]
    node.hardware.inject("recover")
    await node.settle()
    assert node.recorded() == [("gpu-0", "applied", "p", None)]


async def test_two_devices_never_have_one_card() -> None:
    node = await ready()
    other = desired(node, pool="q", device="gpu-9")
    node.set_desired(*desired_list(node), other)
    await node.settle(300.0)
    assert node.recorded() == [("gpu-9", "refused", "q", "CardTaken")]
    assert node.offered() == {"gpu.deckhouse.io/p": [node.card().uuid]}
