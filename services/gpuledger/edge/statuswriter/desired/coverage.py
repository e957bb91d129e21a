"""Which labels about the GPUs of a node differ from those that the NodeFeatureRule derives from its PCI devices. Pure.

The inventory stays incomplete where a rule does not cover a card, so the difference belongs where people look: in the
message of InventoryComplete while that is False, and after a while in an Event. Only what the ledger has is compared,
the PCI devices of GPUs' classes in a NodeFeature and the node's labels; `gpuledger nfd coverage` compares all features,
and runs as a Job by then (`coverage_jobs.py`).
Where agents stand in for Node Feature Discovery there is nothing to compare.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from sys import intern
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import LABEL_DEVICE_COUNT, LABEL_DEVICE_PREFIX, LABEL_PRESENT, NFD_PCI_DEVICE
from gpuledger.api.reasons import EventReason, InventoryReason
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.feature_rule import Features, expected_labels
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import LatestRows
from gpuledger.edge.statuswriter.desired.since import Since, by_node, since
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.objects import Document, Key, Kind
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeFeaturesGone, NodeFeaturesObserved, NodeGone, NodeObserved, PciDevice
from gpuledger.runtime.clock import Clock

DIFFERENCES_SHOWN_MAX: Final = 6
"""How many labels a message names; an Event's note has room for a thousand characters."""

NO_FEATURES: Final = "No NodeFeature describes the node; check that the worker of Node Feature Discovery runs there."
AGREE: Final = (
    "Its labels are those that the NodeFeatureRule derives from its PCI devices of GPUs' classes. "
    "`gpuledger nfd coverage` finds GPUs of other classes, too."
)
MORE: Final = "`gpuledger nfd coverage` compares every label."


class ComparedLabels(NamedTuple):
    """The latest labels of a node that are compared, as a JSON object (None: the node is gone), as of a time."""

    node: str
    labels: str | None
    observed_at: datetime


class ListedDevices(NamedTuple):
    """What is compared of the PCI devices of a node, a JSON array (None: it has no NodeFeature), as of a time."""

    node: str
    devices: str | None
    observed_at: datetime


class FeatureSource(NamedTuple):
    """Whether Node Feature Discovery is to describe nodes, or agents stand in for it."""

    module: str
    expects_features: bool


COMPARED_LABELS: Final = TableSpec("compared_labels", ComparedLabels, ("node",))
LISTED_DEVICES: Final = TableSpec("listed_devices", ListedDevices, ("node",))
FEATURE_SOURCE: Final = TableSpec("feature_source", FeatureSource, ("module",))

C = TypeVar("C", ComparedLabels, ListedDevices)


