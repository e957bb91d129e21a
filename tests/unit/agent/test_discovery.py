"""Discovery: what it records of a node's cards, when, and under which identity."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent import discovery
from gpuledger.agent.board import Board
from gpuledger.agent.discovery import NO_DRIVER, POLL_PERIOD_S, REFRESH_S, CardDiscovery, refresh_of
from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.agent.hardware.errors import HardwareError, HungError
from gpuledger.agent.survey_event import survey_event
from gpuledger.agent.survey_history import MISSED_SURVEYS_MAX, SurveyHistory, dump, load, with_survey
from gpuledger.domain.mig.geometry import Instance, Profile
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesObserved
from support.agent_parts import CARD, NODE, PLACE, SURVEY, UUID, Disk, ScriptedCalls, Time, settle
from support.thoroughness import examples

PROFILE = Profile("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 9_728)
SLICED = CARD._replace(
    mig_enabled=True,
    profiles=(PROFILE,),
    instances=(Instance("MIG-1", "1g.10gb", 3, 1),),
    pci_path=("0000:00:01.0",),
    nvlinks=("0000:05:00.0", "0000:06:00.0"),
)
LOST = CardFacts(PLACE, "10de", "2330", "0302", numa_node=0)


class Discovered:
    """A discovery with what it stands on."""

    def __init__(self, survey: Survey = SURVEY, disk: Disk | None = None) -> None:
        self.time, self.board, self.disk, self.calls = Time(), Board(), disk or Disk(), ScriptedCalls(survey)
        self.part = CardDiscovery(
            NODE,
            self.calls,
            self.board,
            self.disk,
            clock=self.time.clock,
            monotonic=self.time.monotonic,
            sleep=self.time.sleep,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.part.run(self.disk.record))
        await settle()
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def see(self, survey: Survey | HardwareError, looks: int = 1) -> None:
        self.calls.survey_result = survey
        await self.time.advance(looks * POLL_PERIOD_S)

    @property
    def recorded(self) -> list[NodeDevicesObserved]:
        assert {fact.subject for fact in self.disk.recorded} <= {NODE}
        return [fact.data for fact in self.disk.recorded if isinstance(fact.data, NodeDevicesObserved)]


def event(survey: Survey) -> tuple[NodeDevicesObserved, list[str]]:
    """The event of a survey as it comes out of the ledger, and what was noted."""
    notes: list[str] = []
    made = survey_event(survey, notes.append)
    return NodeDevicesObserved.model_validate_json(made.model_dump_json()), notes


def test_every_field_of_a_card_is_reported() -> None:
    recorded, notes = event(SURVEY._replace(cards=(SLICED,)))
    assert notes == []
    assert recorded.model_dump(exclude_none=True) == {
        "driver_version": "575.57.08",
        "cuda_version": "12.9",
        "driver_missing": False,
        "cards": (
            {
                "uuid": UUID,
                "serial": "1650",
                "pci_address": PLACE,
                "pci_vendor": "10de",
                "pci_device": "2330",
                "pci_class": "0302",
                "product": "NVIDIA H100",
                "memory_mib": 81_559,
                "compute_major": 9,
                "compute_minor": 0,
                "mig_capable": True,
                "mig_profiles": ("1g.10gb",),
                "mig_enabled": True,
                "mig_instances": ({"uuid": "MIG-1", "profile": "1g.10gb", "start": 3},),
                "numa_node": 0,
                "pci_path": ("0000:00:01.0",),
                "nvlink_peers": ("0000:05:00.0", "0000:06:00.0"),
            },
        ),
    }


@pytest.mark.parametrize(
    ("facts", "capable"),
    [(CARD, True), (CARD._replace(mig_enabled=None), False), (LOST, None), (SLICED._replace(mig_enabled=None), True)],
)
def test_whether_a_card_has_mig(facts: CardFacts, capable: bool | None) -> None:
    assert event(SURVEY._replace(cards=(facts,)))[0].cards[0].mig_capable is capable


@pytest.mark.parametrize(
    ("odd", "recorded"),
    [
        ({"serial": ""}, {"serial": None}),
        ({"serial": "\x00\x00"}, {"serial": None}),
        ({"serial": " 12\x0034\n"}, {"serial": "12 34"}),
        ({"product": "Ж" * 300}, {"product": "Ж" * 253}),
        ({"product": "H100\ud800"}, {"product": "H100"}),
        ({"uuid": "GPU 17"}, {"uuid": None}),
        ({"uuid": "G" * 129}, {"uuid": None}),
        ({"pci_class": "display"}, {"pci_class": None}),
        ({"memory_mib": -1}, {"memory_mib": None}),
        ({"memory_mib": 2**63}, {"memory_mib": None}),
        ({"numa_node": -1}, {"numa_node": None}),
        ({"compute": (-1, 0)}, {"compute_major": None, "compute_minor": 0}),
        ({"pci_path": ("", "0000:00:01.0")}, {"pci_path": ("0000:00:01.0",)}),
        ({"nvlinks": ("0000:05:00.0",) * 65}, {"nvlink_peers": ("0000:05:00.0",) * 64}),
        ({"instances": (Instance("MIG 1", "1g.10gb", 0, 1), Instance("MIG-2", "", 0, 1))}, {"mig_instances": ()}),
        ({"instances": (Instance("MIG-1", "1g.10gb", -1, 1),)}, {"mig_instances": ()}),
    ],
)
def test_what_a_driver_reports_that_is_odd_is_cut_or_left_out_and_noted(
    odd: dict[str, Any], recorded: dict[str, Any]
) -> None:
    reported, notes = event(SURVEY._replace(cards=(CARD._replace(**odd),)))
    assert {name: getattr(reported.cards[0], name) for name in recorded} == recorded
    assert notes


@pytest.mark.parametrize("odd", [{"address": "17"}, {"pci_vendor": ""}, {"pci_device": "xyz"}])
def test_a_card_that_cannot_be_reported_hides_no_other(odd: dict[str, Any]) -> None:
    other = CARD._replace(address="0000:3d:00.0", uuid="GPU-3d")
    reported, notes = event(SURVEY._replace(cards=(CARD._replace(**odd), other)))
    assert [card.uuid for card in reported.cards] == ["GPU-3d"]
    assert notes


texts = st.none() | st.text(st.characters(), max_size=300)
numbers = st.none() | st.integers(-3, 2**64)
odd_cards = st.builds(
    CardFacts,
    st.sampled_from([PLACE, "0000:3d:00.0", "", "x"]),
    st.sampled_from(["10de", "10DE", ""]),
    st.sampled_from(["2330", "é"]),
    texts,
    texts,
    texts,
    texts,
    numbers,
    st.none() | st.tuples(st.integers(-1, 99), st.integers(-1, 99)),
    numbers,
    st.lists(texts.map(str), max_size=40).map(tuple),
    st.lists(texts.map(str), max_size=70).map(tuple),
    st.sampled_from([None, True, False]),
    st.booleans(),
    st.lists(st.builds(PROFILE._replace, name=texts.map(str)), max_size=70).map(tuple),
    st.lists(st.builds(Instance, texts.map(str), texts.map(str), st.integers(-1, 2**64), st.just(1))).map(tuple),
)


@examples()
@given(st.lists(odd_cards, max_size=4), texts, texts)
def test_whatever_a_driver_reports_the_event_can_be_decoded(cards: list[CardFacts], driver: str, cuda: str) -> None:
    event(Survey(tuple(cards), driver, cuda))


def test_more_cards_than_an_event_holds_are_cut() -> None:
    cards = tuple(CARD._replace(address=f"{number:04x}:17:00.0") for number in range(CARDS_PER_NODE_MAX + 1))
    reported, notes = event(SURVEY._replace(cards=cards))
    assert len(reported.cards) == CARDS_PER_NODE_MAX
    assert len(notes) == 1


def test_a_card_that_stopped_answering_stays_who_it_was() -> None:
    history = with_survey(
        with_survey(SurveyHistory(), SURVEY._replace(cards=(SLICED,))), SURVEY._replace(cards=(LOST,))
    )
    assert history.survey is not None
    (card,) = history.survey.cards
    assert (card.uuid, card.serial, card.product, card.memory_mib) == (UUID, "1650", "NVIDIA H100", 81_559)
    assert (card.mig_enabled, card.instances, card.profiles) == (None, (), (PROFILE,))


def test_another_card_in_its_place_does_not_become_it() -> None:
    history = with_survey(
        with_survey(SurveyHistory(), SURVEY), SURVEY._replace(cards=(LOST._replace(pci_device="20b0"),))
    )
    assert history.survey is not None
    assert history.survey.cards[0].uuid is None
    assert history.identities == {}


def test_a_card_that_moved_left_nothing_of_itself_where_it_was() -> None:
    moved = CARD._replace(address="0000:3d:00.0")
    history = with_survey(with_survey(SurveyHistory(), SURVEY), SURVEY._replace(cards=(LOST, moved)))
    assert history.survey is not None
    assert [card.uuid for card in history.survey.cards] == [None, UUID]


def test_who_was_where_is_stored() -> None:
    history = with_survey(SurveyHistory(), SURVEY._replace(cards=(SLICED,)))
    assert load(dump(history.identities)) == history.identities


@pytest.mark.parametrize("value", [b"", b"[]", b'{"a": 1}', b'{"a": {}}', b'{"a": {"compute": [1], "profiles": []}}'])
def test_what_was_stored_and_cannot_be_read_is_nobody(value: bytes) -> None:
    assert load(value) == {}


def test_a_card_that_is_missed_for_a_moment_is_still_there() -> None:
    none = SURVEY._replace(cards=())
    history = with_survey(with_survey(SurveyHistory(), SURVEY), none)
    assert history.survey == SURVEY
    for _ in range(MISSED_SURVEYS_MAX - 1):
        history = with_survey(history, none)
    assert (history.survey, history.missed) == (none, {})


places = st.sampled_from(["0000:17:00.0", "0000:3d:00.0", "0000:60:00.0"])
surveys = st.lists(places, unique=True).map(
    lambda there: SURVEY._replace(cards=tuple(CARD._replace(address=one, uuid=f"GPU-{one}") for one in sorted(there)))
)


@examples()
@given(st.lists(surveys | st.just(HungError("hangs")), min_size=1, max_size=12), surveys)
def test_what_was_reported_last_is_the_last_survey(before: list[Survey | HardwareError], last: Survey) -> None:
    async def run() -> Discovered:
        one = Discovered(last)
        one.calls.survey_result = before[0]
        async with one.running():
            for survey in before[1:]:
                await one.see(survey)
            await one.see(last, looks=MISSED_SURVEYS_MAX)
        return one

    one = asyncio.run(run())
    assert one.recorded[-1] == event(last)[0]
    assert one.board.state.survey == last
    assert all(earlier != later for earlier, later in zip(one.recorded, one.recorded[1:], strict=False))


async def test_what_changed_stands_on_the_board_before_it_is_reported() -> None:
    one = Discovered()
    async with one.running():
        assert one.board.state.survey == SURVEY
        assert len(one.recorded) == 1
        await one.see(SURVEY._replace(driver_missing=True, driver_version=None))
        assert [recorded.driver_missing for recorded in one.recorded] == [False, True]


async def test_where_nothing_changed_no_event_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Discovered()
    async with one.running():
        monkeypatch.setattr("gpuledger.agent.discovery.survey_event", None)
        monkeypatch.setattr("gpuledger.agent.discovery.with_survey", None)
        await one.see(Survey(*SURVEY), looks=20)
        assert (one.calls.surveys, len(one.recorded), one.disk.writes) == (21, 1, 1)


async def test_cards_are_reported_anew_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "REFRESH_S", 600.0)
    one = Discovered()
    async with one.running():
        await one.see(SURVEY, looks=int(1_200 / POLL_PERIOD_S))
        assert len(one.recorded) == 3


def test_not_all_nodes_speak_at_once() -> None:
    later = 1_000.0 + REFRESH_S / 30
    spoke = [refresh_of(f"node-{number}", 1_000.0) != refresh_of(f"node-{number}", later) for number in range(10_000)]
    assert 200 < sum(spoke) < 500


async def test_a_survey_that_fails_reports_nothing_and_health_shows_it() -> None:
    one = Discovered()
    async with one.running():
        await one.see(HungError("the driver hangs"), looks=5)
        assert (len(one.recorded), one.board.state.survey, one.part.trouble) == (1, SURVEY, "the driver hangs")
        assert one.part.alive_at == one.time.s
        await one.see(SURVEY)
        assert (len(one.recorded), one.part.trouble) == (1, None)


async def test_a_driver_that_does_not_answer_is_a_trouble_until_it_does() -> None:
    one = Discovered()
    async with one.running():
        await one.see(SURVEY._replace(driver_missing=True))
        assert one.part.trouble == NO_DRIVER
        await one.see(Survey((), driver_missing=True), MISSED_SURVEYS_MAX + 1)
        assert one.part.trouble is None, "a node without cards needs no driver"
        await one.see(SURVEY)
        assert one.part.trouble is None


async def test_a_card_that_fell_off_the_bus_keeps_its_identity_over_a_restart() -> None:
    disk = Disk()
    async with Discovered(disk=disk).running():
        pass
    one = Discovered(SURVEY._replace(cards=(LOST,)), disk)
    async with one.running():
        assert [recorded.cards[0].uuid for recorded in one.recorded] == [UUID, UUID]


async def test_odd_values_are_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        "gpuledger.agent.discovery.log.warning", lambda *_args, reason="", **_more: logged.append(reason)
    )
    one = Discovered(SURVEY._replace(cards=(CARD._replace(serial=""),)))
    async with one.running():
        await one.see(SURVEY._replace(cards=(CARD._replace(serial="", numa_node=1),)))
    assert len(one.recorded) == 2
    assert len(logged) == 1
