"""Folds what happened to devices and slots: passports, installations, failures, errors and contradictions.

An installation is one life of a device in a slot, from insertion to removal. Rows depend on the set of facts, not on
the order in which they were recorded. The fold records contradictions and never repairs them.
"""

from datetime import datetime
from operator import attrgetter
from sys import intern
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, TableState, storable
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.versions import put_version
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.position import Offset
from gpuledger.events.publishing import Rule
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.subjects import origin_of

"""The earliest time of an error: agents' clocks may be wrong by any amount."""

IN_SERVICE, REMOVED, RETIRED, UNPLACED = "InService", "Removed", "Retired", "Unplaced"

_BOUNDS: Final = Rule.BOUNDS  # Every event asks, and an enumeration takes long to find its member.

_entered = attrgetter("valid_from", "device")
_began = attrgetter("valid_from", "slot")


class Device(NamedTuple):
    """A device's passport as it is now. Of several open installations the one that began last gives the slot.

    `places` counts the open installations (more than 1 is a contradiction); `removed_at` is when one last ended.
    """

    device: str
    state: str
    slot: str | None
    in_service_since: datetime | None
    places: int
    serial: str | None
    uuid: str | None
    model: str | None
    first_seen_at: datetime
    removed_at: datetime | None
    lives: int
    failures: int
    last_failed_at: datetime | None


class Installation(NamedTuple):
    """One life of a device in a slot: in service from `valid_from` up to, not including, `valid_to`."""

    device: str
    slot: str
    valid_from: datetime
    valid_to: datetime | None
    retired: bool
    serial: str | None
    uuid: str | None
    model: str | None
    source: str
    epoch: str


class Stray(NamedTuple):
    """An insertion or removal that fits no installation: of a device that is there already, or that is not there.

    It is kept whole, because a late fact may still pair it. An installation's source and epoch are its insertion's, so
    a removal's are empty: it would lose them in an installation and come out as another stray.
    """

    device: str
    slot: str
    at: datetime
    inserted: bool
    retired: bool
    serial: str | None
    uuid: str | None
    model: str | None
    source: str
    epoch: str


class Failure(NamedTuple):
    """One failure of a device, identified by its event's place in its source's numbering."""

    event_id: str
    device: str
    slot: str | None
    kind: str
    failed_at: datetime
    message: str | None
    source: str
    epoch: str
    number: int


class DeviceErrors(NamedTuple):
    """The errors of one kind and cause that a node's agent saw on a device and that left it usable."""

    device: str
    kind: str
    cause: str
    node: str
    errors: int
    first_at: datetime
    last_at: datetime


class Slot(NamedTuple):
    """A slot as it is now; `occupants` is more than 1 where devices contradict each other.

    `vacated_at` is when a device last left it.
    """

    slot: str
    node: str | None
    slot_index: int | None
    device: str | None
    occupants: int
    lives: int
    first_seen_at: datetime
    vacated_at: datetime | None


class SlotVersion(NamedTuple):
    """Where a slot was declared to be, from when to when."""

    slot: str
    valid_from: datetime
    valid_to: datetime | None
    position: Offset
    node: str
    slot_index: int


class DeviceVersion(NamedTuple):
    """A device's passport from `valid_from` on, until its next version; failures and the first sight are elsewhere.

    There is one for each moment when an installation of the device began or ended.
    """

    device: str
    valid_from: datetime
    state: str
    slot: str | None
    in_service_since: datetime | None
    places: int
    serial: str | None
    uuid: str | None
    model: str | None
    removed_at: datetime | None
    lives: int


class SlotOccupancy(NamedTuple):
    """Who is in a slot from `valid_from` on, until its next version: one for each moment when somebody came or left."""

    slot: str
    valid_from: datetime
    device: str | None
    occupants: int
    lives: int
    vacated_at: datetime | None


class Contradiction(NamedTuple):
    """Two things that cannot both be true.

    `two-devices-in-slot`: subject is the slot, first and second are devices. `device-in-two-slots`: subject is the
    device, first and second are slots. `inserted-twice` and `removed-not-inserted`: subject is the device, first
    the slot, `first_at` the time of the fact that fits no life. The two lives are named by when they began.
    """

    kind: str
    subject: str
    first: str
    first_at: datetime
    second: str
    second_at: datetime
    valid_from: datetime
    valid_to: datetime | None


