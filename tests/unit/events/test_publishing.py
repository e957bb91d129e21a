"""Who may publish what: the registry's rules are those of the code that publishes, and every fold keeps them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed
from gpuledger.events.envelope import Event
from gpuledger.events.errors import SubjectError
from gpuledger.events.node import NodeEventsDropped
from gpuledger.events.payload import Payload
from gpuledger.events.publisher import publisher_of
from gpuledger.events.publishing import (
    RULE_VERSIONS,
    Authority,
    DropClass,
    Rule,
    SourceKind,
    is_agent_of,
    source_kind,
)
from gpuledger.events.registry import Registry
from gpuledger.events.subjects import origin_of
from gpuledger.projection.definition import Decisions, Projection, RefusedEvent
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from support.events import START, message
from support.paths import ROOT

MODELS = {f"{model.AGGREGATE}.{model.EVENT}": model for model in registry.models()}
HEARD = [name for name in MODELS if name not in ("device.report-accepted", "history.shortened")]
"""No fold handles a report that was accepted; it handles the report in it. A shortened history is a rule to all."""

OURS = {
    SourceKind.SOURCES,
    SourceKind.INVENTORY,
    SourceKind.BOOTSTRAP,
    SourceKind.POOLS,
    SourceKind.SEALS,
    SourceKind.ADMISSION,
    SourceKind.HEALTH,
    SourceKind.MAINTENANCE,
    SourceKind.NODEWRITER,
    SourceKind.REMEDIATION,
    SourceKind.REMEDIATOR,
    SourceKind.PREFLIGHT,
    SourceKind.SHARING,
    SourceKind.EXTENDER,
}
SOURCES = {
    SourceKind.AGENTS: "/nodes/n1/agent",
    SourceKind.IMPORTERS: "/import/titan",
    SourceKind.WATCHERS: "/watchers/nodes",
    SourceKind.OPERATORS: "/operators/alice",
    SourceKind.GATEWAYS: "/gateways/health",
    **{kind: f"/services/{kind}" for kind in sorted(OURS)},
}
SUBJECTS = {
    "node": "n1",
    "allocation": "n1/team/pod/container",
    "rule": Rule.PUBLISHERS.value,
}
ELSEWHERE = {"node": "n2", "allocation": "n2/team/pod/container"}

PUBLISHING_CODE = {
    "services/gpuledger/agent": {SourceKind.AGENTS},
    "services/gpuledger/tools/simulation": {SourceKind.AGENTS, SourceKind.IMPORTERS},
    "services/gpuledger/tools/importers": {SourceKind.IMPORTERS},
    "services/gpuledger/edge/admission": {SourceKind.ADMISSION},
    "services/gpuledger/edge/watchers": {SourceKind.WATCHERS},
    "services/gpuledger/edge/nodewriter": {SourceKind.NODEWRITER},
    "services/gpuledger/edge/remediator": {SourceKind.REMEDIATOR},
    "services/gpuledger/edge/preflight": {SourceKind.PREFLIGHT},
    "services/gpuledger/deciders/sources": {SourceKind.SOURCES},
    "services/gpuledger/deciders/inventory": {SourceKind.INVENTORY},
    "services/gpuledger/deciders/bootstrap": {SourceKind.BOOTSTRAP},
    "services/gpuledger/deciders/pools": {SourceKind.POOLS},
    "services/gpuledger/deciders/seals": {SourceKind.SEALS},
    "services/gpuledger/deciders/health": {SourceKind.HEALTH},
    "services/gpuledger/deciders/maintenance": {SourceKind.MAINTENANCE},
    "services/gpuledger/deciders/remediation": {SourceKind.REMEDIATION},
    "services/gpuledger/deciders/sharing": {SourceKind.SHARING},
    "services/gpuledger/tools/log_restore.py": {SourceKind.OPERATORS},
    "services/gpuledger/tools/quarantine": {SourceKind.OPERATORS},
    "services/gpuledger/tools/remediation": {SourceKind.OPERATORS},
    "services/gpuledger/tools/history_retention.py": {SourceKind.OPERATORS},
}
NOT_PUBLISHED = {"PoolDefined", "PoolGone", "SettingsChanged", "NodeDevicesAllocated"}
"""Payloads that code also makes without publishing them, such as settings with their defaults."""


class Hearing(Projection):
    """Handles one event type, and notes what becomes of its events."""

    name = "hearing"
    version = 1
    specs = ()

    def __init__(self, model: type[Payload]) -> None:
        self.outcomes: list[str] = []
        self.handlers = {model: lambda _state, _fact, _data: self.outcomes.append("folded")}  # type: ignore[misc]

    def new_state(self) -> Any:
        return None

    def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
        self.outcomes.append("rejected")
        return ()


def outcome(name: str, source: str, subject: str, *, enforced: bool) -> str:
    """What becomes of an event of this type, whose payload holds nothing here, in any fold that handles it."""
    catalogue, real = Registry(), MODELS[name]
    model: type[Payload] = catalogue.event(real.AGGREGATE, real.EVENT, real.PUBLISH_RULE)(type("Empty", (Payload,), {}))
    hearing = Hearing(model)
    recorded = Event("id", source, model.TYPE, subject, START, model(), "e1", 1)
    rules = EnforcedRules([EnforcedRule(rule, RULE_VERSIONS[rule], 1) for rule in Rule] if enforced else [])
    try:
        Fold(hearing, 1, enforced=rules, catalogue=catalogue).apply(message(recorded, 1))
    except BadEventError:
        return "stopped"
    return hearing.outcomes[0] if hearing.outcomes else "ignored"


@pytest.mark.parametrize("name", MODELS)
def test_every_type_has_publishers_authority_and_a_drop_class(name: str) -> None:
    rule = MODELS[name].PUBLISH_RULE
    assert rule.publishers
    assert len(set(rule.publishers)) == len(rule.publishers)
    assert isinstance(rule.drop_class, DropClass)
    if rule.authority in (Authority.SERVICE, Authority.OWN_OBJECT):
        assert len(rule.publishers) == 1
    if SourceKind.WATCHERS in rule.publishers:
        assert rule.authority in (Authority.OWN_OBJECT, Authority.OWN_SOURCE)
    assert rule.authority is not Authority.OWN_NODE or set(rule.publishers) <= {SourceKind.AGENTS, SourceKind.GATEWAYS}


@pytest.mark.parametrize("name", HEARD)
def test_every_fold_keeps_to_the_publishers(name: str) -> None:
    rule = MODELS[name].PUBLISH_RULE
    subject = SUBJECTS.get(MODELS[name].AGGREGATE, "x")
    for kind, source in SOURCES.items():
        if kind is SourceKind.AGENTS and rule.judged_since:
            assert outcome(name, source, subject, enforced=True) == "ignored", "until it is accepted"
        elif kind in rule.publishers:
            assert outcome(name, source, subject, enforced=True) == "folded", kind
        elif origin_of(source).is_edge:
            assert outcome(name, source, subject, enforced=True) == "rejected", kind
        else:
            before = outcome(name, source, subject, enforced=False)
            assert outcome(name, source, subject, enforced=True) == before, kind


@pytest.mark.parametrize("name", HEARD)
def test_before_the_rule_folds_did_what_earlier_builds_do(name: str) -> None:
    rule = MODELS[name].PUBLISH_RULE
    subject = SUBJECTS.get(MODELS[name].AGGREGATE, "x")
    for kind, source in SOURCES.items():
        refused = "rejected" if origin_of(source).is_edge else "stopped"
        of_agents = "folded" if SourceKind.IMPORTERS in rule.publishers else "ignored"
        others = {
            Authority.EDGE: "folded",
            Authority.OWN_NODE: "ignored",
            Authority.OWN_DEVICE: of_agents,
        }.get(rule.authority, refused)
        expected = "folded" if kind in rule.publishers else others
        assert outcome(name, source, subject, enforced=False) == expected, kind


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].AGGREGATE in ELSEWHERE])
def test_an_agent_reports_on_its_own_node_only(name: str) -> None:
    rule, subject = MODELS[name].PUBLISH_RULE, ELSEWHERE[MODELS[name].AGGREGATE]
    if rule.authority is Authority.OWN_NODE:
        assert outcome(name, SOURCES[SourceKind.AGENTS], subject, enforced=True) == "rejected"
        assert outcome(name, SOURCES[SourceKind.AGENTS], subject, enforced=False) == "ignored"


@pytest.mark.parametrize(
    ("source", "name", "subject", "data", "may"),
    [
        ("/nodes/n1/agent", "node.devices-observed", "n1", {}, True),
        ("/nodes/n1/agent", "node.devices-observed", "n10", {}, False),
        ("/nodes/n1/agent", "node.decommissioned", "n1", {}, False),
        ("/nodes/n1/agent", "node.registered", "n1", {}, False),
        ("/nodes/n1/agent", "node.gone", "n1", {}, False),
        ("/nodes/n1/agent", "workload.submitted", "w", {}, False),
        ("/nodes/n1/agent", "workload.scheduled", "w", {"node": "n1"}, False),
        ("/nodes/n1/agent", "workload.ended", "w", {}, False),
        ("/nodes/n1/agent", "device.inserted", "d", {"slot": "n1/0"}, False),
        ("/nodes/n1/agent", "device.withdrawn", "d", {}, False),
        ("/nodes/n1/agent", "slot.declared", "n1/0", {"node": "n1"}, False),
        ("/nodes/n1/agent", "source.completed", "/nodes/n1/agent", {}, False),
        ("/nodes/n1/agent", "rule.enforced", "publishers", {}, False),
        ("/nodes/n1/agent", "device.failed", "GPU-1", {}, True),
        ("/nodes/n1/agent", "device.errors-observed", "GPU-1", {}, True),
        ("/nodes/n1/agent", "allocation.observed", "n1/team/pod/c", {"node": "n1"}, True),
        ("/nodes/n1/agent", "allocation.observed", "n1/team/pod/c", {"node": "n2"}, False),
        ("/nodes/n1/agent", "allocation.observed", "n1/team/pod/c", {"node": ["n1"]}, False),
        ("/nodes/n1/agent", "allocation.observed", "n2/team/pod/c", {"node": "n1"}, False),
        ("/nodes/n1/agent", "allocation.ended", "n1/team/pod/c", {}, True),
        ("/nodes/n1/agent", "allocation.ended", "n1", {}, False),
        ("/import/titan", "node.decommissioned", "n1", {}, True),
        ("/import/titan", "workload.scheduled", "w", {"node": "n1"}, True),
        ("/import/titan", "device.failed", "d", {}, True),
        ("/import/titan", "node.devices-observed", "n1", {}, False),
        ("/import/titan", "allocation.observed", "n1/team/pod/c", {"node": "n1"}, False),
        ("/gateways/health", "node.health-reported", "n1", {}, True),
        ("/gateways/health", "device.failed", "d", {}, False),
        ("/gateways/health", "node.decommissioned", "n1", {}, False),
        ("/watchers/nodes", "node.observed", "n1", {}, True),
        ("/watchers/nodes", "node.devices-observed", "n1", {}, False),
        ("/services/sources", "rule.enforced", "publishers", {}, True),
        ("/services/pools", "rule.enforced", "publishers", {}, False),
    ],
)
def test_who_may_publish_what_follows_from_the_event_alone(
    source: str, name: str, subject: str, data: dict[str, Any], may: bool
) -> None:
    model = MODELS[name]
    assert (publisher_of(source).violation(model.PUBLISH_RULE, model.AGGREGATE, subject, data) is None) == may


@pytest.mark.parametrize("place", PUBLISHING_CODE)
def test_the_code_publishes_only_what_the_registry_allows(place: str) -> None:
    kinds, by_class = PUBLISHING_CODE[place], {model.__name__: model for model in MODELS.values()}
    root = ROOT / place
    modules = [root] if root.is_file() else root.rglob("*.py")
    made = {name for path in modules for name in payloads_made(path)} & by_class.keys()
    assert made, "it publishes something"
    wrong = {name for name in made - NOT_PUBLISHED if not kinds & {*by_class[name].PUBLISH_RULE.publishers}}
    assert wrong == set()


def payloads_made(path: Path) -> Iterator[str]:
    """The names of the classes whose instances a module makes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            made = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if isinstance(made, ast.Name):
                yield made.id


def test_a_failure_of_hardware_outlasts_an_applications_error() -> None:
    classes = [model.PUBLISH_RULE.drop_class for model in (DeviceErrorsObserved, DeviceFailed, NodeEventsDropped)]
    assert classes == sorted(set(classes))


@pytest.mark.parametrize(("kind", "source"), SOURCES.items())
def test_a_source_has_its_kind(kind: SourceKind, source: str) -> None:
    assert source_kind(source) is kind


def test_a_source_of_no_shape_has_no_kind_and_an_unknown_service_publishes_nothing() -> None:
    assert source_kind("/services/agents") is None
    with pytest.raises(SubjectError):
        source_kind("/test")


def test_whose_agent_a_source_is() -> None:
    assert is_agent_of("/nodes/a.b/agent", "a.b")
    assert not is_agent_of("/nodes/a/agent", "a.b")
    assert not is_agent_of("/import/a", "a")
    assert publisher_of("/nodes/a/agent").is_about_own_node("device", "GPU-1", {})
    assert not publisher_of("/import/a").is_about_own_node("device", "GPU-1", {})
    assert not publisher_of("/nodes/a/agent").is_about_own_node("allocation", "ab/team/pod/container", {})
