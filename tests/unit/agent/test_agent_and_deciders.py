"""What becomes of the GPUDevices of a node whose cards fail, vanish, move and recover, from hardware to decisions."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pynvml import NVML_ERROR_LIBRARY_NOT_FOUND

from gpuledger.agent.hardware.api import CardFacts, Readings, Survey, Xid
from gpuledger.agent.hardware.errors import CardLostError, HardwareError
from gpuledger.agent.health.card import CLEAR_AFTER_S
from gpuledger.agent.part import AgentFact
from gpuledger.domain.mig.geometry import Instance, Profile
from gpuledger.events.device import DeviceFailed, DeviceHealthChanged
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeDevicesObserved
from support.agent_and_deciders import Watched, watched
from support.agent_parts import CARD, NODE, PLACE, SURVEY, UUID, Disk, settle
from support.bootstrap import components
from support.hardware import FIRST, SECOND, bench
from support.inventory import labels

NAME = "worker-01-0000-17-00-0"
READY = ("Ready", "Validated")
OTHER = CARD._replace(address="0000:3d:00.0", uuid="GPU-3d", serial="1651")
OTHER_NAME = "worker-01-0000-3d-00-0"
TWO = SURVEY._replace(cards=(CARD, OTHER))
LOST = CardFacts(PLACE, "10de", "2330", "0302", numa_node=0)
NONE = SURVEY._replace(cards=())


def failures(one: Watched) -> int:
    return sum(isinstance(fact.data, DeviceFailed) for fact in one.recorded)


async def fall(one: Watched) -> None:
    """The card falls off the bus."""
    one.calls.survey_result = SURVEY._replace(cards=(LOST,))
    one.calls.read[PLACE] = CardLostError("gone")
    await one.strike(79)
    await one.advance(20)


async def come_back(one: Watched) -> None:
    one.calls.survey_result = SURVEY
    one.calls.read.pop(PLACE, None)


async def test_a_card_is_prepared_whatever_came_first() -> None:
    async with watched(node_first=False) as one:
        one.found(labels("2330"))
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}
        (device,) = one.services.devices()
        assert (device.uuid, device.provisional, device.missing) == (UUID, False, False)


async def test_a_card_is_prepared_without_node_feature_discovery() -> None:
    async with watched(node_first=False) as one:
        one.found(nfd_version=None)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}


async def test_cards_on_the_bus_lack_their_driver_although_nothing_else_tells_of_them(tmp_path: Path) -> None:
    """Neither Node Feature Discovery nor a driver is there, but the agent reads the PCI bus."""
    machine = bench(tmp_path)
    machine.nvml.init_error = NVML_ERROR_LIBRARY_NOT_FOUND
    async with watched(node_first=False, survey=machine.hardware.survey()) as one:
        one.found(nfd_version=None)
        await one.pass_looks()
        assert [(device.pci_address, device.uuid) for device in one.services.devices()] == [
            (FIRST, None),
            (SECOND, None),
        ]
        assert one.services.condition("DriverMissing") == ("True", "DriverNotAnswering")
        one.calls.survey_result = SURVEY
        await one.pass_looks()
        assert one.services.condition("DriverMissing")[0] == "False"


async def test_a_node_without_cards_has_no_inventory_and_no_preparation() -> None:
    async with watched(node_first=False, survey=Survey((), driver_missing=True)) as one:
        one.metrics = False
        one.found(nfd_version=None)
        await one.pass_looks()
        kinds = {type(event.data) for event in one.services.events if event.source.startswith("/services/")}
        assert kinds == {ModulePrerequisiteChanged}
        assert {type(fact.data) for fact in one.recorded} == {NodeDevicesObserved}


async def test_a_card_that_fails_is_faulted_and_ready_again_when_it_is_well() -> None:
    async with watched() as one:
        assert one.services.states() == {NAME: READY}
        await fall(one)
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault")}
        await come_back(one)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}
        assert failures(one) == 1


async def test_a_card_that_left_the_bus_altogether_and_returned_is_ready_again() -> None:
    async with watched() as one:
        one.calls.survey_result, one.calls.read[PLACE] = NONE, CardLostError("gone")
        await one.advance(60)
        assert one.services.states() == {NAME: ("Faulted", "NotObserved")}
        await come_back(one)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}


async def test_a_card_that_was_not_there_when_the_agent_began_is_ready_when_it_returns() -> None:
    async with watched() as one:
        one.calls.survey_result, one.calls.read[PLACE] = NONE, CardLostError("gone")
        await one.restart()
        await one.pass_looks(20)
        assert one.services.states() == {NAME: ("Faulted", "NotObserved")}
        await come_back(one)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}
        assert failures(one) == 0


async def test_cards_that_were_counted_before_are_the_agents_cards() -> None:
    async with watched(survey=NONE) as one:
        one.found(labels("2330", "2330"))
        await one.pass_looks(1)
        before = {device.name for device in one.services.devices()}
        assert [device.provisional for device in one.services.devices()] == [True, True]
        one.calls.survey_result = TWO
        await one.pass_looks()
        assert {device.name for device in one.services.devices()} == before
        assert {device.uuid for device in one.services.devices()} == {UUID, "GPU-3d"}
        assert set(one.services.states().values()) == {READY}
        await one.strike(79)
        (unfit,) = (device for device in one.services.devices() if device.uuid == UUID)
        assert one.services.states()[unfit.name] == ("Faulted", "HardwareFault")


async def test_a_card_that_moved_to_another_node_unfit_is_ready_there_and_when_it_is_back() -> None:
    async with watched() as one:
        await fall(one)
        other = Watched(one.services, one.time, node="worker-02", survey=NONE)
        other.found()
        await other.start()
        one.calls.survey_result, other.calls.survey_result = NONE, SURVEY
        await one.pass_looks()
        assert [(d.node, d.uuid) for d in one.services.devices()] == [("worker-02", UUID)]
        assert set(one.services.states().values()) == {READY}
        other.calls.survey_result = NONE
        await come_back(one)
        await one.pass_looks()
        assert [(d.node, d.uuid) for d in one.services.devices()] == [(NODE, UUID)]
        assert set(one.services.states().values()) == {READY}
        await other.stop()


async def test_mig_that_is_turned_on_changes_neither_card_nor_health() -> None:
    async with watched() as one:
        profiles = (Profile("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 9_728),)
        sliced = CARD._replace(mig_enabled=True, profiles=profiles, instances=(Instance("MIG-1", "1g.10gb", 0, 1),))
        one.calls.survey_result = SURVEY._replace(cards=(sliced,))
        await one.pass_looks(2)
        (device,) = one.services.devices()
        assert (device.name, device.uuid, device.mig_profiles, device.mig_capable) == (NAME, UUID, "1g.10gb", True)
        assert one.services.states() == {NAME: READY}
        await one.strike(45)
        await one.strike(31)
        assert (one.services.states(), one.board.state.unfit) == ({NAME: READY}, {})
        await one.strike(48)
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault")}


async def test_a_card_that_never_reported_who_it_is_recovers() -> None:
    async with watched(survey=SURVEY._replace(cards=(LOST,))) as one:
        one.calls.read[PLACE] = CardLostError("gone")
        await one.advance(20)
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault")}
        await come_back(one)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}
        assert [(d.name, d.uuid) for d in one.services.devices()] == [(NAME, UUID)]


async def test_an_agent_that_forgot_everything_reports_that_a_card_is_fit() -> None:
    async with watched() as one:
        await one.strike(95)
        await one.advance(20)
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault")}
        await one.restart(disk=Disk())
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}


async def test_an_agent_killed_before_its_word_was_stored_still_reports_that_a_card_is_fit() -> None:
    async with watched() as one:
        await one.strike(95)
        record, lost = one.record, list[AgentFact]()

        async def lose(facts: Sequence[AgentFact]) -> None:
            fit = [fact for fact in facts if isinstance(fact.data, DeviceHealthChanged) and fact.data.healthy]
            lost.extend(fit)
            if fit:
                raise OSError("killed")
            await record(facts)

        one.record = lose  # type: ignore[method-assign]
        await one.restart()
        await one.advance(CLEAR_AFTER_S + 20)
        assert len(lost) == 1
        one.record = record  # type: ignore[method-assign]
        await one.restart()
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}


async def test_a_node_that_was_made_anew_records_again_that_a_card_is_unfit() -> None:
    async with watched() as one:
        one.calls.read[PLACE] = Readings(remap_failed=True)
        await one.advance(20)
        one.services.record("/watchers/components", "w", NODE, components(), one.time.clock())
        one.gone()
        await one.stop()
        await one.advance(60)
        one.found()
        await one.start()
        await one.pass_looks()
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault")}
        assert failures(one) == 1


async def test_a_card_that_answers_nonsense_is_unfit_and_takes_no_other_with_it() -> None:
    async with watched(survey=TWO) as one:
        one.calls.read[PLACE] = HardwareError("Unknown Error (NVML error 999)")
        await one.advance(20)
        assert one.services.states() == {NAME: ("Faulted", "HardwareFault"), OTHER_NAME: READY}
        await one.restart()
        await one.advance(20)
        assert one.board.state.unfit is not None
        assert set(one.board.state.unfit) == {PLACE}
        del one.calls.read[PLACE]
        await one.pass_looks()
        assert one.services.states() == {NAME: READY, OTHER_NAME: READY}


async def test_a_clock_that_was_set_back_keeps_no_card_from_recovering() -> None:
    async with watched() as one:
        await one.strike(95)
        await one.advance(20)
        one.wall = -3_600.0
        await one.advance(CLEAR_AFTER_S)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY}


async def test_two_cards_that_swapped_places_keep_who_they_are() -> None:
    async with watched(survey=TWO) as one:
        await one.strike(95)
        one.calls.survey_result = SURVEY._replace(
            cards=(OTHER._replace(address=PLACE), CARD._replace(address=OTHER.address))
        )
        await one.time.advance(5)
        assert one.board.state.unfit == {OTHER.address: "XID 95"}
        await one.advance(CLEAR_AFTER_S)
        await one.pass_looks()
        assert one.services.states() == {NAME: READY, OTHER_NAME: READY}
        assert [(d.name, d.uuid, d.pci_address) for d in one.services.devices()] == [
            (NAME, UUID, OTHER.address),
            (OTHER_NAME, "GPU-3d", PLACE),
        ]


async def test_unfit_is_right_as_soon_as_a_survey_shows_where_an_unfit_card_sits() -> None:
    async with watched(survey=TWO) as one:
        await one.strike(95)
        swapped = SURVEY._replace(cards=(OTHER._replace(address=PLACE), CARD._replace(address=OTHER.address)))
        one.board.put(survey=swapped)
        await settle()
        assert one.board.state.unfit == {OTHER.address: "XID 95"}


async def test_a_card_in_the_place_of_another_is_a_device_of_its_own() -> None:
    async with watched() as one:
        await fall(one)
        new = CARD._replace(uuid="GPU-new", serial="9")
        one.calls.survey_result = SURVEY._replace(cards=(new,))
        del one.calls.read[PLACE]
        await one.pass_looks()
        rows = {d.uuid: (d.missing, one.services.states()[d.name]) for d in one.services.devices()}
        assert rows["GPU-new"] == (False, READY)
        assert UUID not in rows
        assert one.board.state.unfit == {}


async def test_a_driver_that_was_loaded_anew_leaves_every_card_ready() -> None:
    async with watched(survey=TWO) as one:
        one.calls.survey_result = Survey(
            tuple(LOST._replace(address=card.address) for card in TWO.cards), driver_missing=True
        )
        await one.advance(60)
        assert {state for state, _ in one.services.states().values()} == {"Faulted"}
        assert failures(one) == 0
        one.calls.survey_result = TWO
        await one.pass_looks()
        assert one.services.states() == {NAME: READY, OTHER_NAME: READY}


async def test_a_card_that_flaps_for_hours_floods_nobody() -> None:
    async with watched() as one:
        before = len(one.recorded)
        for _ in range(400):
            one.calls.read[PLACE] = CardLostError("gone")
            await one.time.advance(5)
            del one.calls.read[PLACE]
            await one.time.advance(10)
        assert failures(one) < 20
        assert len(one.recorded) - before < 300


async def test_thousands_of_errors_of_an_unknown_card_are_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr("gpuledger.agent.health.part.log.warning", lambda text, **_more: logged.append(text))
    async with watched() as one:
        for _ in range(2_000):
            one.calls.xids.put_nowait(Xid("0000:ff:00.0", 79))
        for _ in range(60):
            await settle()
        assert one.calls.xids.empty()
        assert len(logged) < 10
