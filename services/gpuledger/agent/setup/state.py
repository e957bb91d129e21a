"""The setup state that survives a restart: which device is held for which pool, and the last reported outcomes. Pure.

The hardware shows how a card is partitioned but not for which pool; that, and what was reported already, is stored here
alone. The names of the stored fields are a format: an agent that is upgraded in place reads what the one before it
stored.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

import orjson

from gpuledger.events.node import WantedDevice

VERSION: Final = 1
"""The version of the format; a value of another version is forgotten."""

T = TypeVar("T")
OutcomeKind = Literal["applied", "refused", "released"]
_KINDS: Final[dict[str, OutcomeKind]] = {"applied": "applied", "refused": "refused", "released": "released"}


class HeldDevice(NamedTuple):
    """A device that was set up for a pool, or will be: until it is cleared, its card is held for it.

    `desired` is what the device was set up for, `card` the card's UUID, and `uuids` those of the card or instances that
    make its units, in order of their places. A device that is not `offered` is being set up, changed or cleared.
    """

    desired: WantedDevice
    address: str
    card: str
    uuids: tuple[str, ...] = ()
    offered: bool = False


class Outcome(NamedTuple):
    """The outcome that was last reported of a device: for which pool, for which request, and why it was refused."""

    pool: str
    asked_at: datetime
    kind: OutcomeKind
    partitions: int | None = None
    reason: str = ""


class SetupState(NamedTuple):
    """Held devices and reported outcomes, by the device's name."""

    held: Mapping[str, HeldDevice] = {}
    outcomes: Mapping[str, Outcome] = {}

    def with_held(self, device: str, held: HeldDevice | None) -> "SetupState":
        """The state with another `held` of the device; None removes it."""
        return self._replace(held=_with(self.held, device, held))

    def with_outcome(self, device: str, outcome: Outcome | None) -> "SetupState":
        """The state with another outcome of the device; None removes it."""
        return self._replace(outcomes=_with(self.outcomes, device, outcome))


def dump(state: SetupState) -> bytes:
    """The state as JSON."""
    return orjson.dumps(
        {
            "version": VERSION,
            "held": {device: _dump_held(held) for device, held in state.held.items()},
            "told": {device: _dump_outcome(outcome) for device, outcome in state.outcomes.items()},
        }
    )


def load(stored: bytes) -> SetupState:
    """The state that `dump` wrote.

    Raises:
        ValueError: `dump` did not write this; nothing in it can be trusted.
    """
    try:
        document = orjson.loads(stored)
        if document["version"] != VERSION:
            raise ValueError(f"It has version {document['version']}, and this build reads {VERSION}.")
        held = {str(device): _load_held(each) for device, each in document["held"].items()}
        return SetupState(held, {str(device): _load_outcome(each) for device, each in document["told"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"It does not have the shape that this build stores: {error!r}.") from error


def _dump_held(held: HeldDevice) -> dict[str, Any]:
    return {
        "wish": held.desired.model_dump(mode="json"),
        "address": held.address,
        "card": held.card,
        "uuids": held.uuids,
        "offered": held.offered,
    }


def _dump_outcome(outcome: Outcome) -> dict[str, Any]:
    pool, asked_at, kind, partitions, reason = outcome
    return {"pool": pool, "asked_at": asked_at, "word": kind, "partitions": partitions, "reason": reason}


def _load_held(each: dict[str, Any]) -> HeldDevice:
    desired = WantedDevice.model_validate(each["wish"])
    uuids = tuple(str(uuid) for uuid in each["uuids"])
    return HeldDevice(desired, str(each["address"]), str(each["card"]), uuids, bool(each["offered"]))


def _load_outcome(each: dict[str, Any]) -> Outcome:
    count = each["partitions"]
    partitions = None if count is None else int(count)
    asked_at = datetime.fromisoformat(each["asked_at"])
    return Outcome(str(each["pool"]), asked_at, _KINDS[each["word"]], partitions, each["reason"])


def _with(values: Mapping[str, T], name: str, value: T | None) -> dict[str, T]:
    others = {each: other for each, other in values.items() if each != name}
    return others if value is None else {**others, name: value}