class LabelCoverage:
    """Labels and PCI devices of nodes, since when inventories are incomplete, and when theirs last changed."""

    def __init__(self) -> None:
        self.incomplete = by_node("incomplete_inventory")
        self.changed = by_node("coverage_changed")
        self._labels = LatestRows(COMPARED_LABELS)
        self._devices = LatestRows(LISTED_DEVICES)
        self._source = Table(FEATURE_SOURCE)
        self._source.never_written()
        self._touched: dict[str, None] = {}

    def tables(self) -> Mapping[str, Table[Any]]:
        """All of it."""
        every = (self.incomplete, self.changed, self._labels.table, self._devices.table, self._source)
        return {table.spec.name: table for table in every}

    def take_touched(self) -> dict[str, None]:
        """The nodes with incomplete inventories whose labels or devices changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def note_incomplete(self, began: Since) -> None:
        """The node's inventory is incomplete; it counts from when it became so."""
        if began.node not in self.incomplete.rows:
            self.incomplete.put(began)

    def note_complete(self, node: str) -> None:
        """The node's inventory is complete, or gone."""
        self.incomplete.delete(node)
        self.changed.delete(node)

    def observe_labels(self, fact: Fact, labels: Mapping[str, str] | None) -> None:
        """The labels about the node's GPUs; None where the node is gone."""
        compared = None if labels is None else {key: labels[key] for key in labels if _is_compared(key)}
        text = None if compared is None else intern(json_text(compared))
        self._observe(fact, self._labels, ComparedLabels(intern(fact.event.subject), text, fact.event.time))

    def observe_devices(self, fact: Fact, devices: tuple[PciDevice, ...] | None) -> None:
        """The PCI devices in the node's NodeFeature; None where it has none."""
        text = None if devices is None else intern(json_text(list(map(_attributes, devices))))
        self._observe(fact, self._devices, ListedDevices(intern(fact.event.subject), text, fact.event.time))

    def _observe(self, fact: Fact, latest: LatestRows[C], row: C) -> None:
        node, value, _ = row
        before = latest.table.get(node)
        if latest.put(fact, row) and (before is None or before[1] != value) and node in self.incomplete.rows:
            self.changed.put(since(fact, node))
            self._touched[node] = None

    def expect_features(self, *, expected: bool) -> None:
        """Whether Node Feature Discovery is to describe nodes, or agents stand in for it."""
        if expected != self._expects_features:
            self._touched.update(dict.fromkeys(self.incomplete.rows))
        self._source.put(FeatureSource(MODULE_CONFIG, expected))

    @property
    def _expects_features(self) -> bool:
        row = self._source.get(MODULE_CONFIG)
        return row is None or row.expects_features

    def overdue(self, now: datetime, after: timedelta) -> Mapping[str, datetime]:
        """The nodes whose inventory stays incomplete for so long, and since when each needs to be checked (again)."""
        if not self._expects_features:
            return {}
        found: dict[str, datetime] = {}
        for node, began in self.incomplete.rows.items():
            changed = self.changed.get(node)
            since = began.at + after
            if since <= now:
                found[node] = since if changed is None else max(since, changed.at)
        return found

    def result(self, node: str, rule: Document) -> str:
        """What is wrong with the node's labels, in sentences; empty where nobody is to set any."""
        if not self._expects_features:
            return ""
        devices, labels = self._devices.table.get(node), self._labels.table.get(node)
        if devices is None or devices.devices is None:
            return f"{NO_FEATURES} {MORE}"
        compared = {} if labels is None or labels.labels is None else orjson.loads(labels.labels)
        found = list(differences(orjson.loads(devices.devices), compared, rule))
        if not found:
            return AGREE
        more = len(found) - DIFFERENCES_SHOWN_MAX
        listed = "; ".join(found[:DIFFERENCES_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
        return f"Its labels differ from what the NodeFeatureRule derives from its PCI devices: {listed}. {MORE}"


def differences(devices: list[dict[str, str]], labels: Mapping[str, str], rule: Document) -> Iterator[str]:
    """Each label that is missing, unexpected or different, by the attributes of the node's PCI devices."""
    rules = [one for one in rule["spec"]["rules"] if _is_about_devices(one)]
    expected = expected_labels(Features({NFD_PCI_DEVICE: devices}), {"spec": {"rules": rules}})
    for label in sorted(expected.keys() | labels.keys()):
        right, found = expected.get(label), labels.get(label)
        if found is None:
            yield f"{label}={right} is missing"
        elif right is None:
            yield f"{label}={found} is unexpected"
        elif right != found:
            yield f"{label} is {found}, not {right}"


def _is_about_devices(rule: Document) -> bool:
    return {term["feature"] for term in rule.get("matchFeatures") or ()} == {NFD_PCI_DEVICE}


def _attributes(device: PciDevice) -> dict[str, str]:
    facts = {"vendor": device.pci_vendor, "device": device.pci_device, "class": device.pci_class}
    return {name: value for name, value in facts.items() if value is not None}


def _is_compared(label: str) -> bool:
    return label in (LABEL_PRESENT, LABEL_DEVICE_COUNT) or label.startswith(LABEL_DEVICE_PREFIX)


class CoverageChecks:
    """Announces the result of the check for a node whose inventory stays incomplete: once, and again if it changes."""

    def __init__(self, coverage: LabelCoverage, rule: Document, clock: Clock, after_s: float) -> None:
        self._coverage = coverage
        self._rule = rule
        self._clock = clock
        self._after = timedelta(seconds=after_s)
        self._announced: dict[str, tuple[Since, str]] = {}

    def take_occurrences(self) -> Iterator[Occurrence]:
        """Results that were not announced yet."""
        incomplete, now = self._coverage.incomplete, self._clock()
        self._announced = {node: one for node, one in self._announced.items() if incomplete.get(node) == one[0]}
        for node in self._coverage.overdue(now, self._after):
            began = incomplete.rows[node]
            note, before = self._coverage.result(node, self._rule), self._announced.get(node)
            if note and before != (began, note):
                self._announced[node] = (began, note)
                _, at, recorded_ns = began if before is None else self._coverage.changed.get(node) or began
                yield Occurrence(Key(Kind.NODE, node), EventReason.LABELS_CHECKED, note, note, True, at, recorded_ns)


def _observed(state: LabelCoverage, fact: Fact, data: NodeObserved) -> None:
    state.observe_labels(fact, data.labels)


def _gone(state: LabelCoverage, fact: Fact, _data: NodeGone) -> None:
    state.observe_labels(fact, None)


def _features_observed(state: LabelCoverage, fact: Fact, data: NodeFeaturesObserved) -> None:
    state.observe_devices(fact, data.devices)


def _features_gone(state: LabelCoverage, fact: Fact, _data: NodeFeaturesGone) -> None:
    state.observe_devices(fact, None)


def _prerequisite_changed(state: LabelCoverage, _fact: Fact, data: ModulePrerequisiteChanged) -> None:
    state.expect_features(expected=data.reason != InventoryReason.SURVEYED_BY_AGENTS)


HANDLERS: Handlers = {
    ModulePrerequisiteChanged: _prerequisite_changed,
    NodeObserved: _observed,
    NodeGone: _gone,
    NodeFeaturesObserved: _features_observed,
    NodeFeaturesGone: _features_gone,
}
