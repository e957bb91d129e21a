"""The health state that survives a restart of the agent: which cards are unfit and why, and their earlier faults. Pure.

Times are stored by the wall clock, and durations go on where they stood. The names of the stored fields are a format:
an agent that is upgraded in place reads what the one before it stored, whose faults have no action, and one that is
rolled back what a later one stored: it takes no further field of a fault, and leaves those of a card that it lacks.
"""

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.card import CardFault, CardHealth, FaultHistory
from gpuledger.agent.health.cards import ABSENT_MAX, NodeCards
from gpuledger.events.node import CARDS_PER_NODE_MAX
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.runtime.clock import Instant

STATE_KEY: Final = "health"

VERSION: Final = 1


class HealthStateError(Exception):
    """The stored state cannot be read."""


def dump(cards: NodeCards, *, pending: Set[str] = frozenset()) -> bytes:
    """The state as JSON; verdicts of the cards at `pending` addresses count as not recorded yet."""
    every = (*cards.gone, *cards.here.values())
    stored = [_dump_card(card, pending) for card in every if card.unfit_subject or card.faults or card.history]
    return orjson.dumps({"version": VERSION, "cards": stored})


def load(value: bytes, now: Instant) -> NodeCards:
    """The state that `dump` wrote; every card counts as gone until a survey shows it.

    Raises:
        HealthStateError: `dump` did not write this.
    """
    try:
        document = orjson.loads(value)
        if document["version"] != VERSION:
            raise HealthStateError(f"It has version {document['version']}, and this build reads {VERSION}.")
        cards = [_load_card(stored, now) for stored in document["cards"][: CARDS_PER_NODE_MAX + ABSENT_MAX]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise HealthStateError(f"It does not have the shape that this build stores: {error!r}.") from error
    return NodeCards({}, tuple(cards))


def _dump_card(card: CardHealth, pending: Set[str]) -> dict[str, Any]:
    readings, actions = card.readings or Readings(), [fault.action for fault in card.faults]
    return {
        "address": card.address,
        "uuid": card.uuid,
        "told": None if card.address in pending else card.unfit_subject,
        "away": card.was_absent,
        "ecc": [readings.ecc_corrected_volatile, readings.ecc_uncorrected_volatile] if card.faults else None,
        "faults": [_dump_fault(fault) for fault in card.faults],
        "past": [history._asdict() | {"last": history.last.at} for history in card.history],
        **({"actions": actions} if set(actions) - {NO_ACTION} else {}),
    }


def _dump_fault(fault: CardFault) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "message": fault.message,
        "standing": fault.in_readings,
        "last": fault.last.at,
        "quiet_s": fault.clear_after_s,
        "clear_looks": fault.clear_polls,
        "was_reset": fault.was_reset,
    }


def _load_card(stored: Mapping[str, Any], now: Instant) -> CardHealth:
    ecc = stored["ecc"]
    readings = Readings(ecc_corrected_volatile=ecc[0], ecc_uncorrected_volatile=ecc[1]) if ecc else None
    actions = stored.get("actions", [NO_ACTION] * len(stored["faults"]))
    return CardHealth(
        stored["address"],
        stored["uuid"],
        tuple(
            _load_fault(**fault, now=now, action=str(action))
            for fault, action in zip(stored["faults"], actions, strict=True)
        ),
        stored["told"],
        tuple(FaultHistory(**{**history, "last": _instant(history["last"], now)}) for history in stored["past"]),
        readings,
        stored["away"],
    )


def _load_fault(
    *,
    kind: str,
    message: str,
    standing: bool,
    last: str,
    quiet_s: float,
    clear_looks: int,
    was_reset: bool,
    now: Instant,
    action: str,
) -> CardFault:
    return CardFault(kind, message, standing, _instant(last, now), quiet_s, clear_looks, was_reset, action)


def _instant(stored: str, now: Instant) -> Instant:
    """A stored time by this process's clocks; one in the future counts as now, because a clock was set."""
    at = min(datetime.fromisoformat(stored).astimezone(UTC), now.at)
    return Instant(now.monotonic_s - (now.at - at).total_seconds(), at)