DEVICE = TableSpec("device", Device, ("device",))
INSTALLATION: TableSpec[Installation] = TableSpec(
    "installation",
    Installation,
    ("device", "slot", "valid_from"),
    retires=("valid_to",),
    page_by=("device", "slot"),
)
STRAY = TableSpec("stray", Stray, ("device", "slot", "at", "inserted"))
FAILURE: TableSpec[Failure] = TableSpec("failure", Failure, ("source", "epoch", "number"), retires=())
ERRORS = TableSpec("device_errors", DeviceErrors, ("device", "kind", "cause", "node"))
SLOT = TableSpec("slot", Slot, ("slot",))
SLOT_HISTORY = TableSpec("slot_history", SlotVersion, ("slot", "valid_from"))
CONTRADICTION: TableSpec[Contradiction] = TableSpec(
    "contradiction", Contradiction, ("kind", "subject", "first", "first_at", "second", "second_at"), retires=()
)
DEVICE_HISTORY: TableSpec[DeviceVersion] = TableSpec(
    "device_history", DeviceVersion, ("device", "valid_from"), retires=()
)
OCCUPANCY_HISTORY: TableSpec[SlotOccupancy] = TableSpec(
    "occupancy_history", SlotOccupancy, ("slot", "valid_from"), retires=()
)
SPECS = (
    DEVICE,
    INSTALLATION,
    STRAY,
    FAILURE,
    ERRORS,
    SLOT,
    SLOT_HISTORY,
    CONTRADICTION,
    DEVICE_HISTORY,
    OCCUPANCY_HISTORY,
)

ERRORS_OF_NODE_MAX: Final = 2_048
"""How many kinds and causes of errors are counted of all cards of a node, where `Rule.BOUNDS` is enforced."""


class Devices(TableState):
    """The state of the devices projection."""

    def __init__(self) -> None:
        self.device = Table(DEVICE)
        self.installation = Table(INSTALLATION, "device", "slot")
        self.stray = Table(STRAY, "device")
        self.failure = Table(FAILURE)
        self.errors = Table(ERRORS, "node")
        self.slot = Table(SLOT)
        self.slot_history = Table(SLOT_HISTORY, "slot")
        self.contradiction = Table(CONTRADICTION)
        self.history = Table(DEVICE_HISTORY)
        self.occupancy = Table(OCCUPANCY_HISTORY)


def passport(previous: Device, installations: list[Installation]) -> Device:
    """The passport that follows from a device's installations; failures and the first sight stay as they are."""
    if not installations:
        return previous
    latest = max(installations, key=_began)
    held = [installation for installation in installations if installation.valid_to is None]
    current = max(held, key=_began, default=None)
    ended = max(
        (installation for installation in installations if installation.valid_to is not None), key=_ended, default=None
    )
    return Device(
        previous.device,
        IN_SERVICE if current else RETIRED if ended and ended.retired else REMOVED,
        current.slot if current else None,
        current.valid_from if current else None,
        len(held),
        latest.serial or _latest_known(installations, "serial"),
        latest.uuid or _latest_known(installations, "uuid"),
        latest.model or _latest_known(installations, "model"),
        previous.first_seen_at,
        ended.valid_to if ended else None,
        len(installations),
        previous.failures,
        previous.last_failed_at,
    )


def with_open_lives(previous: Device, mark: Stray, held: list[Installation]) -> Device:
    """The passport after the latest insertion or removal of a device, which has these open installations now."""
    current = max(held, key=_began, default=None)
    return previous._replace(
        state=IN_SERVICE if current else RETIRED if mark.retired else REMOVED,
        slot=current.slot if current else None,
        in_service_since=current.valid_from if current else None,
        places=len(held),
        serial=mark.serial or previous.serial,
        uuid=mark.uuid or previous.uuid,
        model=mark.model or previous.model,
        first_seen_at=min(mark.at, previous.first_seen_at),
        removed_at=previous.removed_at if mark.inserted else mark.at,
        lives=previous.lives + mark.inserted,
    )


def refresh_device(state: Devices, device: str, seen_at: datetime) -> None:
    """Bring a device's passport in line with its installations."""
    previous = state.device.get(device) or unseen_device(device, seen_at)
    if seen_at < previous.first_seen_at:
        previous = previous._replace(first_seen_at=seen_at)
    state.device.put(passport(previous, state.installation.where("device", device)))


def refresh_slot(state: Devices, slot: str, seen_at: datetime) -> None:
    """Bring a slot's row in line with its installations."""
    previous = state.slot.get(slot) or unseen_slot(slot, seen_at)
    if seen_at < previous.first_seen_at:
        previous = previous._replace(first_seen_at=seen_at)
    state.slot.put(occupied(previous, state.installation.where("slot", slot)))


