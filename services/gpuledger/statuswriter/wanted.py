"""What the API server has to show: a fold of the inventory's decisions and of allocations, and what follows from it.

Pure. Beside these it keeps two small things for the shell to take: which objects were withdrawn, until they are
known to be gone, and what happened that is worth a Kubernetes Event.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.domain.dra.cluster import HANDLERS as SLICE_HANDLERS
from gpuledger.domain.fact import Fact, Handler, Handlers
from gpuledger.domain.inventory import DECIDED_HANDLERS, DECIDED_SPECS, GpuDevice, Inventory
from gpuledger.domain.inventory_names import Status, Type
from gpuledger.domain.inventory_status import device_labels, device_status, module_condition, node_status
from gpuledger.domain.table import Changes, Table
from gpuledger.events.device import DeviceDetected, DeviceMarked, DeviceWithdrawn
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import Condition, NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from gpuledger.kube.names import PREREQUISITE_NOT_MET, EventReason
from gpuledger.projection.definition import Projection
from gpuledger.statuswriter.decide import Desired, Document, Key, Kind, canonical
from gpuledger.statuswriter.slices import Present, desired_slice

USUAL = frozenset({(Type.INVENTORY_COMPLETE, Status.TRUE), (Type.MANAGED_DISABLED, Status.FALSE)})
"""Conditions that are no news of a node that has just become known."""


REDACTED = "Redacted"
"""The setting of claim references that leaves out which claims hold something."""


class News(NamedTuple):
    """Something worth a Kubernetes Event. `about` tells kinds of news of one object apart."""

    key: Key
    reason: EventReason
    about: str
    note: str
    is_warning: bool
    happened_at: datetime
    recorded_ns: int


class Wanted(Inventory):
    """The inventory as decided, how slices stand, what was withdrawn, and what is new.

    Its tables are the inventory's; those of the slices are never written, and let go of their past by themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slices = Present()
        self._slices_shown = self._how_slices_are_shown()
        self.withdrawn: dict[Key, None] = {}
        self.news: list[News] = []
        self._gone: dict[Key, None] = {}

    def take_news(self) -> list[News]:
        """What is new since the last call."""
        news, self.news = self.news, []
        return news

    def take_changed(self) -> dict[Key, None]:
        """The objects that may have to be others since the last call."""
        keys, self._gone = self._gone, {}
        keys |= dict.fromkeys(Key(Kind.DEVICE, row.name) for row in _rows(self.device))
        keys |= dict.fromkeys(Key(Kind.NODE, row.node) for row in _rows(self.node))
        keys |= dict.fromkeys(Key(Kind.NODE, row.node) for row in _rows(self.condition))
        keys |= dict.fromkeys(Key(Kind.MODULE, row.module) for row in _rows(self.module))
        keys |= dict.fromkeys(Key(Kind.SLICE, name) for name in self.slices.take_touched())
        shown, self._slices_shown = self._slices_shown, self._how_slices_are_shown()
        if shown != self._slices_shown:
            keys |= dict.fromkeys(key for key in self.keys() if key.kind is Kind.SLICE)
        self.mark.take_changes()
        self.settings.take_changes()
        return keys

    def _how_slices_are_shown(self) -> tuple[bool, str]:
        settings = self.settings_in_force()
        return settings.dra_availability, settings.claim_references

    def withdraw(self, key: Key) -> None:
        """An object is to be no more."""
        self.withdrawn[key] = None
        self._gone[key] = None

    @property
    def enabled(self) -> bool:
        """Whether the module is enabled; nothing is written while it is not."""
        return self.settings_in_force().enabled

    def keeps(self, kind: Kind) -> bool:
        """Whether objects of a kind are written; while they are not they stay as they are."""
        settings = self.settings_in_force()
        return settings.enabled and (kind is not Kind.SLICE or settings.dra_availability)

    def keys(self) -> Iterator[Key]:
        """Every object that is wanted or was withdrawn, but for the rule."""
        yield from [Key(Kind.MODULE, name) for name in self.module.rows]
        yield from [Key(Kind.NODE, name) for name in self.node.rows]
        yield from [Key(Kind.DEVICE, name) for name in self.device.rows]
        yield from [Key(Kind.SLICE, name) for name in self.slices.slice.rows]
        yield from list(self.withdrawn)


def _rows(table: Table[Any]) -> Iterator[Any]:
    changes: Changes[Any] = table.take_changes()
    yield from changes.new
    yield from changes.changed


def desired(state: Wanted, key: Key, rule: Document) -> Desired | None:
    """How an object has to be; None where the ledger knows of none. `rule` is the NodeFeatureRule that is shipped."""
    match key.kind:
        case Kind.DEVICE:
            return _device(state, key.name)
        case Kind.NODE:
            return _node(state, key.name)
        case Kind.RULE:
            return Desired({"spec": rule["spec"]}, {}) if key == rule_key(rule) else None
        case Kind.MODULE:
            return _module(state, key.name)
        case Kind.SLICE:
            is_redacted = state.settings_in_force().claim_references == REDACTED
            return desired_slice(state.slices, key.name, redacted=is_redacted)


def rule_key(rule: Document) -> Key:
    """The object that the shipped rule is."""
    return Key(Kind.RULE, rule["metadata"]["name"])


def _device(state: Wanted, name: str) -> Desired | None:
    row = state.device.get(name)
    return None if row is None else Desired({"labels": device_labels(row)}, canonical(device_status(row)))


def _node(state: Wanted, name: str) -> Desired | None:
    """A node of which no condition was decided yet has nothing to show."""
    row, conditions = state.node.get(name), state.condition.where("node", name)
    if row is None or not conditions:
        return None
    return Desired({"spec": {"nodeName": name}}, canonical(node_status(row, conditions)))


