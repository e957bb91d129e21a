"""Decides which GPUDevices exist, what they show, and the inventory conditions of their nodes. Pure.

The decider derives the desired inventory of a node from the facts in force and decides only the difference to its last
decisions. A GPUDevice keeps its name for life; it is withdrawn only when its node is gone, its card is in another
node, another card is found in its slot, people retired it while its card is missing, or its card, long absent, makes
room for a new one of a node with too many. Nothing is decided while the module is disabled, and nothing but withdrawals
while neither Node Feature Discovery nor an agent describes any node.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import ANNOTATION_RETIRED, LABEL_IGNORE, LABEL_TRUE
from gpuledger.api.reasons import WithdrawalReason
from gpuledger.deciders.inventory.conditions import is_managed, node_conditions, prerequisite
from gpuledger.deciders.inventory.reports import on_claims
from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.claims import as_claimed, nodes_sharing_cards, owner_of, replaced_cards
from gpuledger.domain.inventory.device_names import device_name, free_name, place_of
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.domain.inventory.merge import (
    NO_DEVICES,
    DesiredDevice,
    Kind,
    NodeDevices,
    devices_of,
)
from gpuledger.domain.inventory.state import GpuDevice, ModuleSettings, described
from gpuledger.events.device import (
    Description,
    DeviceAttached,
    DeviceDescribed,
    DeviceDetached,
    DeviceDetected,
    DeviceIdentified,
    DeviceMarked,
    DeviceWithdrawn,
)
from gpuledger.events.node import (
    NodeDevicesObserved,
    NodeFeaturesGone,
    NodeFeaturesObserved,
    NodeGone,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
    NodeObserved,
)
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Causation, Decision

NODE_FACTS = (NodeObserved, NodeGone, NodeFeaturesObserved, NodeFeaturesGone, NodeDevicesObserved)


def on_fact(state: InventoryFacts, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded. The caller folds each before it takes the next."""
    settings, claimed = state.settings_in_force(), state.take_claims()
    if not settings.enabled:
        for card in claimed:
            state.drop_claim(fact.event.subject, card)
        return
    if isinstance(fact.event.data, NodeDevicesObserved):
        fact = as_claimed(state, fact)
        yield from on_claims(state, fact, claimed)
    was_met = _is_met(state)
    yield from _on_prerequisite(state, fact)
    is_met = _is_met(state)
    begins = is_met and not was_met
    nodes = _all_nodes(state) if begins or isinstance(fact.event.data, SettingsChanged) else _nodes_of(state, fact)
    decided_at = max((row.decided_at for node in nodes if (row := state.node.get(node))), default=None)
    causation = Causation(fact, decided_at)
    for node in nodes:
        if is_met or not _exists(state, node):
            yield from _on_node(state, causation, settings, node)


def _is_met(state: InventoryFacts) -> bool:
    row = state.module.get(MODULE_CONFIG)
    return row is not None and row.met


def _exists(state: InventoryFacts, node: str) -> bool:
    row = state.node_facts.get(node)
    return row is not None and row.exists


def _on_prerequisite(state: InventoryFacts, fact: Fact) -> Iterator[Decision]:
    current, desired = state.module.get(MODULE_CONFIG), prerequisite(state.nfd_count())
    if desired is None or (current is not None and (current.met, current.reason) == (desired.met, desired.reason)):
        return
    yield Causation(fact, None if current is None else current.changed_at).decision(MODULE_CONFIG, desired)


def _all_nodes(state: InventoryFacts) -> list[str]:
    return sorted({*state.node_facts.rows, *state.node.rows})


def _nodes_of(state: InventoryFacts, fact: Fact) -> list[str]:
    """The nodes whose inventory a fact may change, its own node last."""
    subject = fact.event.subject
    if isinstance(fact.event.data, DeviceMarked):
        device = state.device.get(subject)
        return [] if device is None else [device.node]
    if not isinstance(fact.event.data, NODE_FACTS):
        return []
    return [*sorted(nodes_sharing_cards(state, subject)), subject]


def _on_node(state: InventoryFacts, causation: Causation, settings: ModuleSettings, node: str) -> Iterator[Decision]:
    found = _without_retired(state, node, devices_of(state, node))
    yield from _identify(state, causation, node, found)
    desired = {device.card: device for device in found.devices}
    current = {row.card: row for row in sorted(state.device.where("node", node))}
    for card, row in current.items():
        if card not in desired:
            yield from _withdraw(state, causation, row)
    for card, device in desired.items():
        yield from _keep(state, causation, settings, node, device, current.get(card))
    yield from _settle_slots(state, causation, node, found)
    yield from _on_state(state, causation, settings, node, found)


def _without_retired(state: InventoryFacts, node: str, found: NodeDevices) -> NodeDevices:
    """The devices without those that people retired, as far as their cards are missing."""
    retired = {row.card for row in state.device.where("node", node) if _is_retired(state, row.name)}
    return found._replace(devices=[one for one in found.devices if not (one.missing and one.card in retired)])


def _identify(state: InventoryFacts, causation: Causation, node: str, found: NodeDevices) -> Iterator[Decision]:
    """Give new cards to GPUDevices without one: a provisional device gets the next card of its kind."""
    rows = state.device.where("node", node)
    current, desired = {row.card for row in rows}, {device.card for device in found.devices}
    new = [device for device in found.devices if not device.provisional and device.card not in current]
    for row in _by_place(row for row in rows if row.card not in desired):
        device = next((device for device in new if _is_same(row, device)), None)
        if device is not None:
            new.remove(device)
            yield causation.decision(row.name, DeviceIdentified(card=device.card))


