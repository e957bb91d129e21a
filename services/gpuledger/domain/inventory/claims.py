"""Which node has a card that agents report: the owner of each card, and the claims of others to it. Pure.

From version `KEPT_SINCE` of `Rule.DEVICE_REPORTS` on a card stays where it is for as long as the newest report of that
node's agent includes it. Another agent that reports it meanwhile claims it: nothing comes of that before the owner no
longer reports the card, or its node is gone. Before that version whoever reported a card last had it.
"""

from collections import defaultdict
from collections.abc import Set
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.domain.inventory.facts import (
    AGENT,
    CLAIM,
    OF_AGENTS,
    CardReport,
    InventoryFacts,
    InventoryNode,
    has_uuid,
    identified_at,
    is_current,
    is_of_current_node,
)
from gpuledger.events.device import Card

KEPT_SINCE: Final = 4
"""The version of `Rule.DEVICE_REPORTS` from which on a card that is still reported stays where it is."""

PLACE_SEPARATOR: Final = "/"
"""Stands between the node and the address in the id of a card without a UUID (`place_of`), and in no UUID."""


class _Claim(NamedTuple):
    """A node that has a card or claims it; of several the greatest has it."""

    is_current: bool
    has_device: bool
    is_undisputed: bool
    reported_at: datetime
    node: str


def keeps_cards(state: InventoryFacts) -> bool:
    """Whether a card that is still reported stays where it is."""
    return state.reports_version >= KEPT_SINCE


def owner_of(state: InventoryFacts, card: str) -> str | None:
    """The node that has the agent's card: one that sees it, or else the last that saw it."""
    claim = _greatest(state, card)
    return None if claim is None else claim.node


def other_keeper(state: InventoryFacts, node: str, card: str) -> str | None:
    """The other node that keeps a card which this one claims; None if the card may be here."""
    claim = _greatest(state, card) if keeps_cards(state) else None
    return claim.node if claim is not None and claim.is_current and claim.node != node else None


def replaced_cards(state: InventoryFacts, node: str) -> frozenset[str]:
    """The cards in whose slots the node's agent has found other ones since, with other UUIDs."""
    reports = [one for one in state.report.where("node", node) if one.reporter in OF_AGENTS and has_uuid(one)]
    found: dict[str | None, list[tuple[datetime, str]]] = defaultdict(list)
    for slot in state.slot.where("node", node):
        found[slot.pci_address].append((slot.reported_at, slot.card))
    for one in reports:
        if one.reporter == CLAIM and owner_of(state, one.card) == node:  # it came here, and no survey followed yet
            found[one.pci_address].append((one.reported_at, one.card))
    return frozenset(
        one.card
        for one in reports
        if any(card != one.card and at > one.reported_at for at, card in found[one.pci_address])
    )


def nodes_sharing_cards(state: InventoryFacts, node: str) -> set[str]:
    """The other nodes that reported a card of this one."""
    cards = [report.card for report in state.report.where("node", node) if report.reporter in OF_AGENTS]
    return {key[0] for card in cards for key in state.report.by["card"].get(card)} - {node}


def as_claimed(state: InventoryFacts, fact: Fact) -> Fact:
    """An agent's survey with the time from which on it claims cards: when it was recorded, at the latest."""
    if not keeps_cards(state):
        return fact
    time = min(fact.event.time, counted_as_recorded(fact.event, fact.recorded_ns))
    return fact._replace(event=fact.event._replace(time=time))


def uuid_of(state: InventoryFacts, card: Card) -> str | None:
    """The UUID that a card may have: none that is a place, which could be one in another node."""
    is_place = keeps_cards(state) and PLACE_SEPARATOR in (card.uuid or "")
    return None if is_place else card.uuid


def _greatest(state: InventoryFacts, card: str) -> _Claim | None:
    reports = [report for report in state.report.where("card", card) if _is_of_existing_node(state, report)]
    compares_devices = keeps_cards(state) and len(reports) > 1
    holders = {report.node for report in reports if compares_devices and _has_device(state, report.node, card)}
    claims = [
        _Claim(
            _is_current(state, report, holders),
            report.node in holders,
            report.reporter == AGENT,
            report.reported_at,
            report.node,
        )
        for report in reports
    ]
    return max(claims, default=None)


def _is_current(state: InventoryFacts, report: CardReport, holders: Set[str]) -> bool:
    """Whether the agent still reports the card; who has it may report it by its address alone, as without a driver."""
    row = state.node_facts.rows[report.node]
    if is_current(row, report) or not keeps_cards(state):
        return is_current(row, report)
    may_have_it = report.reporter == AGENT and (report.node in holders or not holders)
    return may_have_it and _is_seen_by_address(state, row, report)


def _is_seen_by_address(state: InventoryFacts, row: InventoryNode, report: CardReport) -> bool:
    """Whether the agent's newest survey has a card without a UUID where this one was the last that had one."""
    address = report.pci_address or ""
    seen = state.report.get((report.node, AGENT, place_of(report.node, address)))
    if seen is None or not is_current(row, seen):
        return False
    if (seen.pci_vendor, seen.pci_device) != (report.pci_vendor, report.pci_device):
        return False
    there = (one for one in state.report.where("node", report.node) if one.pci_address == address)
    return identified_at(one for one in there if is_of_current_node(row, one)).get(address) == report


def _is_of_existing_node(state: InventoryFacts, report: CardReport) -> bool:
    row = state.node_facts.get(report.node)
    return row is not None and row.exists and report.reporter in OF_AGENTS and is_of_current_node(row, report)


def _has_device(state: InventoryFacts, node: str, card: str) -> bool:
    return any(row.card == card and not row.provisional for row in state.device.where("node", node))