def occupied(previous: Slot, installations: list[Installation]) -> Slot:
    """The row that follows from a slot's installations; of several occupants it names the latest."""
    held = [installation for installation in installations if installation.valid_to is None]
    current = max(held, key=_entered, default=None)
    return previous._replace(
        device=current.device if current else None,
        occupants=len(held),
        lives=len(installations),
        vacated_at=max(
            (installation.valid_to for installation in installations if installation.valid_to is not None),
            default=None,
        ),
    )


def occupied_after(previous: Slot, mark: Stray, held: list[Installation]) -> Slot:
    """The row after the latest insertion into a slot or removal from it, which has these occupants now."""
    current = max(held, key=_entered, default=None)
    return previous._replace(
        device=current.device if current else None,
        occupants=len(held),
        lives=previous.lives + mark.inserted,
        first_seen_at=min(mark.at, previous.first_seen_at),
        vacated_at=previous.vacated_at if mark.inserted else mark.at,
    )


def failed(state: Devices, fact: Fact, data: DeviceFailed) -> None:
    """Store the failure and count it in the passport."""
    event = fact.event
    time = event.time
    identity = (event.source, event.epoch, event.number)
    state.failure.put(Failure(event.id, event.subject, data.slot, data.kind, time, data.message, *identity))
    previous = state.device.get(event.subject) or unseen_device(event.subject, time)
    last_failed_at = time if previous.last_failed_at is None else max(previous.last_failed_at, time)
    state.device.put(
        previous._replace(
            first_seen_at=min(previous.first_seen_at, time),
            failures=previous.failures + 1,
            last_failed_at=last_failed_at,
        )
    )


def errors_observed(state: Devices, fact: Fact, data: DeviceErrorsObserved) -> None:
    """Count the errors; they alone give a device no passport."""
    device, kind, node = intern(fact.event.subject), intern(data.kind), intern(origin_of(fact.event.source).name)
    last_at = fact.event.time
    first_at = min(storable(data.first_at), last_at)
    count = data.count
    previous = state.errors.get((device, kind, data.cause, node))
    if previous is not None:
        count = min(previous.errors + count, BIGINT_MAX)
        first_at, last_at = min(previous.first_at, first_at), max(previous.last_at, last_at)
    state.errors.put(DeviceErrors._make((device, kind, data.cause, node, count, first_at, last_at)))
    if _BOUNDS in fact.rules and len(state.errors.by["node"].get(node)) > ERRORS_OF_NODE_MAX:
        oldest = min(state.errors.where("node", node), key=lambda row: (row.last_at, row.device, row.kind, row.cause))
        state.errors.delete(state.errors.key_of(oldest))


def declared(state: Devices, fact: Fact, data: SlotDeclared) -> None:
    """Keep where the slot is, in the order of event time."""
    slot, time = intern(fact.event.subject), fact.event.time
    version = SlotVersion(slot, time, None, fact.sequence, data.node, data.index)
    latest = put_version(state.slot_history, state.slot_history.where("slot", slot), version)
    previous = state.slot.get(slot) or unseen_slot(slot, time)
    first_seen_at = min(previous.first_seen_at, time)
    state.slot.put(previous._replace(node=latest.node, slot_index=latest.slot_index, first_seen_at=first_seen_at))


def unseen_device(device: str, seen_at: datetime) -> Device:
    """The passport of a device about which nothing is known but its id."""
    return Device(intern(device), UNPLACED, None, None, 0, None, None, None, seen_at, None, 0, 0, None)


def unseen_slot(slot: str, seen_at: datetime) -> Slot:
    """A slot about which nothing is known but its id."""
    return Slot(slot, None, None, None, 0, 0, seen_at, None)


def _ended(installation: Installation) -> tuple[datetime, bool]:
    assert installation.valid_to is not None
    return (installation.valid_to, installation.retired)


def _latest_known(installations: list[Installation], fact: str) -> str | None:
    if len(installations) == 1:
        return None
    previous = [installation for installation in installations if getattr(installation, fact)]
    value: str | None = getattr(max(previous, key=_began), fact) if previous else None
    return value


HANDLERS: Handlers = {DeviceFailed: failed, DeviceErrorsObserved: errors_observed, SlotDeclared: declared}
"""Insertions and removals are in `gpuledger.domain.devices.installations`."""