def _by_place(rows: Iterable[GpuDevice]) -> list[GpuDevice]:
    """Rows with a known address first, because they can match only one card."""
    return sorted(rows, key=lambda row: (row.provisional, row.device_index or 0, row.card))


def _is_same(row: GpuDevice, device: DesiredDevice) -> bool:
    if not row.provisional:
        return row.uuid is None and row.pci_address == device.address
    return _kind(row) == device.kind


def _kind(row: GpuDevice) -> Kind:
    return (row.pci_vendor or "", row.pci_device or "")


def _withdraw(state: InventoryFacts, causation: Causation, row: GpuDevice) -> Iterator[Decision]:
    yield from _detach(causation, row)
    moved_to = owner_of(state, row.card) if not row.provisional else None
    if moved_to not in (None, row.node):
        yield causation.decision(row.name, DeviceWithdrawn(moved_to=moved_to))
    else:
        yield causation.decision(row.name, DeviceWithdrawn(reason=_withdrawal_reason(state, row)))


def _withdrawal_reason(state: InventoryFacts, row: GpuDevice) -> WithdrawalReason | None:
    """Why the device leaves its node; None where the node is gone, or has too many cards."""
    if not _exists(state, row.node):
        return None
    replaced = replaced_cards(state, row.node)
    if row.card in replaced or (row.provisional and replaced):  # a late survey can show that one that was counted is it
        return WithdrawalReason.REPLACED
    return WithdrawalReason.RETIRED if _is_retired(state, row.name) else None


def _keep(
    state: InventoryFacts,
    causation: Causation,
    settings: ModuleSettings,
    node: str,
    device: DesiredDevice,
    row: GpuDevice | None,
) -> Iterator[Decision]:
    managed = is_managed(state.node_facts.rows[node], settings).managed
    name = _name(state, node, device) if row is None else row.name
    description = Description(
        hardware=device.hardware, managed=managed, ignored=_is_ignored(state, name), missing=device.missing
    )
    shown: dict[str, Any] = dict(description)
    if row is None:
        index = device.device_index if device.provisional else None
        found = DeviceDetected(**shown, node=node, card=device.card, provisional=device.provisional, index=index)
        yield causation.decision(name, found)
    elif described(row, description, causation.time) != row:
        yield causation.decision(name, DeviceDescribed(**shown))


def _name(state: InventoryFacts, node: str, device: DesiredDevice) -> str:
    vendor, kind = device.kind
    name = device_name(node, address=device.address, index=device.device_index, vendor=vendor, device=kind)
    slot = None if device.address is None else state.slot.get((node, device.address))
    belongs_to_another = slot is not None and slot.first_card != device.card

    def is_taken(candidate: str) -> bool:
        return candidate in state.device.rows or (candidate == name and belongs_to_another)

    return free_name(name, device.card, is_taken)


def _is_ignored(state: InventoryFacts, name: str) -> bool:
    mark = state.mark.get(name)
    return mark is not None and orjson.loads(mark.labels).get(LABEL_IGNORE) == LABEL_TRUE


def _is_retired(state: InventoryFacts, name: str) -> bool:
    mark = state.mark.get(name)
    return mark is not None and orjson.loads(mark.annotations).get(ANNOTATION_RETIRED) == LABEL_TRUE


def _settle_slots(state: InventoryFacts, causation: Causation, node: str, found: NodeDevices) -> Iterator[Decision]:
    """Attach and detach cards; one that is not visible keeps its slot until another card is found there."""
    slots = {
        device.card: place_of(node, device.address)
        for device in found.devices
        if not device.provisional and not device.missing and device.address is not None
    }
    taken = set(slots.values())
    rows = sorted(state.device.where("node", node))
    for row in rows:
        if row.slot is not None and row.slot != slots.get(row.card, row.slot if row.slot not in taken else None):
            yield from _detach(causation, row)
    for row in rows:
        slot = slots.get(row.card)
        if slot is not None and slot != row.slot:
            facts = {"serial": row.serial, "uuid": row.uuid, "model": row.product}
            yield causation.decision(row.card, DeviceAttached(name=row.name, slot=slot, **facts))


def _detach(causation: Causation, row: GpuDevice) -> Iterator[Decision]:
    if row.slot is not None:
        yield causation.decision(row.card, DeviceDetached(name=row.name, slot=row.slot))


def _on_state(
    state: InventoryFacts, causation: Causation, settings: ModuleSettings, node: str, found: NodeDevices
) -> Iterator[Decision]:
    node_facts, current = state.node_facts.get(node), state.node.get(node)
    if node_facts is None or not node_facts.exists or not (found.devices or node_facts.has_gpus):
        if current is not None:
            yield causation.decision(node, NodeInventoryWithdrawn())
        return
    conditions = node_conditions(node_facts, settings, found)
    shown = [state.condition.get((node, condition.type)) for condition in conditions]
    has_changed = any(
        row is None or row[2:5] != (one.status, one.reason, one.message)
        for row, one in zip(shown, conditions, strict=True)
    )
    present = found != NO_DEVICES and found.visible > 0
    if current is None or current.present != present or has_changed:
        yield causation.decision(node, NodeInventoryChanged(present=present, conditions=conditions))
