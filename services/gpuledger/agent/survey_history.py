"""What is known of a node's cards after a survey. Pure.

Who a card is does not change because it stopped answering: what fell off the bus still stands on it, and nobody can
have come into its place unseen. And while a driver is loaded, cards may be missing for a moment.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.domain.mig.geometry import Profile
from gpuledger.events.node import CARDS_PER_NODE_MAX

VANISHED_LOOKS: Final = 2
"""So many looks in a row have to miss a card before it is gone."""


class Identity(NamedTuple):
    """What a card said of itself that stays so as long as it is that card."""

    pci_vendor: str
    pci_device: str
    uuid: str
    serial: str | None = None
    product: str | None = None
    memory_mib: int | None = None
    compute: tuple[int, int] | None = None
    profiles: tuple[Profile, ...] = ()


class Sightings(NamedTuple):
    """The last survey with what was known before, for how many looks cards of it were missed, and who was where.

    An identity stays known until something else is seen at its address, at most of `CARDS_PER_NODE_MAX` of them.
    """

    survey: Survey | None = None
    missed: Mapping[str, int] = {}
    identities: Mapping[str, Identity] = {}


def sighted(known: Sightings, survey: Survey) -> Sightings:
    """What is known after a survey."""
    seen = {card.address for card in survey.cards}
    uuids = {card.uuid for card in survey.cards if card.uuid is not None}
    identities = {address: one for address, one in known.identities.items() if one.uuid not in uuids}
    before = known.survey.cards if known.survey is not None else ()
    looks = {card.address: known.missed.get(card.address, 0) + 1 for card in before if card.address not in seen}
    missed = {address: count for address, count in looks.items() if count < VANISHED_LOOKS}
    here = [_completed(card, identities.get(card.address)) for card in survey.cards]
    here += [card for card in before if card.address in missed and card.uuid not in uuids]
    cards = tuple(sorted(here, key=lambda card: card.address))
    return Sightings(survey._replace(cards=cards), missed, _identities(identities, cards))


def dump(identities: Mapping[str, Identity]) -> bytes:
    """Who was where, to be kept."""
    return orjson.dumps({address: _plain(identity) for address, identity in identities.items()})


def load(value: bytes) -> Mapping[str, Identity]:
    """Who was where, as it was kept; nobody where that cannot be read."""
    try:
        return {address: _identity(**kept) for address, kept in orjson.loads(value).items()}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}


def _plain(identity: Identity) -> dict[str, Any]:
    return identity._asdict() | {"profiles": [profile._asdict() for profile in identity.profiles]}


def _identity(*, compute: list[int] | None, profiles: list[dict[str, Any]], **others: Any) -> Identity:  # noqa: ANN401
    known = tuple(Profile(**{**profile, "starts": tuple(profile["starts"])}) for profile in profiles)
    return Identity(**others, compute=(compute[0], compute[1]) if compute else None, profiles=known)


def _completed(card: CardFacts, identity: Identity | None) -> CardFacts:
    if card.uuid is not None or identity is None or _is_another(card, identity):
        return card
    return card._replace(
        uuid=identity.uuid,
        serial=card.serial or identity.serial,
        product=card.product or identity.product,
        memory_mib=card.memory_mib if card.memory_mib is not None else identity.memory_mib,
        compute=card.compute or identity.compute,
        profiles=card.profiles or identity.profiles,
    )


def _is_another(card: CardFacts, identity: Identity) -> bool:
    return (card.pci_vendor, card.pci_device) != (identity.pci_vendor, identity.pci_device)


def _identities(known: Mapping[str, Identity], cards: tuple[CardFacts, ...]) -> Mapping[str, Identity]:
    """Who is where now, and who was where nothing is seen any more."""
    now = {card.address: _identity_of(card, card.uuid) for card in cards if card.uuid is not None}
    seen = {card.address for card in cards}
    before = {address: one for address, one in known.items() if address not in seen}
    return dict([*before.items(), *now.items()][-CARDS_PER_NODE_MAX:])


def _identity_of(card: CardFacts, uuid: str) -> Identity:
    return Identity(
        card.pci_vendor,
        card.pci_device,
        uuid,
        card.serial,
        card.product,
        card.memory_mib,
        card.compute,
        card.profiles,
    )
