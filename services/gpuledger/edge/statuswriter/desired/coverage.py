"""Which labels about the GPUs of a node differ from those that the NodeFeatureRule derives from its PCI devices. Pure.

The inventory stays incomplete where a rule does not cover a card, so the difference belongs where people look: in the
message of InventoryComplete while that is False, and after a while in an Event. Only what the ledger has is compared,
the PCI devices in a NodeFeature and the node's labels; `gpuledger nfd coverage` compares all features in the cluster.
Where agents stand in for Node Feature Discovery there is nothing to compare.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.api.labels import LABEL_DEVICE_COUNT, LABEL_DEVICE_PREFIX, LABEL_PRESENT, NFD_PCI_DEVICE
from gpuledger.api.reasons import EventReason, InventoryReason
from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.inventory.feature_rule import Features, expected_labels
from gpuledger.edge.statuswriter.desired.since import Since
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.objects import Document, Key, Kind
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeFeaturesGone, NodeFeaturesObserved, NodeGone, NodeObserved, PciDevice
from gpuledger.runtime.clock import Clock

DIFFERENCES_SHOWN_MAX: Final = 6
"""How many labels a message names; an Event's note has room for a thousand characters."""

NO_FEATURES: Final = "No NodeFeature describes the node; check that the worker of Node Feature Discovery runs there."
AGREE: Final = "Its labels are those that the NodeFeatureRule derives from its PCI devices: the rule is not the cause."
MORE: Final = "`gpuledger nfd coverage` compares every label."


class _Labels(NamedTuple):
    """The latest labels of a node by event time."""

    at: datetime
    values: Mapping[str, str]


class _Devices(NamedTuple):
    """The latest PCI devices of a node by event time; None where it has no NodeFeature."""

    at: datetime
    listed: tuple[PciDevice, ...] | None


class LabelCoverage:
    """Labels and PCI devices of nodes, when they last changed, and since when inventories are incomplete."""

    def __init__(self) -> None:
        self.incomplete: dict[str, Since] = {}
        self.changed: dict[str, Since] = {}
        self._labels: dict[str, _Labels] = {}
        self._devices: dict[str, _Devices] = {}
        self._touched: dict[str, None] = {}
        self._expects_features = True

    def take_touched(self) -> dict[str, None]:
        """The nodes with incomplete inventories whose labels or devices changed since the last call."""
        touched, self._touched = self._touched, {}
        return {node: None for node in touched if node in self.incomplete}

    def note_incomplete(self, node: str, since: Since) -> None:
        """The node's inventory is incomplete; it counts from when it became so."""
        self.incomplete.setdefault(node, since)

    def note_complete(self, node: str) -> None:
        """The node's inventory is complete, or gone."""
        self.incomplete.pop(node, None)

    def observe_labels(self, node: str, since: Since, labels: Mapping[str, str]) -> None:
        """The labels about the node's GPUs."""
        before = self._labels.get(node)
        if not is_late(before and before.at, since.at):
            compared = {key: labels[key] for key in labels if _is_compared(key)}
            self._labels[node] = _Labels(since.at, compared)
            if before is None or before.values != compared:
                self._change(node, since)

    def observe_devices(self, node: str, since: Since, devices: tuple[PciDevice, ...] | None) -> None:
        """The PCI devices in the node's NodeFeature; None where it has none."""
        before = self._devices.get(node)
        if not is_late(before and before.at, since.at):
            self._devices[node] = _Devices(since.at, devices)
            if before is None or before.listed != devices:
                self._change(node, since)

    def _change(self, node: str, since: Since) -> None:
        self.changed[node] = since
        self._touched[node] = None

    def expect_features(self, expected: bool) -> None:
        """Whether Node Feature Discovery is to describe nodes, or agents stand in for it."""
        if expected != self._expects_features:
            self._expects_features = expected
            self._touched.update(dict.fromkeys(self.incomplete))

    def result(self, node: str, rule: Document) -> str:
        """What is wrong with the node's labels, in sentences; empty where nobody is to set any."""
        if not self._expects_features:
            return ""
        devices = self._devices.get(node)
        if devices is None or devices.listed is None:
            return f"{NO_FEATURES} {MORE}"
        labels = self._labels.get(node)
        found = list(differences(devices.listed, {} if labels is None else labels.values, rule))
        if not found:
            return AGREE
        more = len(found) - DIFFERENCES_SHOWN_MAX
        listed = "; ".join(found[:DIFFERENCES_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
        return f"Its labels differ from what the NodeFeatureRule derives from its PCI devices: {listed}. {MORE}"


def differences(devices: tuple[PciDevice, ...], labels: Mapping[str, str], rule: Document) -> Iterator[str]:
    """Each label that is missing, unexpected or different."""
    rules = [one for one in rule["spec"]["rules"] if _is_about_devices(one)]
    expected = expected_labels(Features({NFD_PCI_DEVICE: list(map(_attributes, devices))}), {"spec": {"rules": rules}})
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
        for node, since in list(incomplete.items()):
            if since.at + self._after > now:
                continue
            note, before = self._coverage.result(node, self._rule), self._announced.get(node)
            if note and before != (since, note):
                self._announced[node] = (since, note)
                at, recorded_ns = since if before is None else self._coverage.changed.get(node, since)
                yield Occurrence(Key(Kind.NODE, node), EventReason.LABELS_CHECKED, note, note, True, at, recorded_ns)


def _since(fact: Fact) -> Since:
    return Since(fact.event.time, fact.recorded_ns)


def _observed(state: LabelCoverage, fact: Fact, data: NodeObserved) -> None:
    state.observe_labels(fact.event.subject, _since(fact), data.labels)


def _gone(state: LabelCoverage, fact: Fact, _data: NodeGone) -> None:
    state.observe_labels(fact.event.subject, _since(fact), {})


def _features_observed(state: LabelCoverage, fact: Fact, data: NodeFeaturesObserved) -> None:
    state.observe_devices(fact.event.subject, _since(fact), data.devices)


def _features_gone(state: LabelCoverage, fact: Fact, _data: NodeFeaturesGone) -> None:
    state.observe_devices(fact.event.subject, _since(fact), None)


def _prerequisite_changed(state: LabelCoverage, _fact: Fact, data: ModulePrerequisiteChanged) -> None:
    state.expect_features(data.reason != InventoryReason.SURVEYED_BY_AGENTS)


HANDLERS: Handlers = {
    ModulePrerequisiteChanged: _prerequisite_changed,
    NodeObserved: _observed,
    NodeGone: _gone,
    NodeFeaturesObserved: _features_observed,
    NodeFeaturesGone: _features_gone,
}
