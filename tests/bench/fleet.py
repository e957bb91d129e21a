"""The history of an invented fleet, in the order of its times: what every figure is measured on.

It follows Titan's: devices are put into slots, fail, are taken out and come back elsewhere; a few devices fail far more
often than the others, and now and then a slot is said to hold two. `docs/benchmarks.md` gives the mix. The same
arguments always give the same history.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import NamedTuple

from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import imported_id
from gpuledger.events.payload import Payload
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.api import Outgoing

SEED = 18_688
SOURCE = "/import/fleet"
EVENTS_PER_DEVICE = 10
FAILURE_SHARE = 0.2
"""How often what happens next to a device in service is a failure, and not its removal."""

HOT_SHARE = 0.03
"""The share of all events that are failures of one of the few devices that fail all the time."""

DEVICES_PER_HOT_DEVICE = 1_000
RETIRED_SHARE = 0.02
INSERTIONS_PER_OVERLAP = 2_000
SECONDS_BETWEEN = 360
BEGIN = datetime(2014, 1, 1, tzinfo=UTC)
RECORDED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = ("DBE", "OTB", "XID 95", "XID 31", "XID 74", "XID 119")


class Pace(NamedTuple):
    """How many seconds lie between two steps on average, and which share of all removals is for good."""

    seconds_between: int = SECONDS_BETWEEN
    retired_share: float = RETIRED_SHARE


USUAL = Pace()
LONG = Pace(20, 0.002)
"""For 10,000,000 events: they end before they are recorded, and most devices are still there."""


class Happening(NamedTuple):
    """What happened, before it is numbered and encoded."""

    subject: str
    time: datetime
    data: Payload


class Fleet:
    """Devices, each of them in a slot or not, that things happen to at random."""

    def __init__(self, devices: int, seed: int, pace: Pace = USUAL) -> None:
        self._random = Random(seed)
        self._pace = pace
        self._serials = [serial(number) for number in range(devices)]
        self._slot_of: list[int | None] = [None] * devices
        self._free = list(range(devices))
        self._declared: set[int] = set()
        self._retired: set[int] = set()
        self._hot = range(0, devices, DEVICES_PER_HOT_DEVICE)
        self._now = BEGIN

    def happenings(self) -> Iterator[Happening]:
        """Without an end, for as long as a device is left that has not retired."""
        while len(self._retired) < len(self._serials):
            self._now += timedelta(seconds=self._random.randrange(2 * self._pace.seconds_between))
            if self._random.random() < HOT_SHARE:
                yield from self._fail(self._random.choice(self._hot))
            else:
                yield from self._happen(self._random.randrange(len(self._serials)))

    def _happen(self, device: int) -> Iterator[Happening]:
        if device in self._retired:
            return
        if self._slot_of[device] is None:
            yield from self._insert(device)
        elif self._random.random() < FAILURE_SHARE:
            yield from self._fail(device)
        else:
            yield self._remove(device)

    def _insert(self, device: int) -> Iterator[Happening]:
        slot = self._slot_of[device] = self._take_slot()
        name = slot_name(slot)
        if slot not in self._declared:
            self._declared.add(slot)
            yield Happening(name, self._now, SlotDeclared(node=name, index=0))
        yield self._of(device, DeviceInserted(slot=name, serial=self._serials[device]))

    def _remove(self, device: int) -> Happening:
        slot = self._slot_of[device]
        assert slot is not None
        self._slot_of[device] = None
        self._free.append(slot)
        retired = self._random.random() < self._pace.retired_share
        if retired:
            self._retired.add(device)
        return self._of(device, DeviceRemoved(slot=slot_name(slot), retired=retired))

    def _fail(self, device: int) -> Iterator[Happening]:
        slot = self._slot_of[device]
        if slot is not None:
            yield self._of(device, DeviceFailed(kind=self._random.choice(KINDS), slot=slot_name(slot)))

    def _take_slot(self) -> int:
        """A free slot; rarely one that is taken, so that the two lives overlap."""
        if self._random.randrange(INSERTIONS_PER_OVERLAP) == 0:
            return self._random.randrange(len(self._serials))
        at = self._random.randrange(len(self._free))
        self._free[at], self._free[-1] = self._free[-1], self._free[at]
        return self._free.pop()

    def _of(self, device: int, data: Payload) -> Happening:
        return Happening(self._serials[device], self._now, data)


def history(events: int, *, seed: int = SEED) -> Iterator[Happening]:
    """The first `events` of a fleet with a device for every ten of them, as many slots, and nothing held back."""
    return history_of(max(events // EVENTS_PER_DEVICE, 1), events, seed=seed)


def history_of(devices: int, events: int, *, seed: int = SEED, pace: Pace = USUAL) -> Iterator[Happening]:
    """The first `events` of a fleet of so many devices, as many slots, and nothing held back."""
    return islice(Fleet(devices, seed, pace).happenings(), events)


def epoch(name: str) -> str:
    """An epoch as importers give it: a digest."""
    return hashlib.sha256(name.encode()).hexdigest()


def published(happenings: Iterable[Happening], epoch: str, first: int = 1) -> Iterator[Outgoing]:
    """The happenings as an importer publishes them, numbered from `first` on."""
    for number, (subject, time, data) in enumerate(happenings, first):
        event = Event(
            imported_id(epoch, number, data.EVENT),
            SOURCE,
            data.TYPE,
            subject,
            time,
            data,
            epoch,
            number,
            recorded_at=RECORDED_AT,
            imported=True,
        )
        yield Outgoing(nats_subject_of(event), event.id, encode(event))


def serial(number: int) -> str:
    """A serial number of 13 digits."""
    return f"0323{number * 7_919 % 1_000_000_007:09d}"


def slot_name(number: int) -> str:
    """A slot named as on a Cray: column, row, cage, blade, node."""
    rest, node = divmod(number, 4)
    rest, blade = divmod(rest, 8)
    rest, cage = divmod(rest, 3)
    column, row = divmod(rest, 8)
    return f"c{column}-{row}c{cage}s{blade}n{node}"
