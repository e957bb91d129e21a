"""Why a node is set aside, hop by hop, and what came of each report that stands."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.events.device import DeviceHealthChanged, DeviceReportAccepted, DeviceReportRejected
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    LeavingPod,
    NodeDrainChanged,
    NodeDrainProgressed,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
    OwnedDrain,
)
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import QUARANTINE, QuarantineBreakerReset
from gpuledger.tools.explain.node_document import node_document
from gpuledger.tools.explain.node_events import Recorded
from support.health import card_report
from support.quarantine import FATAL_RULESET, OWNER, QuarantineLog, at, given_back, labelled, reported, rules

NODE = "n1"


def document(log: QuarantineLog, node: str = NODE) -> dict[str, Any]:
    """The explanation of a node, from the events that the command reads."""
    recorded = [
        Recorded(event, f"1/{place}", at(at_s))
        for place, (event, at_s) in enumerate(log.log, 1)
        if event.subject in (node, QUARANTINE)
    ]
    return node_document(node, "now", recorded)


def test_a_node_without_anything_says_so() -> None:
    found = document(QuarantineLog(NODE, document=rules()))
    assert (found["requests"], found["reports"], found["setAside"]) == ([], [], False)
    assert found["answer"] == "n1 is not set aside: nobody has requested it"


def refused_by_a_rule(log: QuarantineLog) -> None:
    log.record(NODE, reported("0", component="NIC"), 10)


def refused_by_a_label(log: QuarantineLog) -> None:
    log.record(NODE, labelled(f"uid-{NODE}", **{"example.com/managed": "false"}), 5)
    log.record(NODE, reported("0"), 10)


def too_old(log: QuarantineLog) -> None:
    log.runs = False
    log.record(NODE, reported("0"), 10)
    log.pass_time(1000)


def held_by_the_breaker(log: QuarantineLog) -> None:
    for node in ("n2", "n3", NODE):
        log.record(node, reported("0"), 10)


def given_back_by_hand(log: QuarantineLog) -> None:
    log.record(NODE, reported("0"), 10)
    log.record(NODE, given_back(), 20)


def not_assessed(log: QuarantineLog) -> None:
    log.runs = False
    log.record(NODE, reported("0"), 10)


def without_a_node(log: QuarantineLog) -> None:
    log.record(NODE, NodeUnlabelled(), 5)
    log.record(NODE, reported("0"), 10)
    log.pass_time(1000)


@pytest.mark.parametrize(
    ("story", "outcome", "words"),
    [
        (lambda log: log.record(NODE, reported("0"), 10), "Acted", f"led to the request of {OWNER}"),
        (
            lambda log: log.record(NODE, reported("0", strategy="store-only"), 10),
            "StoreOnly",
            "is store-only, and only",
        ),
        (lambda log: log.record(NODE, reported("0"), 10, imported=True), "Imported", "it is imported"),
        (lambda log: log.record(NODE, reported("0", quarantine={"skip": True}), 10), "Skipped", "skip the rules"),
        (
            lambda log: log.record(NODE, reported("0", component="NIC", quarantine={"force": True}), 10),
            "Acted",
            "led to the request of health/forced",
        ),
        (refused_by_a_rule, "NoMatch", "event.isFatal && event.componentClass == 'GPU' is false"),
        (refused_by_a_label, "NoMatch", "!('example.com/managed' in node.metadata.labels"),
        (too_old, "TooOld", "it was 990 s old when the service came to it, and 600 s is the most"),
        (held_by_the_breaker, "BreakerOpen", "n1 would have been 3 of 4 nodes"),
        (given_back_by_hand, "GivenBack", "which operators/eva released although it stands"),
        (not_assessed, "NotAssessed", "has not come to it"),
        (without_a_node, "TooOld", "old when the service came to it"),
    ],
)
def test_each_report_says_what_came_of_it(story: Any, outcome: str, words: str) -> None:
    log = QuarantineLog(NODE, "n2", "n3", "n4", document=rules(percentage=50))
    story(log)
    (found,) = document(log)["reports"]
    assert found["outcome"] == outcome
    assert words in found["detail"]
    assert document(log)["setAside"] is (outcome == "Acted")


def test_without_rules_nothing_is_acted_on() -> None:
    log = QuarantineLog(NODE)
    log.record(NODE, reported("0"), 10)
    (found,) = document(log)["reports"]
    assert found["outcome"] == "NoRules"
    assert "1 reports stand that it is unhealthy" in document(log)["answer"]


def test_rules_that_are_off_or_fail_are_named() -> None:
    off = {**FATAL_RULESET, "name": "off", "enabled": False}
    failing = {"name": "failing", "match": {"any": [{"expression": "event.errorCode[7] == '79'"}]}, "cordon": True}
    log = QuarantineLog(NODE, document=rules(off, failing))
    log.record(NODE, reported("0"), 10)
    (found,) = document(log)["reports"]
    assert [(one["ruleset"], one["matched"], one["enabled"]) for one in found["rulesets"]] == [
        ("failing", False, True),
        ("off", False, False),
    ]
    assert "event.errorCode[7] == '79' cannot be evaluated" in found["detail"]
    assert "'off' is disabled" in found["detail"]


def test_what_is_healthy_again_or_gone_does_not_stand() -> None:
    log = QuarantineLog(NODE, document=rules())
    log.record(NODE, reported("0"), 10)
    log.record(NODE, reported("0", healthy=True), 20)
    found = document(log)
    assert found["reports"] == []
    assert found["answer"].startswith(f"n1 is not set aside: {OWNER} gave it back at ")
    (request,) = found["requests"]
    assert [one["hop"] for one in request["hops"]] == ["reported", "assessed", "requested", "healthy", "released"]
    log.record(NODE, reported("1"), 30)
    log.record(NODE, NodeUnlabelled(), 40)
    assert document(log)["reports"] == []


def test_reports_stand_until_each_of_their_codes_is_cleared() -> None:
    log = QuarantineLog(NODE, document=rules())
    log.record(NODE, reported("0", codes=["79"]), 10)
    log.record(NODE, reported("0", codes=["94"]), 11)
    log.record(NODE, reported("0", codes=["79"], healthy=True), 20)
    assert [one["codes"] for one in document(log)["reports"]] == [["94"]]
    log.record(NODE, reported("0", codes=["94"], healthy=True), 30)
    assert document(log)["reports"] == []


def test_a_request_after_a_reset_names_it() -> None:
    log = QuarantineLog(NODE, "n2", document=rules(percentage=50))
    for node in ("n2", NODE):
        log.record(node, reported("0"), 10)
    log.record(QUARANTINE, QuarantineBreakerReset(), 20)
    (request,) = document(log)["requests"]
    assert [one["hop"] for one in request["hops"]] == ["breaker reset", "assessed", "requested"]
    assert document(log)["reports"][0]["outcome"] == "Acted"


class Story:
    """A chain of events, each so many milliseconds after the one before."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []

    def add(self, data: Payload, source: str, after_ms: int, cause: Decoded | None = None) -> Decoded:
        place = len(self.recorded) + 1
        time = at(0) if not self.recorded else self.recorded[-1].recorded_at
        time += timedelta(milliseconds=after_ms)
        event = Event(f"e{place}", source, data.TYPE, NODE, time, data, "e", place, cause and cause.id)
        self.recorded.append(Recorded(event, f"1/{place}", time))
        return event

    def set_aside(self, owner: str, source: str, cause: Decoded | None = None, **fields: Any) -> Decoded:
        """A request, the intent and the cordon; returns the request."""
        data = NodeMaintenanceRequested.model_validate({"owner": owner, "reason": "Unhealthy", **fields})
        request = self.add(data, source, 5, cause)
        isolation = Isolation(unschedulable=True)
        intent = self.add(NodeIsolationChanged(uid="u", isolation=isolation, owners=(owner,)), MAINTENANCE, 10, request)
        self.add(NodeIsolationApplied(intent=intent.id, written=True), WRITER, 20, intent)
        return request


