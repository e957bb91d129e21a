"""How faults are named by what reports them, and which of them a healthy report ends. Pure."""

from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.health.codes import NO_CODE, reported_codes
from gpuledger.domain.health.entities import NODE_ENTITY, as_named, concerned
from gpuledger.events.health import NodeHealthReported, Strategy

KEY_TEXT_BYTES_MAX: Final = 255
"""How long the names of a monitor, a check and an entity are in keys; PostgreSQL takes keys of 2,700 bytes."""

ACTS: Final[Strategy] = "execute-remediation"
"""The strategy of reports that may lead to changes of the cluster."""

_DIGEST_LENGTH: Final = 16


class Check(NamedTuple):
    """A check of a monitor, as keys of rows have it."""

    monitor: str
    check_name: str


CARD_LEFT: Final = Check("", "")
"""What ends the faults of a card that left its slot."""


class About(NamedTuple):
    """An entity as keys of rows have it, and how its monitor names it where that is not the same; else empty."""

    entity: str
    alias: str


class Healthy(NamedTuple):
    """What a healthy report is about; `has_cards`: its node's agent has found the cards.

    `codes` are those that it clears; none: all.
    """

    check: Check
    entities: frozenset[str]
    has_cards: bool
    codes: frozenset[str]

    def concerns(self, check: Check, entity: str, alias: str) -> bool:
        """Whether it is about the faults of a check about an entity."""
        is_about = entity in self.entities or NODE_ENTITY in self.entities
        return check == self.check and (is_about or (not self.has_cards and alias in self.entities))


def check_of(data: NodeHealthReported) -> Check:
    """The check of a report."""
    return Check(key_text(data.monitor), key_text(data.check))


def about(data: NodeHealthReported) -> list[About]:
    """What a report is about."""
    entities = [key_text(one.entity) for one in concerned(data)]
    names = [key_text(one.entity) for one in as_named(data)]
    if len(names) != len(entities):  # Which name is that of which card does not show.
        return [About(one, "") for one in entities]
    return [About(one, name if name != one else "") for one, name in zip(entities, names, strict=True)]


def healthy_of(data: NodeHealthReported) -> Healthy:
    """What a healthy report ends: an agent that has just started, or lacks a card, cannot say which one that is."""
    entities = {key_text(one.entity) for one in (*concerned(data), *as_named(data))}
    if data.devices:
        entities.discard(NODE_ENTITY)
    return Healthy(check_of(data), frozenset(entities), bool(data.devices), frozenset(map(key_text, data.codes)))


def codes_of(data: NodeHealthReported) -> frozenset[str]:
    """The codes that an unhealthy report has stand, as keys of rows have them."""
    return frozenset(code if code == NO_CODE else key_text(code) for code in reported_codes(data.codes))


def counted_time(fact: Fact) -> datetime:
    """When a report counts as made: no clock that is ahead keeps the reports behind it from counting."""
    return min(fact.event.time, counted_as_recorded(fact.event, fact.recorded_ns))


def key_text(text: str) -> str:
    """A text as a part of a key, which PostgreSQL bounds in bytes: a longer one ends in a digest."""
    raw = text.encode()
    if len(raw) <= KEY_TEXT_BYTES_MAX:
        return text
    kept = raw[: KEY_TEXT_BYTES_MAX - _DIGEST_LENGTH - 1].decode(errors="ignore")
    return f"{kept}-{sha256(raw).hexdigest()[:_DIGEST_LENGTH]}"
