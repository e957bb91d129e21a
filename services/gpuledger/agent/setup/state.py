"""What the agent remembers of the devices that it set up, so that a restart changes and tells nothing anew.

The hardware shows how a card is divided, and not for whom; that and what was told already stand here and nowhere else.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

import orjson

from gpuledger.events.node import WantedDevice

VERSION: Final = 1
"""Of what is kept; a value of another version is forgotten."""

_Value = TypeVar("_Value")
OutcomeKind = Literal["applied", "refused", "released"]
_KINDS: Final[dict[str, OutcomeKind]] = {"applied": "applied", "refused": "refused", "released": "released"}


class HeldDevice(NamedTuple):
    """A device that was set up for a pool, or is to be: nobody else gets its card until it was taken back.

    `wish` is what it was set up by, `card` the card's UUID, and `uuids` are of what makes its units, in order of their
    places. What is not `offered` is being set up, changes hands, or is to be taken back.
    """

    wish: WantedDevice
    address: str
    card: str
    uuids: tuple[str, ...] = ()
    offered: bool = False


class Outcome(NamedTuple):
    """What was told last of a device: to which pool, in answer to what it asked when, and for a refusal why."""

    pool: str
    asked_at: datetime
    word: OutcomeKind
    partitions: int | None = None
    reason: str = ""


class SetupState(NamedTuple):
    """What is remembered, by the device's name."""

    held: Mapping[str, HeldDevice] = {}
    told: Mapping[str, Outcome] = {}

    def holding(self, device: str, held: HeldDevice | None) -> "SetupState":
        """With another `held` of the device; None forgets it."""
        return self._replace(held=_with(self.held, device, held))

    def telling(self, device: str, told: Outcome | None) -> "SetupState":
        """With another `told` of the device; None forgets it."""
        return self._replace(told=_with(self.told, device, told))


def dump(memory: SetupState) -> bytes:
    """What is kept of it."""
    return orjson.dumps(
        {
            "version": VERSION,
            "held": {
                device: {**each._asdict(), "wish": each.wish.model_dump(mode="json")}
                for device, each in memory.held.items()
            },
            "told": {device: each._asdict() for device, each in memory.told.items()},
        }
    )


def load(kept: bytes) -> SetupState:
    """What was remembered.

    Raises:
        ValueError: that is not what `dump` gives; nothing of it can be trusted.
    """
    try:
        document = orjson.loads(kept)
        if document["version"] != VERSION:
            raise ValueError(f"It is of version {document['version']}, and not of {VERSION}.")
        held = {str(device): _held(each) for device, each in document["held"].items()}
        return SetupState(held, {str(device): _told(each) for device, each in document["told"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"It is no memory of devices: {error!r}.") from error


def _held(each: dict[str, Any]) -> HeldDevice:
    wish = WantedDevice.model_validate(each["wish"])
    uuids = tuple(str(uuid) for uuid in each["uuids"])
    return HeldDevice(wish, str(each["address"]), str(each["card"]), uuids, bool(each["offered"]))


def _told(each: dict[str, Any]) -> Outcome:
    count = each["partitions"]
    asked_at = datetime.fromisoformat(each["asked_at"])
    return Outcome(
        str(each["pool"]), asked_at, _KINDS[each["word"]], None if count is None else int(count), each["reason"]
    )


def _with(values: Mapping[str, _Value], name: str, value: _Value | None) -> dict[str, _Value]:
    others = {each: known for each, known in values.items() if each != name}
    return others if value is None else {**others, name: value}