MAINTENANCE, WRITER = "/services/maintenance", "/services/nodewriter"
Hops = Iterable[dict[str, Any]]


def hops(found: Hops) -> list[tuple[str, float]]:
    """Names and latencies."""
    return [(one["hop"], one["latencyMs"]) for one in found]


def test_each_hop_has_its_latency_from_report_to_uncordon() -> None:
    story = Story()
    report = story.add(card_report("a", "79", message="fell off the bus"), "/nodes/n1/agent", 0)
    request = story.set_aside("health/fatal", "/services/health", report, rules="f" * 64)
    found = node_document(NODE, "now", story.recorded)
    (one,) = found["requests"]
    assert hops(one["hops"]) == [("reported", 0), ("requested", 5), ("decided", 10), ("cordoned", 20)]
    assert (one["latencyMs"], one["state"], one["version"], one["ruleset"]) == (35, "cordoned", "f" * 64, "fatal")
    assert found["answer"].endswith("cordoned, in force 35 ms after its cause was recorded")

    healthy = story.add(card_report("a", healthy=True), "/nodes/n1/agent", 1000)
    release = story.add(NodeMaintenanceReleased(owner="health/fatal", reason="Healthy"), "/services/health", 7, healthy)
    intent = story.add(NodeIsolationChanged(uid="u", isolation=Isolation()), MAINTENANCE, 8, release)
    story.add(NodeIsolationApplied(intent=intent.id, written=True), WRITER, 9, intent)
    (ended,) = node_document(NODE, "now", story.recorded)["requests"]
    assert hops(ended["hops"])[4:] == [
        ("healthy", 1000),
        ("released", 7),
        ("decided to give back", 8),
        ("given back", 9),
    ]
    assert (ended["state"], ended["endedBy"]) == ("given back", "services/health")
    assert request.id == ended["hops"][1]["event"]


