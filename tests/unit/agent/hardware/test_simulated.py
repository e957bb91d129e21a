"""Simulated hardware: the cards of a spec, and their partitions."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, NodeHardware
from gpuledger.agent.hardware.errors import BusyError, UnsupportedError
from gpuledger.agent.hardware.simulated import SimulatedHardware
from gpuledger.agent.hardware.simulated_models import CARD_MODELS, CARDS_MAX, HardwareSpecError
from gpuledger.domain.mig.plan import Create, Destroy, Disable, Enable, MigState, Plan, plan

FIRST = "0000:17:00.0"


def _card(hardware: NodeHardware) -> CardFacts:
    return next(card for card in hardware.survey().cards if card.address == FIRST)


def test_it_is_hardware() -> None:
    hardware: NodeHardware = SimulatedHardware("1xT4")
    assert hardware.kind == "simulated"


def test_a_spec_names_cards_in_their_order() -> None:
    cards = SimulatedHardware("2xH200, 1xt4").survey().cards
    assert [card.product for card in cards] == ["NVIDIA H200", "NVIDIA H200", "Tesla T4"]
    assert [card.address for card in cards] == sorted(card.address for card in cards)


def test_the_same_names_give_the_same_cards_and_others_do_not() -> None:
    def cards(node: str, seed: int) -> tuple[CardFacts, ...]:
        return SimulatedHardware("8xH100", node=node, seed=seed).survey().cards

    assert cards("a", 1) == cards("a", 1)
    everything = [card for uuid_of in (cards("a", 1), cards("b", 1), cards("a", 2)) for card in uuid_of]
    assert len({card.uuid for card in everything}) == len({card.serial for card in everything}) == 24


@pytest.mark.parametrize("model", CARD_MODELS)
def test_what_is_reported_a_card_has_the_form_that_events_have(model: str) -> None:
    for card in SimulatedHardware(f"{CARDS_MAX}x{model}").survey().cards:
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", card.address)
        assert re.fullmatch(r"GPU-[0-9a-f-]{36}", card.uuid or "")
        assert re.fullmatch(r"\d{13}", card.serial or "")
        assert re.fullmatch(r"[0-9a-f]{4}", card.pci_device)


def test_two_numa_nodes_share_the_cards_and_neighbours_share_a_switch() -> None:
    cards = SimulatedHardware("8xH100").survey().cards
    assert [card.numa_node for card in cards] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len({card.pci_path for card in cards}) == 8
    assert [one.pci_path[:2] for one in cards[::2]] == [other.pci_path[:2] for other in cards[1::2]]
    assert len({card.pci_path[0] for card in cards}) == 4


@pytest.mark.parametrize(
    ("spec", "ends", "links"),
    [
        ("8xH100", 4, 18),  # NVSwitches
        ("8xA100", 6, 12),  # NVSwitches
        ("4xA100-40GB", 3, 12),  # one another
        ("2xH200,1xT4", 1, 18),  # one another
        ("3xA30", 1, 4),  # a bridge over the first two
        ("1xH100", 0, 0),
        ("2xT4", 0, 0),
    ],
)
def test_nvlinks_end_at_other_cards_or_at_switches(spec: str, ends: int, links: int) -> None:
    first = SimulatedHardware(spec).survey().cards[0]
    assert (len(set(first.nvlinks)), len(first.nvlinks)) == (ends, links)
    assert first.address not in first.nvlinks


def test_a_bridge_goes_over_two_cards() -> None:
    first, second, third = SimulatedHardware("3xH100-PCIE").survey().cards
    assert (set(first.nvlinks), set(second.nvlinks), third.nvlinks) == ({second.address}, {first.address}, ())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "how many cards"),
        ("H100", "2xH200,1xT4"),
        ("8xV100", "A100-40GB"),
        ("0xH100", "0 cards"),
        ("8xH100,9xT4", "1 to 16"),
    ],
)
def test_an_invalid_spec_is_explained(spec: str, message: str) -> None:
    with pytest.raises(HardwareSpecError, match=message):
        SimulatedHardware(spec)


def _state(hardware: SimulatedHardware) -> MigState:
    card, users = _card(hardware), hardware.users(FIRST)
    return MigState(card.mig_enabled, card.mig_pending, card.profiles, card.instances, users)


def _carry_out(hardware: SimulatedHardware, found: Plan) -> None:
    for step in found.steps:
        match step:
            case Enable() | Disable():
                assert hardware.set_mig(FIRST, enabled=isinstance(step, Enable))
            case Destroy(uuid):
                hardware.destroy_instance(FIRST, uuid)
            case Create(profile, start):
                hardware.create_instance(FIRST, profile, start)


@pytest.mark.parametrize("model", [name for name, model in CARD_MODELS.items() if model.profiles])
def test_every_profile_is_had_after_every_other_by_plan(model: str) -> None:
    hardware = SimulatedHardware(f"1x{model}")
    names = [profile.name for profile in _card(hardware).profiles]
    for desired in [*names, *reversed(names), None]:
        found = plan(_state(hardware), desired)
        assert isinstance(found, Plan)
        _carry_out(hardware, found)
        assert plan(_state(hardware), desired) == Plan((), found.target)
    assert (_card(hardware).mig_enabled, _card(hardware).instances) == (False, ())


@pytest.fixture
def a100() -> SimulatedHardware:
    """One card, MIG on."""
    hardware = SimulatedHardware("1xA100")
    assert hardware.set_mig(FIRST, enabled=True)
    return hardware


def test_instances_are_reported_by_their_places(a100: SimulatedHardware) -> None:
    later = a100.create_instance(FIRST, "3g.40gb", 4)
    earlier = a100.create_instance(FIRST, "1g.10gb", 0)
    assert (earlier.profile, earlier.start, earlier.size) == ("1g.10gb", 0, 1)
    assert _card(a100).instances == (earlier, later)
    assert re.fullmatch(r"MIG-[0-9a-f-]{36}", earlier.uuid)
    assert earlier.uuid != later.uuid


@pytest.mark.parametrize(("profile", "start"), [("2g.20gb", 0), ("1g.10gb", 1), ("7g.80gb", 0), ("1g.10gb+me", 6)])
def test_no_instance_is_made_where_another_one_stands_in_its_way(
    a100: SimulatedHardware, profile: str, start: int
) -> None:
    a100.create_instance(FIRST, "1g.20gb", 0)
    a100.create_instance(FIRST, "1g.10gb+me", 5)
    with pytest.raises(BusyError):
        a100.create_instance(FIRST, profile, start)


@pytest.mark.parametrize(("profile", "start"), [("1g.5gb", 0), ("2g.20gb", 1), ("2g.20gb", 6), ("1g.10gb", 7)])
def test_no_instance_is_made_where_none_may_ever_stand(a100: SimulatedHardware, profile: str, start: int) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(profile)):
        a100.create_instance(FIRST, profile, start)


def test_no_instance_is_made_while_mig_is_off() -> None:
    with pytest.raises(UnsupportedError, match="MIG is off"):
        SimulatedHardware("1xA100").create_instance(FIRST, "1g.10gb", 0)


def test_a_card_that_has_no_mig_does_none() -> None:
    hardware = SimulatedHardware("1xT4")
    assert (_card(hardware).mig_enabled, _card(hardware).profiles) == (None, ())
    with pytest.raises(UnsupportedError, match="Tesla T4"):
        hardware.set_mig(FIRST, enabled=True)


def test_what_is_in_use_is_not_destroyed_and_what_is_gone_is_no_error(a100: SimulatedHardware) -> None:
    instance = a100.create_instance(FIRST, "1g.10gb", 0)
    a100.use(FIRST, instance.uuid)
    assert a100.users(FIRST) == {instance.uuid}
    with pytest.raises(BusyError, match=instance.uuid):
        a100.destroy_instance(FIRST, instance.uuid)
    a100.free(FIRST, instance.uuid)
    a100.destroy_instance(FIRST, instance.uuid)
    a100.destroy_instance(FIRST, instance.uuid)
    assert _card(a100).instances == ()


def test_mig_does_not_change_while_the_card_is_used_or_divided(a100: SimulatedHardware) -> None:
    instance = a100.create_instance(FIRST, "1g.10gb", 0)
    with pytest.raises(BusyError):
        a100.set_mig(FIRST, enabled=False)
    a100.destroy_instance(FIRST, instance.uuid)
    a100.use(FIRST)
    assert a100.users(FIRST) == {WHOLE_CARD}
    with pytest.raises(BusyError):
        a100.set_mig(FIRST, enabled=False)
    a100.free(FIRST)
    assert a100.set_mig(FIRST, enabled=False)
    assert _card(a100).mig_enabled is False


def test_nobody_uses_an_instance_that_is_not_there(a100: SimulatedHardware) -> None:
    with pytest.raises(ValueError, match="MIG-nobody"):
        a100.use(FIRST, "MIG-nobody")


def test_a_mode_waits_for_a_reset_where_the_card_needs_one() -> None:
    hardware = SimulatedHardware("1xA100")
    hardware.inject("mig-needs-reset")
    assert hardware.set_mig(FIRST, enabled=True) is False
    assert (_card(hardware).mig_enabled, _card(hardware).mig_pending) == (False, True)
    assert hardware.set_mig(FIRST, enabled=False)
    assert _card(hardware).mig_pending is False
    hardware.set_mig(FIRST, enabled=True)
    hardware.inject("recover")
    assert (_card(hardware).mig_enabled, _card(hardware).mig_pending) == (True, False)


def test_many_threads_make_no_more_instances_than_fit(a100: SimulatedHardware) -> None:
    def make(start: int) -> bool:
        try:
            a100.create_instance(FIRST, "1g.10gb", start % 7)
        except BusyError:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(make, range(70))) == 7