def _module(state: Wanted, name: str) -> Desired | None:
    row = state.module.get(name)
    return None if row is None else Desired({}, {"conditions": [module_condition(row)]})


def _tell(
    state: Wanted, fact: Fact, key: Key, reason: EventReason, about: str, note: str, *, is_warning: bool = False
) -> None:
    """Note news; what is imported or restored is none."""
    event = fact.event
    if not event.imported and event.recorded_at is None:
        state.news.append(News(key, reason, about, note, is_warning, event.time, fact.recorded_ns))


def _detected(state: Wanted, fact: Fact, data: DeviceDetected) -> None:
    DECIDED_HANDLERS[DeviceDetected](state, fact, data)
    key = Key(Kind.DEVICE, fact.event.subject)
    state.withdrawn.pop(key, None)
    _tell(state, fact, key, EventReason.DEVICE_DETECTED, "", f"{_what(state.device.rows[key.name])} was found.")


def _what(row: GpuDevice) -> str:
    at = f" at {row.pci_address}" if row.pci_address else ""
    return f"{row.product or 'A GPU'} in node {row.node}{at}"


def _withdrawn(state: Wanted, fact: Fact, data: DeviceWithdrawn) -> None:
    row = state.device.get(fact.event.subject)
    DECIDED_HANDLERS[DeviceWithdrawn](state, fact, data)
    if row is None:
        return
    key = Key(Kind.DEVICE, row.name)
    state.withdraw(key)
    why = f"it sits in node {data.moved_to} now" if data.moved_to else "its node is gone"
    _tell(state, fact, key, EventReason.DEVICE_REMOVED, "", f"{_what(row)} was removed: {why}.")


def _inventory_changed(state: Wanted, fact: Fact, data: NodeInventoryChanged) -> None:
    key = Key(Kind.NODE, fact.event.subject)
    state.withdrawn.pop(key, None)
    for condition in data.conditions:
        known = state.condition.get((key.name, condition.type))
        was = None if known is None else (known.status, known.reason)
        is_usual = (condition.type, condition.status) in USUAL
        if was != (condition.status, condition.reason) and not (was is None and is_usual):
            _tell_condition(state, fact, key, condition)
    DECIDED_HANDLERS[NodeInventoryChanged](state, fact, data)


def _tell_condition(state: Wanted, fact: Fact, key: Key, condition: Condition) -> None:
    note = f"{condition.type} is {condition.status}: {condition.reason}. {condition.message}".strip()
    is_warning = (condition.type, condition.status) == (Type.INVENTORY_COMPLETE, Status.FALSE)
    about = f"{condition.type}={condition.status}/{condition.reason}"
    _tell(state, fact, key, EventReason.CONDITION_CHANGED, about, note, is_warning=is_warning)


def _inventory_withdrawn(state: Wanted, fact: Fact, data: NodeInventoryWithdrawn) -> None:
    DECIDED_HANDLERS[NodeInventoryWithdrawn](state, fact, data)
    state.withdraw(Key(Kind.NODE, fact.event.subject))


def _prerequisite_changed(state: Wanted, fact: Fact, data: ModulePrerequisiteChanged) -> None:
    known = state.module.get(fact.event.subject)
    DECIDED_HANDLERS[ModulePrerequisiteChanged](state, fact, data)
    if data.met and known is None:
        return
    status = Status.FALSE if data.met else Status.TRUE
    note = f"{PREREQUISITE_NOT_MET} is {status}: {data.reason}. {data.message}".strip()
    about = f"{PREREQUISITE_NOT_MET}={status}/{data.reason}"
    key = Key(Kind.MODULE, fact.event.subject)
    _tell(state, fact, key, EventReason.CONDITION_CHANGED, about, note, is_warning=not data.met)


def _of_slices(handler: Handler) -> Handler:
    def fold(state: Wanted, fact: Fact, said: object) -> None:
        handler(state.slices, fact, said)
        state.slices.forget_past()

    return fold


_AVAILABILITY: Handlers = {model: _of_slices(handler) for model, handler in SLICE_HANDLERS.items()}


def _slice_published(state: Wanted, fact: Fact, data: SlicePublished) -> None:
    _AVAILABILITY[SlicePublished](state, fact, data)
    state.withdrawn.pop(Key(Kind.SLICE, fact.event.subject), None)


def _slice_withdrawn(state: Wanted, fact: Fact, data: SliceWithdrawn) -> None:
    if state.slices.slice.get(fact.event.subject) is not None:
        state.withdraw(Key(Kind.SLICE, fact.event.subject))
    _AVAILABILITY[SliceWithdrawn](state, fact, data)


_HANDLERS: Handlers = {
    DeviceDetected: _detected,
    DeviceWithdrawn: _withdrawn,
    NodeInventoryChanged: _inventory_changed,
    NodeInventoryWithdrawn: _inventory_withdrawn,
    ModulePrerequisiteChanged: _prerequisite_changed,
    SlicePublished: _slice_published,
    SliceWithdrawn: _slice_withdrawn,
}


class WantedProjection(Projection):
    """Folds what the API server has to show; its state stays in memory."""

    name = "statuswriter"
    version = 1
    specs = DECIDED_SPECS
    handlers = {
        **{model: handler for model, handler in DECIDED_HANDLERS.items() if model is not DeviceMarked},
        **_AVAILABILITY,
        **_HANDLERS,
    }

    def new_state(self) -> Wanted:
        """An empty state."""
        return Wanted()
