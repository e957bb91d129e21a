"""Which cards `nvidia-smi` sees, or why it sees none. Pure.

Reads `nvidia-smi --query-gpu=uuid --format=csv,noheader` and `nvidia-smi -L`; only the latter names MIG instances.
"""

import re
from typing import Final, NamedTuple

from gpuledger.domain.preflight.errors import CardLostError, NoCardError, NvidiaSmiError
from gpuledger.domain.preflight.text import cleaned, first_line, message_of

_UUID: Final = r"GPU-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_MIG: Final = r"MIG-(?:[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|GPU-[0-9A-Fa-f-]{36}/[0-9]{1,3}/[0-9]{1,3})"
"""Drivers before 470 name an instance by its card's UUID and its numbers."""

_QUERIED: Final = re.compile(rf"^\s*\"?({_UUID})\"?\s*$")
_CARD: Final = re.compile(rf"^\s*GPU\s+[0-9]{{1,4}}:.{{0,200}}\(UUID:\s*({_UUID})\)")
_INSTANCE: Final = re.compile(rf"^\s*MIG\s+(\S{{1,60}})\s.{{0,60}}\(UUID:\s*({_MIG})\)")
_LOST: Final = re.compile(r"(?i)unable to determine the device handle for|gpu is lost|has fallen off the bus")
_NONE: Final = re.compile(r"(?i)no devices were found")


class MigPart(NamedTuple):
    """A MIG instance as `nvidia-smi -L` lists it."""

    profile: str
    uuid: str


class SeenCard(NamedTuple):
    """A card that nvidia-smi sees, with its MIG instances where the output lists them."""

    uuid: str
    parts: tuple[MigPart, ...] = ()


def cards(text: str) -> tuple[SeenCard, ...]:
    """The cards in an output, in its order, each once.

    Raises:
        CardLostError: the driver cannot reach a card; the message is nvidia-smi's own.
        NoCardError: nvidia-smi sees none.
        NvidiaSmiError: it reports another error, or the output lists no cards.
    """
    clean = cleaned(text)
    lines = clean.splitlines()
    _refuse(lines)
    found: dict[str, list[MigPart]] = {}
    last: list[MigPart] = []
    for line in lines:
        if (card := _QUERIED.match(line) or _CARD.match(line)) is not None:
            last = found.setdefault(card[1], [])
        elif (part := _INSTANCE.match(line)) is not None:
            last.append(MigPart(part[1], part[2]))
    if not found:
        raise NvidiaSmiError(_nothing(clean))
    return tuple(SeenCard(uuid, tuple(parts)) for uuid, parts in found.items())


def _refuse(lines: list[str]) -> None:
    for line in lines:
        if _LOST.search(line):
            raise CardLostError(message_of(line))
        if _NONE.search(line):
            raise NoCardError(message_of(line))


def _nothing(text: str) -> str:
    """Why an output lists no cards: the error that it begins with."""
    begin = first_line(text)
    return f"nvidia-smi lists no card but prints {begin!r}" if begin else "nvidia-smi prints nothing"
