"""Folds reports on nodes and their cards, from Kubernetes watchers and node agents, into the facts of `inventory`.

Of each kind of fact the latest by event time is in force, whatever the order of recording; a late fact still adds the
cards that it reports. Nothing here is merged or decided.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from sys import intern
from typing import Final

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import LABEL_DEVICE_PREFIX, NFD_LABEL_PREFIX
from gpuledger.api.reasons import WithdrawalReason
from gpuledger.domain.fact import Fact, Handler, Handlers, counted_as_recorded
from gpuledger.domain.inventory.claims import as_claimed, keeps_cards, other_keeper, owner_of, uuid_of
from gpuledger.domain.inventory.device_names import place_of, provisional_card
from gpuledger.domain.inventory.facts import (
    AGENT,
    CLAIM,
    FEATURES,
    LABELS,
    OF_AGENTS,
    CardReport,
    InventoryFacts,
    InventoryNode,
    NfdCount,
    Slot,
    has_uuid,
    is_current,
    is_of_current_node,
)
from gpuledger.domain.inventory.labels import (
    PciGpus,
    gpus_among,
    hardware_facts,
    is_new_enough,
    mention_gpus,
    pci_address,
    pci_devices,
    pci_id,
)
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, json_text
from gpuledger.events.device import Card, DeviceWithdrawn, Hardware
from gpuledger.events.node import (
    CARDS_PER_NODE_MAX,
    NodeDevicesObserved,
    NodeFeaturesGone,
    NodeFeaturesObserved,
    NodeGone,
    NodeObserved,
)
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule

AGENT_CARDS_MAX: Final = 2 * CARDS_PER_NODE_MAX
"""How many cards of a node's agent are kept, absent ones included, where `Rule.BOUNDS` is enforced."""

CARD_KEPT_MIN: Final = timedelta(days=1)
"""How long after its last report a card is kept at least; after that it makes room for a new one, if there is none."""

_JUST_BEFORE = timedelta(microseconds=1)
_TRACES = (f'"{LABEL_DEVICE_PREFIX}', f'"{NFD_LABEL_PREFIX}')
"""Fragments of a node's labels, as JSON, that only Node Feature Discovery sets."""


_HARDWARE = set(Hardware.model_fields)
"""The fields of a card that its device keeps; its current partitions and links are not among them."""


def _observed(state: InventoryFacts, fact: Fact, data: NodeObserved) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    listing = gpus_among(pci_devices(data.labels))
    if _is_latest(row.node_at, time):
        row = row._replace(exists=True, node_at=time, labels=json_text(data.labels), nfd_version=data.nfd_version)
    row = _with_hardware_facts(row, data.labels, time)
    _put(state, _with_gpus(row, time) if mention_gpus(data.labels) else row)
    _report_listed(state, row.node, LABELS, listing, time)


def _gone(state: InventoryFacts, fact: Fact, _data: NodeGone) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    if _is_latest(row.gone_at, time):
        row = row._replace(gone_at=time)
    if _is_latest(row.node_at, time):
        row = row._replace(exists=False, node_at=time, labels="{}", nfd_version=None)
    _put(state, row)
    _forget(state, row)


def _features_observed(state: InventoryFacts, fact: Fact, data: NodeFeaturesObserved) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    listing = gpus_among(data.devices)
    if _is_latest(row.features_at, time):
        row = row._replace(
            has_features=True,
            features_at=time,
            features_nfd_version=data.nfd_version,
            incomplete=listing.incomplete,
        )
    row = _with_hardware_facts(row, data.labels, time)
    _put(state, _with_gpus(row, time) if listing.gpus or mention_gpus(data.labels) else row)
    _report_listed(state, row.node, FEATURES, listing, time)


def _features_gone(state: InventoryFacts, fact: Fact, _data: NodeFeaturesGone) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    if _is_latest(row.features_at, time):
        row = row._replace(has_features=False, features_at=time, features_nfd_version=None, incomplete=0)
    _put(state, row)
    _forget(state, row)


