"""Whatever happens to the cards of a node and to its agent: once all is well, so is every GPUDevice."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.agent.hardware.api import CardFacts, Readings, Survey
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError, HungError
from gpuledger.agent.health.card import Rules
from gpuledger.agent.health.severity import APPLICATION_XIDS
from gpuledger.events.device import DeviceFailed
from support.agent_and_deciders import Watched, watched
from support.agent_parts import CARD, NODE, SURVEY, Disk
from support.bootstrap import components
from support.inventory import labels
from support.thoroughness import examples

PLACES = ("0000:17:00.0", "0000:3d:00.0")
RULES = Rules(NODE, clear_after_s=20.0, clear_after_max_s=60.0)
HUNG, MISSING, LOST, NONSENSE = (
    HungError("hangs"),
    DriverMissingError("no driver"),
    CardLostError("gone"),
    HardwareError("Unknown Error"),
)


class Machine:
    """Which card sits where, and how each of them, and the driver, is."""

    def __init__(self, one: Watched) -> None:
        self.one = one
        self.slots: dict[str, str | None] = {PLACES[0]: "GPU-a", PLACES[1]: "GPU-b"}
        self.silent: set[str] = set()
        self.driver: HardwareError | None = None
        self.odd: dict[str, Readings | HardwareError] = {}
        self.sliced: set[str] = set()

    def show(self) -> None:
        """Have the hardware report it."""
        calls = self.one.calls
        there = {place: uuid for place, uuid in self.slots.items() if uuid is not None}
        cards = tuple(self._facts(place, uuid) for place, uuid in sorted(there.items()))
        missing = self.driver is MISSING
        calls.survey_result = HUNG if self.driver is HUNG else Survey(cards, driver_missing=missing)
        calls.read = {place: self._readings(there.get(place)) for place in PLACES}

    def _facts(self, place: str, uuid: str) -> CardFacts:
        if uuid in self.silent or self.driver is MISSING:
            return CardFacts(place, "10de", "2330", "0302")
        return CARD._replace(address=place, uuid=uuid, serial=uuid, mig_enabled=uuid in self.sliced)

    def _readings(self, uuid: str | None) -> Readings | HardwareError:
        if self.driver is not None:
            return self.driver
        if uuid is None or uuid in self.silent:
            return LOST
        return self.odd.get(uuid, Readings(ecc_uncorrected_volatile=0))

    def mend(self) -> None:
        """Everything works, and the Node's facts agree; empty slots stay empty."""
        self.silent, self.driver, self.odd = set(), None, {}
        self.one.metrics = True
        self.label()
        self.show()

    def label(self) -> None:
        """Have Node Feature Discovery count the cards that sit somewhere."""
        self.one.found(labels(*("2330" for uuid in self.slots.values() if uuid is not None)))


class Step(NamedTuple):
    """What happens, to which of the two places, and how long it is until the next."""

    what: str
    place: int
    after_s: float


Deed = Callable[[Machine, str], object]


def _silence(machine: Machine, place: str) -> None:
    machine.silent.add(machine.slots[place] or "")


def _odd(readings: Readings | HardwareError) -> Deed:
    def make(machine: Machine, place: str) -> None:
        machine.odd[machine.slots[place] or ""] = readings

    return make


def _swap(machine: Machine, _place: str) -> None:
    machine.slots = {PLACES[0]: machine.slots[PLACES[1]], PLACES[1]: machine.slots[PLACES[0]]}


def _replace(machine: Machine, place: str) -> None:
    others = {"GPU-a", "GPU-b", "GPU-c"} - set(machine.slots.values())
    machine.slots[place] = min(others)


def _clock(seconds: float) -> Deed:
    return lambda machine, _place: setattr(machine.one, "wall", seconds)


def _driver(error: HardwareError | None) -> Deed:
    return lambda machine, _place: setattr(machine, "driver", error)


