"""Recordings of a machine's cards: one JSON document, made from any hardware and played back by `recorded`.

A recording holds what the hardware reported, and nothing else of the machine. An anonymous one replaces serial numbers
and UUIDs; PCI addresses and models stay. The names of its fields are a format.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from gpuledger.agent.hardware.api import CardFacts, NodeHardware, Readings, Survey
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError
from gpuledger.domain.mig.geometry import Instance

VERSION: Final = 1
SAMPLES_MAX: Final = 1000
"""How often each card's readings may be recorded."""


class RecordingError(ValueError):
    """A document is not a recording of a machine."""


class CardSamples(NamedTuple):
    """What a card reported: its readings at each moment (None: it did not answer), and its users at the end."""

    address: str
    readings: tuple[Readings | None, ...] = ()
    users: frozenset[str] | None = None


class Recording(NamedTuple):
    """A recorded machine: a note for people, its cards, and what each of them reported; None: unknown."""

    version: Literal[1]
    note: str
    survey: Survey
    moments: tuple[CardSamples, ...] = ()


_RECORDING: Final = TypeAdapter(Recording)


def record(
    hardware: NodeHardware,
    *,
    note: str = "",
    moments: int = 1,
    pause: Callable[[], None] = lambda: None,
    anonymous: bool,
) -> Recording:
    """Record a machine; `pause` is called between two moments, of which there are at most `SAMPLES_MAX`.

    Raises:
        HardwareError: the machine cannot be surveyed.
        ValueError: `moments` is out of bounds.
    """
    if not 1 <= moments <= SAMPLES_MAX:
        raise ValueError(f"{moments} moments cannot be recorded; choose 1 to {SAMPLES_MAX}.")
    survey = hardware.survey()
    rows = [_readings(hardware, survey)]
    for _ in range(moments - 1):
        pause()
        rows.append(_readings(hardware, survey))
    samples = tuple(
        CardSamples(card.address, tuple(row[index] for row in rows), _users(hardware, card.address))
        for index, card in enumerate(survey.cards)
    )
    recording = Recording(VERSION, note, survey, samples)
    return anonymized(recording) if anonymous else recording


def write_recording(recording: Recording) -> bytes:
    """The document."""
    return orjson.dumps(_plain(recording), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_recording(document: bytes) -> Recording:
    """The recording in a document.

    Raises:
        RecordingError: the document is not a recording, or has another version.
    """
    try:
        return _RECORDING.validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise RecordingError(
            f"This is no recording of version {VERSION}: {where}: {first['msg']}. Record the machine again."
        ) from error


def anonymized(recording: Recording) -> Recording:
    """The recording with replaced serial numbers and UUIDs; a card or instance has the same one everywhere."""
    replaced = _replaced_uuids(recording.survey)
    cards = tuple(_anonymized(card, number, replaced) for number, card in enumerate(recording.survey.cards))
    moments = tuple(
        each._replace(
            users=frozenset(replaced.get(user, user) for user in each.users) if each.users is not None else None
        )
        for each in recording.moments
    )
    return recording._replace(survey=recording.survey._replace(cards=cards), moments=moments)


def _replaced_uuids(survey: Survey) -> Mapping[str, str]:
    replaced: dict[str, str] = {}
    for number, card in enumerate(survey.cards):
        if card.uuid is not None:
            replaced[card.uuid] = f"GPU-00000000-0000-4000-8000-{number:012x}"
        for place, instance in enumerate(card.instances):
            replaced[instance.uuid] = f"MIG-00000000-0000-4000-8000-{number:06x}{place:06x}"
    return replaced


def _anonymized(card: CardFacts, number: int, replaced: Mapping[str, str]) -> CardFacts:
    return card._replace(
        uuid=replaced[card.uuid] if card.uuid is not None else None,
        serial=f"{number:013d}" if card.serial is not None else None,
        instances=tuple(_renamed(instance, replaced) for instance in card.instances),
    )


def _renamed(instance: Instance, replaced: Mapping[str, str]) -> Instance:
    return instance._replace(uuid=replaced[instance.uuid])


def _readings(hardware: NodeHardware, survey: Survey) -> tuple[Readings | None, ...]:
    return tuple(_reading(hardware, card.address) for card in survey.cards)


def _reading(hardware: NodeHardware, address: str) -> Readings | None:
    try:
        return hardware.readings(address)
    except (CardLostError, DriverMissingError):
        return None


def _users(hardware: NodeHardware, address: str) -> frozenset[str] | None:
    try:
        return hardware.users(address)
    except HardwareError:
        return None


def _plain(value: object) -> object:
    """Named tuples as objects, and the rest as JSON has it."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