def _devices_observed(state: InventoryFacts, fact: Fact, data: NodeDevicesObserved) -> None:
    fact = as_claimed(state, fact)
    node, time = fact.event.subject, fact.event.time
    recorded_at = counted_as_recorded(fact.event, fact.recorded_ns)
    if keeps_cards(state):
        _put_back(state, _row(state, node), time, recorded_at)
    row = _row(state, node)
    _settle_claims(state, node)
    cards = sorted(data.cards, key=_place, reverse=True)
    reports = [_sighting_of_card(node, card, uuid_of(state, card), time) for card in cards]
    claims = {report.card: report for report in reports if other_keeper(state, node, report.card) is not None}
    ours = [report for report in reports if report.card not in claims]
    is_latest = _is_latest(row.agent_at, time)
    if is_latest:
        row = row._replace(agent_at=time)
    _put(state, _with_gpus(row, time) if data.cards else row)
    _supersede(state, node, AGENT, time)
    evicts = is_latest and recorded_at - time < CARD_KEPT_MIN
    refused = _make_room(state, node, ours, time, evicts=evicts) if Rule.BOUNDS in fact.rules else frozenset[str]()
    for report in ours:
        if report.card not in refused:
            _store(state, report)
            _occupy(state, report)
    if Rule.BOUNDS in fact.rules:
        _bound_slots(state, node)
    if is_latest:
        _replace_claims(state, node, claims)
    _forget(state, _row(state, node))


def _put_back(state: InventoryFacts, row: InventoryNode, time: datetime, recorded_at: datetime) -> None:
    """Put what an agent's clock dated after the recording of its new survey just before that survey."""
    just_before = time - _JUST_BEFORE
    for report in state.report.where("node", row.node):
        if report.reporter in OF_AGENTS and report.reported_at > recorded_at:
            at = just_before if is_current(row, report) else just_before - _JUST_BEFORE
            state.report.put(report._replace(reported_at=at))
    for slot in state.slot.where("node", row.node):
        if slot.reported_at > recorded_at:
            state.slot.put(slot._replace(reported_at=just_before))
    if row.agent_at is not None and row.agent_at > recorded_at:
        _put(state, row._replace(agent_at=just_before))


def _settle_claims(state: InventoryFacts, node: str) -> None:
    """Take the claims to cards that the node has got since for reports of its own cards."""
    for report in state.report.where("node", node):
        if report.reporter == CLAIM and owner_of(state, report.card) == node:
            state.report.delete(state.report.key_of(report))
            _store(state, report._replace(reporter=AGENT))
            _occupy(state, report)


def _replace_claims(state: InventoryFacts, node: str, claims: Mapping[str, CardReport]) -> None:
    """Keep the latest survey's claims alone: what an agent once claimed does not show that the card was there."""
    before = {report.card for report in state.report.where("node", node) if report.reporter == CLAIM}
    for card in before:
        state.report.delete((node, CLAIM, card))
    for report in claims.values():
        state.report.put(report._replace(reporter=CLAIM))
    state.note_claims(claims.keys() - before)


def _make_room(
    state: InventoryFacts, node: str, reports: Iterable[CardReport], time: datetime, *, evicts: bool
) -> frozenset[str]:
    """Drop the cards that were absent longest, as far as new ones need room; returns new ones that find none.

    A survey that is late or was recorded long after its time evicts none: any times may stand in such ones.
    """
    kept = {report.card: report.reported_at for report in state.report.where("node", node) if report.reporter == AGENT}
    reported = dict.fromkeys(report.card for report in reports)
    new = [card for card in reported if card not in kept]
    lacking = len(kept) + len(new) - AGENT_CARDS_MAX
    if lacking <= 0:
        return frozenset()
    old = [(at, card) for card, at in kept.items() if card not in reported and time - at >= CARD_KEPT_MIN]
    absent = sorted(old) if evicts else []
    for _, card in absent[:lacking]:
        state.report.delete((node, AGENT, card))
    return frozenset(new[: max(0, lacking - len(absent))])


