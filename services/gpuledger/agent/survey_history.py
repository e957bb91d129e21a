"""The survey history: merges each new survey of a node's cards with what earlier surveys showed. Pure.

A card keeps its identity when it stops answering: a card that fell off the bus still sits in its slot, and none can
have taken its place unseen. While a driver loads, cards may be missing from a survey for a moment.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.domain.mig.geometry import Profile
from gpuledger.events.node import CARDS_PER_NODE_MAX

MISSED_SURVEYS_MAX: Final = 2
"""A card is gone when so many surveys in a row miss it."""


class CardIdentity(NamedTuple):
    """The properties of a card that never change while it is the same card."""

    pci_vendor: str
    pci_device: str
    uuid: str
    serial: str | None = None
    product: str | None = None
    memory_mib: int | None = None
    compute: tuple[int, int] | None = None
    profiles: tuple[Profile, ...] = ()


class SurveyHistory(NamedTuple):
    """The merged survey, how many surveys in a row missed each of its cards, and the identities by address.

    An identity is kept until another card shows up at its address, for `CARDS_PER_NODE_MAX` addresses at most.
    """

    survey: Survey | None = None
    missed: Mapping[str, int] = {}
    identities: Mapping[str, CardIdentity] = {}


def with_survey(history: SurveyHistory, survey: Survey) -> SurveyHistory:
    """The history after one more survey."""
    present = {card.address for card in survey.cards}
    uuids = {card.uuid for card in survey.cards if card.uuid is not None}
    identities = {address: one for address, one in history.identities.items() if one.uuid not in uuids}
    before = history.survey.cards if history.survey is not None else ()
    counts = {card.address: history.missed.get(card.address, 0) + 1 for card in before if card.address not in present}
    missed = {address: count for address, count in counts.items() if count < MISSED_SURVEYS_MAX}
    merged = [_completed(card, identities.get(card.address)) for card in survey.cards]
    merged += [card for card in before if card.address in missed and card.uuid not in uuids]
    cards = tuple(sorted(merged, key=lambda card: card.address))
    return SurveyHistory(survey._replace(cards=cards), missed, _identities(identities, cards))


def dump(identities: Mapping[str, CardIdentity]) -> bytes:
    """The identities as JSON, for the state store."""
    return orjson.dumps({address: _plain(identity) for address, identity in identities.items()})


def load(value: bytes) -> Mapping[str, CardIdentity]:
    """The identities that `dump` wrote; none where the value cannot be read."""
    try:
        return {address: _identity(**stored) for address, stored in orjson.loads(value).items()}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}


def _plain(identity: CardIdentity) -> dict[str, Any]:
    return identity._asdict() | {"profiles": [profile._asdict() for profile in identity.profiles]}


def _identity(*, compute: list[int] | None, profiles: list[dict[str, Any]], **others: Any) -> CardIdentity:  # noqa: ANN401
    stored = tuple(Profile(**{**profile, "starts": tuple(profile["starts"])}) for profile in profiles)
    return CardIdentity(**others, compute=(compute[0], compute[1]) if compute else None, profiles=stored)


def _completed(card: CardFacts, identity: CardIdentity | None) -> CardFacts:
    """A silent card with the identity of its slot, unless its PCI ids show another card."""
    if (
        card.uuid is not None
        or identity is None
        or (card.pci_vendor, card.pci_device) != (identity.pci_vendor, identity.pci_device)
    ):
        return card
    return card._replace(
        uuid=identity.uuid,
        serial=card.serial or identity.serial,
        product=card.product or identity.product,
        memory_mib=card.memory_mib if card.memory_mib is not None else identity.memory_mib,
        compute=card.compute or identity.compute,
        profiles=card.profiles or identity.profiles,
    )


def _identities(before: Mapping[str, CardIdentity], cards: tuple[CardFacts, ...]) -> Mapping[str, CardIdentity]:
    """The identities of the cards that are present, and of those last seen at addresses that are empty now."""
    now = {card.address: _identity_of(card, card.uuid) for card in cards if card.uuid is not None}
    present = {card.address for card in cards}
    absent = {address: one for address, one in before.items() if address not in present}
    return dict([*absent.items(), *now.items()][-CARDS_PER_NODE_MAX:])


def _identity_of(card: CardFacts, uuid: str) -> CardIdentity:
    return CardIdentity(
        card.pci_vendor,
        card.pci_device,
        uuid,
        card.serial,
        card.product,
        card.memory_mib,
        card.compute,
        card.profiles,
    )
