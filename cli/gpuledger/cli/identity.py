"""Which ids the ledger has for one device: the card's own, and the GPUDevices that it stood as.

A card is known by serial number or UUID, a GPUDevice by a name of its own; `device.detected`, `device.identified` and
`device.attached` say which belongs to which. Nothing is guessed: an id that no event joins is another device's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuledger.cli.backend import Backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.lookup import rows_where
from gpuledger.cli.rows import RowDict
from gpuledger.db.readonly import read_only
from gpuledger.domain.devices.fold import DEVICE
from gpuledger.events.device import DeviceAttached, DeviceDetached, DeviceDetected, DeviceIdentified
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.errors import EventError
from gpuledger.events.subjects import aggregate_filter

IDS_MAX = 64
"""Ids that one device may have; more than that is a chain of mistakes, and is not followed further."""

SHOWN_MAX = 8
"""Devices that are named where a serial number means several."""


class Recorded(NamedTuple):
    """An event of the log, and where it stands."""

    event: Decoded
    sequence: int
    recorded_ns: int


@dataclass(slots=True)
class Identity:
    """One device's ids, and the events about it.

    `row` is its passport, None for a GPUDevice whose card is not known yet. `objects` are the GPUDevices that it stood
    as, the last one last.
    """

    asked: str
    row: RowDict | None
    cards: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    events: list[Recorded] = field(default_factory=list)


async def identify(place: Backend, name: str) -> Identity | None:
    """The device that a serial number, a UUID or a GPUDevice's name means; None where the ledger has none.

    Raises:
        CliError: several devices are called so.
    """
    row = await _passport(place, name)
    if row is not None:
        card = str(row["device"])
        return await _of_card(place, Identity(name, row, [card], events=await recorded(place, "device", card)))
    events = await recorded(place, "device", name)
    if not events:
        return None
    if any(isinstance(one.event.data, DeviceDetected) for one in events):
        return await _of_object(place, Identity(name, None, objects=[name], events=events))
    return await _of_card(place, Identity(name, None, [name], events=events))


async def recorded(place: Backend, aggregate: str, name: str | None = None, *, event: str = "") -> list[Recorded]:
    """An aggregate's events (or of all of its kind, those called `event`) in the order of the log.

    A repeat, which the folds pass over, is not told twice.
    """
    found: dict[str, Recorded] = {}
    subjects = aggregate_filter(aggregate, name)
    subjects = f"{subjects.removesuffix('>')}{event}" if event else subjects
    async for messages in place.ledger.history(subject_filter=subjects):
        for message in messages:
            try:
                told = decode(message.data)
            except EventError:
                continue
            found.setdefault(told.id, Recorded(told, message.sequence, message.recorded_ns))
    return list(found.values())


async def _of_card(place: Backend, found: Identity) -> Identity:
    """With the GPUDevices that the card stood as, and their events while they were this card."""
    found.objects = list(stood_as(found.events))[-IDS_MAX:]
    for obj in found.objects:
        lives = _lives(await recorded(place, "device", obj))
        found.events += (one for life in lives if set(found.cards) & set(map(_card, life)) for one in life)
    return found


async def _of_object(place: Backend, found: Identity) -> Identity:
    """With the card that the GPUDevice is now, or was at last."""
    found.cards = [card for one in _lives(found.events)[-1] if (card := _card(one))][-1:]
    for card in found.cards:
        found.row = await _passport(place, card)
        found.events += await recorded(place, "device", card)
    return found


async def _passport(place: Backend, name: str) -> RowDict | None:
    async with read_only(place.database_url, application_name="gpuledger describe") as connection:
        rows: list[RowDict] = []
        for column in ("device", "uuid", "serial"):
            rows = rows or await rows_where(connection, DEVICE, {column: name}, limit=SHOWN_MAX)
    if len(rows) > 1:
        several = ", ".join(str(row["device"]) for row in rows)
        raise CliError(f"{name!r} is the serial number or UUID of several devices", f"Name one of {several}")
    return rows[0] if rows else None


def stood_as(events: Iterable[Recorded]) -> Iterator[str]:
    """The GPUDevices that a card was found as, by when they were last heard of."""
    names = [one.event.data.name for one in events if isinstance(one.event.data, DeviceAttached | DeviceDetached)]
    return reversed(list(dict.fromkeys(reversed(names))))


def _lives(events: Sequence[Recorded]) -> list[list[Recorded]]:
    """A GPUDevice's events, cut where it was detected anew, for it may then be another card."""
    lives: list[list[Recorded]] = [[]]
    for one in events:
        if isinstance(one.event.data, DeviceDetected) and lives[-1]:
            lives.append([])
        lives[-1].append(one)
    return lives


def _card(one: Recorded) -> str | None:
    data = one.event.data
    return data.card if isinstance(data, DeviceDetected | DeviceIdentified) else None