def _place(card: Card) -> tuple[str, str]:
    return (pci_address(card.pci_address), card.uuid or "")


def _sighting_of_card(node: str, card: Card, uuid: str | None, time: datetime) -> CardReport:
    address, vendor, device = pci_address(card.pci_address), pci_id(card.pci_vendor), pci_id(card.pci_device)
    normal = {"uuid": uuid, "pci_address": address, "pci_vendor": vendor, "pci_device": device}
    if card.pci_class is not None:
        normal["pci_class"] = pci_id(card.pci_class)
    hardware = card.model_copy(update=normal).model_dump(exclude_none=True, include=_HARDWARE)
    key = uuid or place_of(node, address)
    return CardReport(
        intern(node), AGENT, intern(key), time, 0, 0, address, intern(vendor), intern(device), json_text(hardware)
    )


def _report_listed(state: InventoryFacts, node: str, reporter: str, listing: PciGpus, time: datetime) -> None:
    _supersede(state, node, reporter, time)
    ranks: dict[tuple[str, str], int] = {}
    for gpu in listing.gpus:
        vendor, device = intern(gpu.pci_vendor or ""), intern(gpu.pci_device or "")
        rank = ranks[vendor, device] = ranks.get((vendor, device), 0) + 1
        card = intern(provisional_card(node, vendor, device, rank))
        hardware = Hardware(pci_address=gpu.pci_address, pci_vendor=vendor, pci_device=device, pci_class=gpu.pci_class)
        text = intern(json_text(hardware.model_dump(exclude_none=True)))
        _store(
            state,
            CardReport(intern(node), reporter, card, time, rank, gpu.index, gpu.pci_address, vendor, device, text),
        )
    _forget(state, _row(state, node))


def _supersede(state: InventoryFacts, node: str, reporter: str, time: datetime) -> None:
    """Age the reporter's earlier reports of this very time, which this one replaces."""
    for report in state.report.where("node", node):
        if report.reporter == reporter and report.reported_at == time:
            state.report.put(report._replace(reported_at=time - _JUST_BEFORE))


def _store(state: InventoryFacts, report: CardReport) -> None:
    previous = state.report.get(state.report.key_of(report))
    if previous is None or _is_latest(previous.reported_at, report.reported_at):
        state.report.put(report)


def _occupy(state: InventoryFacts, report: CardReport) -> None:
    """Note which card is at the address, if it has a UUID."""
    if not has_uuid(report) or report.pci_address is None:
        return
    previous = state.slot.get((report.node, report.pci_address))
    if previous is None or _is_latest(previous.reported_at, report.reported_at):
        first = report.card if previous is None else previous.first_card
        state.slot.put(Slot(report.node, intern(report.pci_address), report.card, report.reported_at, first))


def _bound_slots(state: InventoryFacts, node: str) -> None:
    """Forget the addresses at which nothing was seen for longest, as far as there are too many.

    With them go the cards that were replaced there, which would otherwise count as missing again.
    """
    slots = state.slot.where("node", node)
    if len(slots) > AGENT_CARDS_MAX:
        for slot in sorted(slots, key=lambda one: (one.reported_at, one.pci_address))[: len(slots) - AGENT_CARDS_MAX]:
            for report in state.report.where("node", node):
                is_other = report.reporter == AGENT and has_uuid(report) and report.card != slot.card
                if is_other and report.pci_address == slot.pci_address:
                    state.report.delete(state.report.key_of(report))
            state.slot.delete((node, slot.pci_address))


def _forget(state: InventoryFacts, row: InventoryNode) -> None:
    """Drop the cards that nobody has reported since the Node object was deleted."""
    if row.gone_at is not None:
        for slot in state.slot.where("node", row.node):
            if slot.reported_at <= row.gone_at and slot.reported_at != row.agent_at:
                state.slot.delete((row.node, slot.pci_address))
        for report in state.report.where("node", row.node):
            if not is_of_current_node(row, report):
                state.report.delete(state.report.key_of(report))