def test_a_person_who_drains_is_named_with_what_blocks_the_drain() -> None:
    story = Story()
    request = story.set_aside("operators/eva", "/operators/eva", drain={"mode": "Immediate"})
    drains = (OwnedDrain(owner="operators/eva", since=request.time, drain=Drain(mode="Immediate")),)
    intent = story.add(NodeDrainChanged(uid="u", drains=drains), MAINTENANCE, 1, request)
    pod = LeavingPod(namespace="ml", pod="trainer-0", state="the PodDisruptionBudget keep-one allows no disruption")
    for left in (3, 2, 1):
        story.add(NodeDrainProgressed(intent=intent.id, left=left, pods=(pod,)), WRITER, 100, intent)
    found = node_document(NODE, "now", story.recorded)
    (one,) = found["requests"]
    assert (one["owner"], one["by"], one["state"], one["ruleset"]) == (
        "operators/eva",
        "operators/eva",
        "draining",
        None,
    )
    assert [one["detail"] for one in one["hops"] if one["hop"] == "draining"] == [
        f"{left} pods left: ml/trainer-0 {pod.state}" for left in (3, 1)
    ]
    assert found["notes"] == [f"The drain waits: 1 pods left: ml/trainer-0 {pod.state}."]


def test_a_second_owner_joins_what_stands() -> None:
    story = Story()
    story.set_aside("operators/ada", "/operators/ada")
    story.add(NodeMaintenanceRequested(owner="operators/eva", reason="Fan"), "/operators/eva", 3)
    found = node_document(NODE, "now", story.recorded)
    first, second = found["requests"]
    assert (first["state"], second["state"]) == ("cordoned", "cordoned")
    assert [one["hop"] for one in second["joined"]] == ["decided", "cordoned"]
    assert "in force already, by an earlier decision at 1/2" in found["notes"][0]


def test_what_another_service_records_of_the_same_cause_is_a_hop() -> None:
    story = Story()
    request = story.set_aside("operators/ada", "/operators/ada")
    story.add(NodeUnlabelled(), "/services/another", 4, request)
    (one,) = node_document(NODE, "now", story.recorded)["requests"]
    assert hops(one["hops"])[-1] == ("unlabelled", 4)


def test_an_agents_report_on_a_card_has_the_hop_of_its_acceptance() -> None:
    story, agent, inventory = Story(), "/nodes/n1/agent", "/services/inventory"
    data = DeviceHealthChanged(healthy=False, kind="XID 79")
    report, other = story.add(data, agent, 0), story.add(data, agent, 1)
    judged: dict[str, Any] = {"node": NODE, "type": data.TYPE, "epoch": "e", "number": 1}
    rejected = DeviceReportRejected(**judged, report=other.id, located_on="n2")
    story.add(rejected, inventory, 2, other)
    standing = node_document(NODE, "now", story.recorded)["reports"]
    assert [one["event"] for one in standing] == [report.id], "one that is rejected does not stand"
    story.add(DeviceReportAccepted(**judged, report=report.id, data=data.model_dump()), inventory, 3, report)
    story.set_aside("health/fatal", "/services/health", report)
    found = node_document(NODE, "now", story.recorded)
    assert hops(found["requests"][0]["hops"])[:3] == [("reported", 0), ("accepted", 6), ("requested", 5)]
    assert [one["event"] for one in found["reports"]] == [report.id]
    healthy = story.add(DeviceHealthChanged(healthy=True), agent, 4)
    verdict = DeviceReportAccepted(**judged, report=healthy.id, data={"healthy": True})
    story.add(verdict, inventory, 3, healthy)
    story.add(NodeMaintenanceReleased(owner="health/fatal", reason="Healthy"), "/services/health", 2, healthy)
    (ended,) = node_document(NODE, "now", story.recorded)["requests"]
    assert hops(ended["hops"])[-3:] == [("healthy", 4), ("accepted", 3), ("released", 2)]


def test_a_report_that_overrides_the_drain_is_explained_by_the_request_of_its_own_owner() -> None:
    story, owner = Story(), f"health/{FATAL_RULESET['name']} (drain forced)"
    data = rules(FATAL_RULESET)
    story.add(data, "/operators/eva", 0)
    story.add(labelled(), "/watchers/nodes", 1)
    report = story.add(reported("0", drain={"force": True}), "/nodes/n1/agent", 1)
    story.set_aside(owner, "/services/health", report, rules=data.digest)
    (found,) = node_document(NODE, "now", story.recorded)["reports"]
    assert (found["outcome"], found["event"]) == ("Acted", report.id)