DEEDS: dict[str, Deed] = {
    "nothing": lambda *_: None,
    "silence": _silence,
    "answer": lambda machine, place: machine.silent.discard(machine.slots[place] or ""),
    "odd-failed": _odd(Readings(remap_failed=True, ecc_uncorrected_volatile=0)),
    "odd-hot": _odd(Readings(throttled=frozenset({"HwThermalSlowdown"}))),
    "odd-nonsense": _odd(NONSENSE),
    "well": lambda machine, place: machine.odd.pop(machine.slots[place] or "", None),
    "take-out": lambda machine, place: machine.slots.update({place: None}),
    "replace": _replace,
    "swap": _swap,
    "hang": _driver(HUNG),
    "unload": _driver(MISSING),
    "load": _driver(None),
    "slice": lambda machine, place: machine.sliced.add(machine.slots[place] or ""),
    "ahead": _clock(5_000.0),
    "behind": _clock(-5_000.0),
    "right": _clock(0.0),
    "mute": lambda machine, _place: setattr(machine.one, "metrics", False),
    "speak": lambda machine, _place: setattr(machine.one, "metrics", True),
}
XIDS = ("xid 79", "xid 95", "xid 31", "xid 63")
OTHERS = ("restart", "forget", "delete")
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([*DEEDS, *XIDS, *OTHERS, *XIDS, *OTHERS, *OTHERS]),
        st.integers(0, 1),
        st.sampled_from([0.0, 1.0, 5.0, 7.0, 30.0]),
    ),
    max_size=16,
)


async def happen(machine: Machine, step: Step) -> None:
    one, place = machine.one, PLACES[step.place]
    if step.what == "restart":
        await one.restart()
    elif step.what == "forget":
        await one.restart(disk=Disk())
    elif step.what == "delete":
        one.services.record("/watchers/components", "w", NODE, components(), one.time.clock())
        one.gone()
        await one.stop()
        await one.advance(1)
        machine.label()
        await one.start()
    elif step.what.startswith("xid "):
        await one.strike(int(step.what[4:]), place)
    else:
        DEEDS[step.what](machine, place)
        machine.show()
    await one.advance(step.after_s)


async def lived(what: list[Step]) -> tuple[Watched, Machine]:
    async with watched(survey=SURVEY._replace(cards=())) as one:
        one.rules = RULES
        machine = Machine(one)
        machine.show()
        await one.restart()
        await one.pass_looks()
        for step in what:
            await happen(machine, step)
        machine.mend()
        await one.advance(4 * RULES.clear_after_max_s)
        await one.pass_looks()
        return one, machine


@example([Step("silence", 0, 0.0), Step("forget", 0, 0.0), Step("swap", 0, 0.0)])
@examples(0.5)
@given(steps)
def test_once_all_is_well_every_card_is_ready(what: list[Step]) -> None:
    one, machine = asyncio.run(lived(what))
    there = {uuid: place for place, uuid in machine.slots.items() if uuid is not None}
    states = one.services.states()
    shown = {device.uuid: device for device in one.services.devices() if not device.provisional}
    assert {uuid: shown[uuid].pci_address for uuid in there} == there
    for uuid, device in shown.items():
        assert device.missing == (uuid not in there)
        assert states[device.name] == (("Ready", "Validated") if uuid in there else ("Faulted", "NotObserved"))
    assert one.board.state.unfit == {}


@example([Step("silence", 0, 5.0), Step("forget", 1, 0.0), Step("forget", 1, 0.0)])
@examples(0.25)
@given(steps)
def test_every_failure_has_a_cause(what: list[Step]) -> None:
    one, _ = asyncio.run(lived(what))
    causes = sum(
        step.what in {"xid 79", "xid 95", "silence", "odd-failed", "odd-nonsense", "take-out"} for step in what
    )
    lives = 1 + sum(step.what == "forget" for step in what)
    recorded = [fact.data for fact in one.recorded if isinstance(fact.data, DeviceFailed)]
    # An agent that has lost its state reports anew what has not cleared.
    assert len(recorded) <= (1 + lives) * causes + sum(step.what in {"swap", "replace"} for step in what)
    assert not {data.kind for data in recorded} & {f"XID {number}" for number in APPLICATION_XIDS}