def _withdrawn(state: InventoryFacts, fact: Fact, data: DeviceWithdrawn) -> None:
    """Forget a device, and with a retired one what was reported of its card."""
    row = state.device.get(fact.event.subject)
    DECIDED_HANDLERS[DeviceWithdrawn](state, fact, data)
    if row is None or data.reason != WithdrawalReason.RETIRED:
        return
    for report in state.report.where("node", row.node):
        is_in_its_slot = report.reporter == AGENT and not has_uuid(report) and report.pci_address == row.pci_address
        if (report.card == row.card or is_in_its_slot) and not is_current(_row(state, row.node), report):
            state.report.delete(state.report.key_of(report))


def _row(state: InventoryFacts, node: str) -> InventoryNode:
    previous = state.node_facts.get(node)
    if previous is not None:
        return previous
    return InventoryNode(intern(node), True, None, None, "{}", None, False, None, None, 0, None, None, "{}")


def _is_latest(previous: datetime | None, time: datetime) -> bool:
    return previous is None or previous <= time


def _with_gpus(row: InventoryNode, time: datetime) -> InventoryNode:
    return row._replace(gpus_reported_at=time) if _is_latest(row.gpus_reported_at, time) else row


def _with_hardware_facts(row: InventoryNode, labels: Mapping[str, str], time: datetime) -> InventoryNode:
    """Store each hardware fact of the labels, the latest by time."""
    facts = hardware_facts(labels)
    if not facts:
        return row
    previous, at = orjson.loads(row.hardware_facts), time.timestamp()
    for name, value in facts.items():
        if name not in previous or previous[name][0] <= at:
            previous[name] = [at, value]
    return row._replace(hardware_facts=intern(json_text(previous)))


def _put(state: InventoryFacts, row: InventoryNode) -> None:
    """Put the row, and update the count of nodes that something describes."""
    was, now = _nfd(state.node_facts.get(row.node)), _nfd(row)
    state.node_facts.put(row)
    state.node_ends.note(row)
    if was != now:
        count = state.nfd_count()
        state.nfd.put(NfdCount(MODULE_CONFIG, *(n - a + b for n, a, b in zip(count[1:], was, now, strict=True))))


def _nfd(row: InventoryNode | None) -> tuple[int, int, int, int]:
    """A node's part of the count: whether it exists, its version is new enough or too old, its agent surveys it."""
    if row is None or not row.exists:
        return (0, 0, 0, 0)
    surveyed = int(row.is_surveyed)
    versions = [version for version in (row.features_nfd_version, row.nfd_version) if version is not None]
    if not versions and not row.has_features and not any(trace in row.labels for trace in _TRACES):
        return (1, 0, 0, surveyed)
    new_enough = any(map(is_new_enough, versions)) if versions else True
    return (1, int(new_enough), int(not new_enough), surveyed)


def _then_forget(handler: Handler) -> Handler:
    """Fold, and forget the nodes that are gone for so long that nothing older is to be expected of them."""

    def fold(state: InventoryFacts, fact: Fact, data: Payload) -> None:
        handler(state, fact, data)
        for node in state.node_ends.forget(fact):
            for report in state.report.where("node", node):
                state.report.delete(state.report.key_of(report))
            for slot in state.slot.where("node", node):
                state.slot.delete(state.slot.key_of(slot))
            state.report_hour.delete(node)

    return fold


HANDLERS: Handlers = {
    NodeObserved: _then_forget(_observed),
    NodeGone: _then_forget(_gone),
    NodeFeaturesObserved: _then_forget(_features_observed),
    NodeFeaturesGone: _then_forget(_features_gone),
    NodeDevicesObserved: _then_forget(_devices_observed),
    **DECIDED_HANDLERS,
    DeviceWithdrawn: _withdrawn,
}
