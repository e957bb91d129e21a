"""The ids that the ledger has for one device: the card's own, and the GPUDevices that it has been registered as.

A card is identified by serial number or UUID, a GPUDevice by a name of its own; `device.detected`, `device.identified`
and `device.attached` join them. Nothing is guessed: an id that no event joins belongs to another device.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.devices.fold import DEVICE
from gpuledger.events.device import DeviceAttached, DeviceDetached, DeviceDetected, DeviceIdentified
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset
from gpuledger.ledger.api import Message
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.named_events import messages_about, messages_about_each
from gpuledger.tools.queries.rows import rows_where

IDS_MAX = 64
"""Ids that one device may have; more than that is a chain of mistakes, and is not followed further."""

SHOWN_MAX = 8
"""Devices that an error names where a serial number belongs to several."""


class RecordedEvent(NamedTuple):
    """An event of the log with its sequence and the time when it was recorded."""

    event: Decoded
    sequence: Offset
    recorded_ns: int


@dataclass(slots=True)
class DeviceIdentity:
    """One device's ids, and the events about it.

    `row` is its row of the devices table, None for a GPUDevice whose card is not identified yet. `objects` are the
    GPUDevices that it has been registered as, the last one last.
    """

    requested: str
    row: RowDict | None
    cards: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    events: list[RecordedEvent] = field(default_factory=list)


async def identify(backend: Backend, name: str) -> DeviceIdentity | None:
    """The device with a serial number, UUID or GPUDevice name; None where the ledger has none.

    Raises:
        ToolError: several devices have it.
    """
    row = await _device_row(backend, name)
    if row is not None:
        card = str(row["device"])
        return await _of_card(
            backend, DeviceIdentity(name, row, [card], events=await recorded_events(backend, "device", card))
        )
    events = await recorded_events(backend, "device", name)
    if not events:
        return None
    if any(isinstance(one.event.data, DeviceDetected) for one in events):
        return await _of_object(backend, DeviceIdentity(name, None, objects=[name], events=events))
    return await _of_card(backend, DeviceIdentity(name, None, [name], events=events))


async def recorded_events(
    backend: Backend, aggregate: str, name: str | None = None, *, event: str = ""
) -> list[RecordedEvent]:
    """The events of one aggregate, or of all of its kind, in the order of the log; `event` keeps those of one name.

    Repeats, which the folds ignore too, are left out.
    """
    found: list[Message] = []
    async for messages in messages_about(backend, aggregate, name, event):
        found += messages
    return _decoded(found)


async def recorded_events_of_each(
    backend: Backend, aggregate: str, names: Collection[str], *, event: str = ""
) -> dict[str, list[RecordedEvent]]:
    """The events of each of several devices, nodes or pools, as `recorded_events` gives those of one."""
    found = await messages_about_each(backend, aggregate, names, event)
    return {name: _decoded(messages) for name, messages in found.items()}


def _decoded(messages: Iterable[Message]) -> list[RecordedEvent]:
    found: dict[str, RecordedEvent] = {}
    for message in messages:
        try:
            decoded = decode(message.data)
        except EventError:
            continue
        found.setdefault(decoded.id, RecordedEvent(decoded, message.sequence, message.recorded_ns))
    return list(found.values())


async def _of_card(backend: Backend, found: DeviceIdentity) -> DeviceIdentity:
    """Adds the GPUDevices that the card has been registered as, and their events while they were this card."""
    found.objects = list(registered_as(found.events))[-IDS_MAX:]
    for events in (await recorded_events_of_each(backend, "device", found.objects)).values():
        lives = _lives(events)
        found.events += (one for life in lives if set(found.cards) & set(map(_card, life)) for one in life)
    return found


async def _of_object(backend: Backend, found: DeviceIdentity) -> DeviceIdentity:
    """Adds the card that the GPUDevice is now, or was last."""
    found.cards = [card for one in _lives(found.events)[-1] if (card := _card(one))][-1:]
    for card in found.cards:
        found.row = await _device_row(backend, card)
        found.events += await recorded_events(backend, "device", card)
    return found


async def _device_row(backend: Backend, name: str) -> RowDict | None:
    async def ask(connection: AsyncConnection) -> list[RowDict]:
        rows: list[RowDict] = []
        for column in ("device", "uuid", "serial"):
            rows = rows or await rows_where(connection, DEVICE, {column: name}, limit=SHOWN_MAX)
        return rows

    rows = await read(backend, ask, application_name="gpuledger describe")
    if len(rows) > 1:
        several = ", ".join(str(row["device"]) for row in rows)
        raise ToolError(f"{name!r} is the serial number or UUID of several devices", f"Name one of {several}")
    return rows[0] if rows else None


def registered_as(events: Iterable[RecordedEvent]) -> Iterator[str]:
    """The GPUDevices that a card has been registered as, ordered by their last event."""
    names = [one.event.data.name for one in events if isinstance(one.event.data, DeviceAttached | DeviceDetached)]
    return reversed(list(dict.fromkeys(reversed(names))))


def _lives(events: Sequence[RecordedEvent]) -> list[list[RecordedEvent]]:
    """A GPUDevice's events, split where it was detected again, because it may then be another card."""
    lives: list[list[RecordedEvent]] = [[]]
    for one in events:
        if isinstance(one.event.data, DeviceDetected) and lives[-1]:
            lives.append([])
        lives[-1].append(one)
    return lives


def _card(one: RecordedEvent) -> str | None:
    data = one.event.data
    return data.card if isinstance(data, DeviceDetected | DeviceIdentified) else None
