"""What health remembers over a restart of the agent: who is unfit and why, and what faults cards had before. Pure.

Times are kept by the clock that survives the process; windows go on where they were.
"""

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.card import CardHealth, Fault, Past
from gpuledger.agent.health.cards import AWAY_MAX, Cards
from gpuledger.agent.part import Moment
from gpuledger.events.node import CARDS_PER_NODE_MAX

KEPT_AS: Final = "health"
"""The name under which it is kept."""

VERSION: Final = 1


class RememberedError(Exception):
    """What was kept cannot be read."""


def dump(cards: Cards, *, untold: Set[str] = frozenset()) -> bytes:
    """What is to be kept; of the cards at `untold` addresses it is not known that anybody was told of their faults."""
    known = (*cards.gone, *cards.here.values())
    kept = [_card_json(card, untold) for card in known if card.told or card.faults or card.past]
    return orjson.dumps({"version": VERSION, "cards": kept})


def load(value: bytes, now: Moment) -> Cards:
    """What was kept; all of it counts as gone until a survey shows where it is.

    Raises:
        RememberedError: it is nothing that `dump` wrote.
    """
    try:
        document = orjson.loads(value)
        if document["version"] != VERSION:
            raise RememberedError(f"It has version {document['version']}, and this build reads {VERSION}.")
        cards = [_card(kept, now) for kept in document["cards"][: CARDS_PER_NODE_MAX + AWAY_MAX]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RememberedError(f"It has not the shape that this build keeps: {error!r}.") from error
    return Cards({}, tuple(cards))


def _card_json(card: CardHealth, untold: Set[str]) -> dict[str, Any]:
    readings = card.readings or Readings()
    return {
        "address": card.address,
        "uuid": card.uuid,
        "told": None if card.address in untold else card.told,
        "away": card.was_away,
        "ecc": [readings.ecc_corrected_volatile, readings.ecc_uncorrected_volatile] if card.faults else None,
        "faults": [fault._asdict() | {"last": fault.last.at} for fault in card.faults],
        "past": [past._asdict() | {"last": past.last.at} for past in card.past],
    }


def _card(kept: Mapping[str, Any], now: Moment) -> CardHealth:
    ecc = kept["ecc"]
    readings = Readings(ecc_corrected_volatile=ecc[0], ecc_uncorrected_volatile=ecc[1]) if ecc else None
    return CardHealth(
        kept["address"],
        kept["uuid"],
        tuple(_fault(fault, now) for fault in kept["faults"]),
        kept["told"],
        tuple(_past(past, now) for past in kept["past"]),
        readings,
        kept["away"],
    )


def _fault(kept: Mapping[str, Any], now: Moment) -> Fault:
    return Fault(**{**kept, "last": _moment(kept["last"], now)})


def _past(kept: Mapping[str, Any], now: Moment) -> Past:
    return Past(**{**kept, "last": _moment(kept["last"], now)})


def _moment(kept: str, now: Moment) -> Moment:
    """A moment by the clock of this process; one that seems to lie ahead was just now, because a clock was set."""
    at = min(datetime.fromisoformat(kept).astimezone(UTC), now.at)
    return Moment(now.s - (now.at - at).total_seconds(), at)
