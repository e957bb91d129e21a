"""Folds the facts on which offers of nodes depend into rows.

Of what watchers and agents record the latest by event time is in force; decisions of services count in the order of the
log.
"""

from collections.abc import Iterator
from datetime import datetime
from sys import intern
from typing import Final

from gpuledger.api.sharing import GPU
from gpuledger.domain.fact import Fact, Handlers, is_late, storable
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.sharing.offered_rows import (
    NOTHING_OBSERVED,
    SharingCard,
    SharingHardware,
    SharingHolder,
    SharingNode,
    SharingOffer,
    SharingSlice,
    SharingSliceCard,
)
from gpuledger.domain.sharing.offered_state import Offering
from gpuledger.events.device import (
    Description,
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.node import NodeDevicesObserved, NodeGone
from gpuledger.events.node_devices import NodeDeclaredDevicesObserved
from gpuledger.events.node_sharing import NodeCardsLeft, NodeNicsObserved, NodeSharingLabelled, NodeSharingUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import (
    Allocation,
    NodeDevicesShared,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from gpuledger.events.slice import SlicePublished, SliceWithdrawn

CARD_ATTRIBUTES: Final = frozenset({"uuid", "parentUUID"})
"""Attributes of DRA devices that name a card; a MIG device names the card that it is a part of."""


def offer_text(data: NodeDevicesShared) -> str:
    """An offer as its row has it; equal offers have the same text."""
    return json_text(data.model_dump(mode="json", exclude_none=True))


def _labelled(state: Offering, fact: Fact, data: NodeSharingLabelled) -> None:
    _put_label(state, fact, is_labelled=True, policy=data.partition_policy)


def _unlabelled(state: Offering, fact: Fact, _data: NodeSharingUnlabelled) -> None:
    _put_label(state, fact, is_labelled=False, policy=None)


def _put_label(state: Offering, fact: Fact, *, is_labelled: bool, policy: str | None) -> None:
    node, time = intern(fact.event.subject), fact.event.time
    before = state.node.get(node)
    state.node_ends.forget(fact)
    state.offer_ends.forget(fact)
    if is_late(before and before.observed_at, time):
        return
    is_same = before is not None and before.is_labelled == is_labelled
    since, left_as_of = (time, None) if before is None else (before.since if is_same else time, before.left_as_of)
    row = SharingNode(node, is_labelled, since, policy, time, left_as_of)
    state.node.put(row)
    state.node_ends.note(row)
    state.touch(node)


def _cards_left(state: Offering, fact: Fact, data: NodeCardsLeft) -> None:
    before = state.node.get(fact.event.subject)
    if before is not None:
        state.node.put(before._replace(left_as_of=storable(data.labelled_at)))
        state.touch(before.node)


def _devices_observed(state: Offering, fact: Fact, data: NodeDevicesObserved) -> None:
    before = _hardware(state, fact.event.subject)
    if not _is_late(before, before.cards_at, fact.event.time):
        _put_hardware(state, fact, before._replace(cards=_array(data.cards), cards_at=fact.event.time))


def _nics_observed(state: Offering, fact: Fact, data: NodeNicsObserved) -> None:
    before = _hardware(state, fact.event.subject)
    if not _is_late(before, before.nics_at, fact.event.time):
        _put_hardware(state, fact, before._replace(nics=_array(data.nics), nics_at=fact.event.time))


def _declared(state: Offering, fact: Fact, data: NodeDeclaredDevicesObserved) -> None:
    before = _hardware(state, fact.event.subject)
    if not _is_late(before, before.declared_at, fact.event.time):
        row = before._replace(declared=_array(data.devices) if data.devices else "", declared_at=fact.event.time)
        _put_hardware(state, fact, row)


def _node_gone(state: Offering, fact: Fact, _data: NodeGone) -> None:
    """What its agent observed before went with it."""
    row, time = _hardware(state, fact.event.subject), fact.event.time
    if is_late(row.gone_at, time):
        return
    if row.cards_at is not None and row.cards_at <= time:
        row = row._replace(cards=NOTHING_OBSERVED, cards_at=None)
    if row.nics_at is not None and row.nics_at <= time:
        row = row._replace(nics=NOTHING_OBSERVED, nics_at=None)
    if row.declared_at is not None and row.declared_at <= time:
        row = row._replace(declared="", declared_at=None)
    _put_hardware(state, fact, row._replace(gone_at=time))


def _is_late(row: SharingHardware, latest: datetime | None, time: datetime) -> bool:
    return is_late(latest, time) or (row.gone_at is not None and row.gone_at >= time)


def _hardware(state: Offering, node: str) -> SharingHardware:
    return state.hardware.get(node) or SharingHardware(
        intern(node), NOTHING_OBSERVED, None, NOTHING_OBSERVED, None, None
    )


def _put_hardware(state: Offering, fact: Fact, row: SharingHardware) -> None:
    before = state.hardware.get(row.node)
    state.hardware.put(row)
    state.hardware_ends.note(row)
    state.hardware_ends.forget(fact)
    if before is None or _observed(before) != _observed(row):
        state.touch(row.node)


def _observed(row: SharingHardware) -> tuple[str, str, str]:
    return row.cards, row.nics, row.declared


def _array(values: tuple[Payload, ...]) -> str:
    return json_text([one.model_dump(mode="json", exclude_none=True) for one in values])


def _detected(state: Offering, fact: Fact, data: DeviceDetected) -> None:
    _describe(state, fact.event.subject, data, data.node)


def _described(state: Offering, fact: Fact, data: DeviceDescribed) -> None:
    before = state.card.get(fact.event.subject)
    if before is not None:
        _describe(state, before.name, data, before.node)


def _describe(state: Offering, name: str, data: Description, node: str) -> None:
    before, hardware = state.card.get(name), data.hardware
    if before is not None and before.node != node:
        state.touch(before.node)
    device_state, pool = ("", None) if before is None else (before.state, before.pool)
    row = SharingCard(
        intern(name), intern(node), hardware.uuid, hardware.pci_address, hardware.product, hardware.memory_mib,
        data.managed, data.ignored, data.missing, device_state, pool,
    )  # fmt: skip
    _put_card(state, row)


def _put_card(state: Offering, row: SharingCard) -> None:
    if row != state.card.get(row.name):
        state.card.put(row)
        state.touch(row.node)


def _state_changed(state: Offering, fact: Fact, data: DeviceStateChanged) -> None:
    before = state.card.get(fact.event.subject)
    if before is not None:
        _put_card(state, before._replace(state=intern(data.state)))


def _assignment_changed(state: Offering, fact: Fact, data: DeviceAssignmentChanged) -> None:
    before = state.card.get(fact.event.subject)
    if before is not None:
        _put_card(state, before._replace(pool=data.pool))


def _withdrawn(state: Offering, fact: Fact, _data: DeviceWithdrawn) -> None:
    before = state.card.get(fact.event.subject)
    if before is not None:
        state.card.delete(before.name)
        state.touch(before.node)


def _published(state: Offering, fact: Fact, data: SlicePublished) -> None:
    row = SharingSlice(intern(fact.event.subject), intern(data.driver), is_published=True, published_at=fact.event.time)
    _put_slice(state, fact, row, set(_cards_of(data)))


def _slice_withdrawn(state: Offering, fact: Fact, _data: SliceWithdrawn) -> None:
    row = SharingSlice(intern(fact.event.subject), "", is_published=False, published_at=fact.event.time)
    _put_slice(state, fact, row, set())


def _put_slice(state: Offering, fact: Fact, row: SharingSlice, uuids: set[str]) -> None:
    before = state.slice.get(row.slice)
    state.slice_ends.forget(fact)
    if is_late(before and before.published_at, row.published_at):
        return
    state.slice.put(row)
    state.slice_ends.note(row)
    former = {one.uuid: one for one in state.slice_card.where("slice", row.slice)}
    for uuid in former.keys() - uuids:
        state.slice_card.delete((row.slice, uuid))
        state.touch_card(uuid)
    for uuid in sorted(uuids):
        card = SharingSliceCard(row.slice, uuid, row.driver)
        if former.get(uuid) != card:
            state.slice_card.put(card)
            state.touch_card(uuid)


def _cards_of(data: SlicePublished) -> Iterator[str]:
    """The UUIDs of cards in a slice, by attributes with or without the driver's domain."""
    for device in data.devices:
        for name, value in device.attributes.items():
            if isinstance(value, str) and name.rpartition("/")[2] in CARD_ATTRIBUTES:
                yield value


def _reserved(state: Offering, fact: Fact, data: PodDevicesReserved) -> None:
    _hold(state, fact, data.uid, data.node, data.allocation)


def _pod_observed(state: Offering, fact: Fact, data: PodSharingObserved) -> None:
    """What its annotation says counts on the node that it is bound to, whoever wrote it."""
    if data.node is not None and data.allocation is not None:
        _hold(state, fact, data.uid, data.node, data.allocation)


def _hold(state: Offering, fact: Fact, uid: str, node: str, allocation: Allocation) -> None:
    _release(state, uid)
    for one in allocation.get(GPU, ()):
        state.holder.put(SharingHolder(uid, one.minor, intern(fact.event.subject), intern(node), one.id))
    state.touch(node)


def _released(state: Offering, _fact: Fact, data: PodDevicesReleased) -> None:
    _release(state, data.uid)


def _pod_gone(state: Offering, fact: Fact, data: PodSharingGone) -> None:
    """Without a UID every pod of the name is gone."""
    held = state.holder.where("pod", fact.event.subject)
    for uid in {row.uid for row in held} if data.uid is None else {data.uid}:
        _release(state, uid)


def _release(state: Offering, uid: str) -> None:
    for row in state.holder.where("uid", uid):
        state.holder.delete(state.holder.key_of(row))
        state.touch(row.node)


def _shared(state: Offering, fact: Fact, data: NodeDevicesShared) -> None:
    row = SharingOffer(intern(fact.event.subject), offer_text(data), data.enabled, fact.event.time)
    state.offer.put(row)
    state.offer_ends.note(row)


HANDLERS: Handlers = {
    NodeSharingLabelled: _labelled,
    NodeSharingUnlabelled: _unlabelled,
    NodeCardsLeft: _cards_left,
    NodeDevicesObserved: _devices_observed,
    NodeNicsObserved: _nics_observed,
    NodeDeclaredDevicesObserved: _declared,
    NodeGone: _node_gone,
    DeviceDetected: _detected,
    DeviceDescribed: _described,
    DeviceStateChanged: _state_changed,
    DeviceAssignmentChanged: _assignment_changed,
    DeviceWithdrawn: _withdrawn,
    SlicePublished: _published,
    SliceWithdrawn: _slice_withdrawn,
    PodDevicesReserved: _reserved,
    PodDevicesReleased: _released,
    PodSharingObserved: _pod_observed,
    PodSharingGone: _pod_gone,
    NodeDevicesShared: _shared,
}
