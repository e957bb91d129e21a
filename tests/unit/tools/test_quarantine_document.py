"""What a document of quarantine rules may say, and how each mistake in one is named."""

from textwrap import indent
from typing import Any

import pytest

from gpuledger.domain.quarantine.expressions import COMPILED_MAX, compiled
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import Drain, NamespaceMode
from gpuledger.events.quarantine import EXPRESSION_LENGTH_MAX, QUARANTINE
from gpuledger.tools.document_forms import DOCUMENT_BYTES_MAX
from gpuledger.tools.errors import RequestError
from gpuledger.tools.quarantine.document import parse
from gpuledger.tools.quarantine.example import example_rules
from support.paths import ROOT
from support.quarantine import QuarantineLog, labelled, reported

EXAMPLE = ROOT / "examples" / "quarantine-rules.yaml"
HEAD = """
kind: QuarantineRules
ruleSets:
  - name: a
    match:
      all:
        - expression: "true"
    cordon: {shouldCordon: true}
"""

XID_79: dict[str, Any] = {
    "monitor": "gpu-health-monitor",
    "component": "GPU",
    "check": "GpuXidError",
    "fatal": True,
    "healthy": False,
    "message": "GPU has fallen off the bus (XID 79). Node requires reboot.",
    "action": "RESTART_VM",
    "codes": ["DCGM_FR_GPU_FALLEN_OFF_BUS"],
    "entities": [
        {"type": "GPU", "value": "0"},
        {"type": "PCI", "value": "0002:00:00.0"},
        {"type": "GPU_UUID", "value": "GPU-3d7408b2-d525-643f-5bfc-45a761045e14"},
    ],
    "metadata": {
        "node.kubernetes.io/instance-type": "Standard_ND96amsr_A100_v4",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "topology.kubernetes.io/region": "southcentralus",
        "topology.kubernetes.io/zone": "0",
    },
}
"""An event that NVSentinel's fault-quarantine logged on a node of 8 A100 (its pull request 953)."""

NODE = "10.0.15.233"


def with_expression(text: str, kind: str = "") -> bytes:
    line = f"- expression: {text!r}" if not kind else f"- kind: {kind}\n          expression: {text!r}"
    return HEAD.replace('- expression: "true"', line).encode()


def problem(text: bytes | str) -> str:
    with pytest.raises(RequestError) as refused:
        parse(text.encode() if isinstance(text, str) else text, "rules.yaml")
    return refused.value.message


def test_the_example_sets_a_node_with_xid_79_aside_by_the_ruleset_of_gpus() -> None:
    log = QuarantineLog(NODE, document=parse(EXAMPLE.read_bytes(), EXAMPLE.name).model_copy(update={}))
    for other in range(3):
        log.record(f"n{other}", log.log[0][0].data, 0)
    log.record(NODE, reported(**XID_79), 10)
    (request,) = log.requests()
    assert (request.owner, request.cordon, request.taints) == ("health/GPU fatal error ruleset", True, ())
    counts = {name: (row.matched, row.failed) for name, row in log.state.count.rows.items()}
    assert counts == {
        "GPU fatal error ruleset": (1, 0),
        "NVSwitch fatal error ruleset": (0, 0),
        "CSP health monitor fatal error ruleset": (0, 0),
        "Preflight check fatal error ruleset": (0, 0),
        "GPU fatal error drain": (0, 0),
    }
    assert log.record(NODE, reported("0", healthy=True), 20) == [], "other entities of it stand"
    assert len(log.record(NODE, reported(**{**XID_79, "fatal": False, "healthy": True}), 30)) == 1


@pytest.mark.parametrize("label", ["nvsentinel.dgxc.nvidia.com/managed", "k8saas.nvidia.com/ManagedByNVSentinel"])
@pytest.mark.parametrize(("value", "requests"), [("false", 0), ("true", 1)])
def test_the_example_leaves_nodes_alone_that_nvsentinel_does_not_manage(label: str, value: str, requests: int) -> None:
    log = QuarantineLog("n2", "n3", document=parse(EXAMPLE.read_bytes(), EXAMPLE.name))
    log.record(NODE, labelled(**{label: value}), 1)
    log.record(NODE, reported(**XID_79), 10)
    assert len(log.requests()) == requests
    assert all(row.failed == 0 for row in log.state.count.rows.values())


@pytest.mark.parametrize("component", ["NVSwitch", "NVSWITCH"])
def test_the_example_knows_both_spellings_of_switches(component: str) -> None:
    log = QuarantineLog(NODE, "n2", "n3", document=parse(EXAMPLE.read_bytes(), EXAMPLE.name))
    log.record(NODE, reported("0", component=component), 10)
    assert [one.owner for one in log.requests()] == ["health/NVSwitch fatal error ruleset"]


def preflight(pod: int, uuid: str, **fields: Any) -> NodeHealthReported:
    """A result that the check of a tenant's pod reports about a card."""
    entities, reporter = [{"type": "GPU_UUID", "value": uuid}], f"team-a/train-{pod}"
    base: dict[str, Any] = {"monitor": "gpuledger-preflight", "check": "preflight-dcgm-diag", "codes": ["DCGM_FR_X"]}
    return reported(**base | {"reporter": reporter, "entities": entities, "devices": [uuid]} | fields)


@pytest.mark.parametrize(("component", "name"), [("GPU", "GPU"), ("NIC", "Preflight check")])
def test_a_failed_preflight_check_sets_its_node_aside_until_it_passes_for_that_card(component: str, name: str) -> None:
    log = QuarantineLog(NODE, "n2", "n3", document=parse(EXAMPLE.read_bytes(), EXAMPLE.name))
    fields: dict[str, Any] = {"component": component}
    assert log.record(NODE, preflight(0, "GPU-a", strategy="store-only", **fields), 10) == [], "it is only stored"
    log.record(NODE, preflight(0, "GPU-a", **fields), 20)
    assert [one.owner for one in log.requests()] == [f"health/{name} fatal error ruleset"]
    passed: dict[str, Any] = fields | {"healthy": True, "codes": []}
    assert log.record(NODE, preflight(1, "GPU-b", **passed), 30) == [], "the other card of it passed"
    neutral = {"healthy": True, "codes": ["SKIPPED"], "entities": [], "devices": [], "strategy": "store-only"}
    assert log.record(NODE, preflight(1, "GPU-a", **fields | neutral), 40) == [], "it says nothing of the card"
    assert log.set_aside() == {NODE}
    assert len(log.record(NODE, preflight(1, "GPU-a", **passed), 50)) == 1, "another pod's check passed on the card"
    assert log.set_aside() == set()


def test_a_document_has_a_version_that_follows_from_what_it_says() -> None:
    one, other = parse(HEAD.encode(), "rules.yaml"), parse(HEAD.replace("name: a", "name: b").encode(), "rules.yaml")
    assert one.digest == parse(f"# a comment\n{HEAD}".encode(), "other.yaml").digest
    assert one.digest != other.digest
    assert (one.max_event_age_s, one.breaker.percentage, one.breaker.window_s) == (600, 50, 300)


def test_taints_and_labels_are_taken_over() -> None:
    text = f"{HEAD}    taint: {{key: gpu/broken, effect: NoSchedule}}\n    labels: {{state: broken}}\n"
    (ruleset,) = parse(text.encode(), "rules.yaml").rulesets
    assert [(one.key, one.value, one.effect) for one in ruleset.taints] == [("gpu/broken", "", "NoSchedule")]
    assert ruleset.labels == {"state": "broken"}


def test_a_mapping_may_take_over_another_one_and_a_text_be_an_equals_sign() -> None:
    text = f"{HEAD}    taints:\n      - &one {{key: a, effect: NoSchedule}}\n      - {{<<: *one, effect: NoExecute}}\n"
    (ruleset,) = parse(text.encode(), "rules.yaml").rulesets
    assert [(one.key, one.effect) for one in ruleset.taints] == [("a", "NoSchedule"), ("a", "NoExecute")]
    assert "ruleSets[0] '='" in problem(HEAD.replace("name: a", "name: =").replace('"true"', "+"))


def test_a_drain_is_taken_over_with_its_modes() -> None:
    drain = "{mode: DeleteAfterTimeout, timeout: 90m, namespaces: [{name: team-*, mode: Immediate}]}"
    text = HEAD.replace("cordon: {shouldCordon: true}", f"drain: {drain}")
    (ruleset,) = parse(text.encode(), "rules.yaml").rulesets
    assert (ruleset.cordon, ruleset.drain) == (
        False,
        Drain(
            mode="DeleteAfterTimeout",
            timeout_s=5400,
            namespaces=(NamespaceMode(namespaces="team-*", mode="Immediate"),),
        ),
    )


def test_a_drain_is_of_the_node_unless_it_is_of_the_device() -> None:
    for given, scope in (("{}", "node"), ("{scope: node}", "node"), ("{scope: device}", "device")):
        text = f"{HEAD}    drain: {given}"
        assert parse(text.encode(), "rules.yaml").rulesets[0].drain_scope == scope
    assert "ruleSets[0].drain.scope of 'a': Input should be 'node' or 'device'" in problem(
        f"{HEAD}    drain: {{scope: all}}"
    )


def test_a_drain_that_is_left_out_leaves_the_version_as_it_was() -> None:
    assert parse(HEAD.encode(), "rules.yaml").digest.startswith("ddc8b58f1b02")


@pytest.mark.parametrize(
    "text",
    [
        "event.errorCode == null || !event.errorCode.exists(e, e == 'X')",
        "has(event.metadata.serial) && event.metadata.serial.startsWith('16')",
        "event.metadata['nvidia.com/gpu.product'] == 'H100'",
        "'a' in node.metadata.labels ? node.metadata.labels['a'] != 'x' : true",
        "event.generatedTimestamp.seconds > 0 && event.recommendedAction in [15, 24]",
        "event.entitiesImpacted.all(e, e.entityType != 'GPU' || e.entityValue.matches('^[0-7]$'))",
        "(event.isFatal || (event.quarantineOverrides.force)) && !(node.metadata.name == 'n1')",
    ],
)
def test_expressions_of_the_language_are_taken(text: str) -> None:
    assert parse(with_expression(text), "rules.yaml").rulesets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("event.isFatal &&", "it does not compile"),
        ("event.isFatal && event.colour == 'red'", "event has no field colour; it has agent, "),
        ("node.metadata.annotations['a'] == 'b'", "node.metadata has no field annotations; it has labels, name"),
        ("nodes.metadata.name == 'a'", "there is no variable nodes here, but event, node"),
        ("event.agent.upper() == 'A'", "there is no function upper"),
        ("event.agent", "it gives '0', neither true nor false"),
        ("event.agent == 'x' && event.message", "'event . message': it gives '0', neither true nor false"),
        ("!(event.isFatal || 1)", "'1': it gives 1, neither true nor false"),
        ("event.agent > 5", "No such overload"),
        ("event.message.matches('(')", "not a valid regex"),
        ("event.errorCode.all(a, event.errorCode.all(b, event.errorCode.all(c, true)))", "it has 3 macros"),
        ("size(event.checkName)", "neither true nor false"),
    ],
)
def test_an_expression_that_is_wrong_is_refused_with_its_place(text: str, expected: str) -> None:
    found = problem(with_expression(text))
    assert found.startswith("rules.yaml: ruleSets[0] 'a': match.all[0].expression: ")
    assert expected in found


def test_a_kind_says_what_an_expression_may_be_about() -> None:
    assert "there is no variable node here, but event" in problem(
        with_expression("node.metadata.name == 'a'", "HealthEvent")
    )
    assert "there is no variable event here, but node" in problem(with_expression("event.isFatal", "Node"))
    of_another = problem(with_expression("maxPercentageOfNodesToCordon <= 100.0", "MaxPercentageOfNodesToCordon"))
    assert "ruleSets[0].match.all[0].kind of 'a': " in of_another
    assert "circuitBreaker.percentage" in of_another


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: QuarantineRules\nruleSets: [", "is no YAML: "),
        ("- a", "the document: it is a mapping."),
        ("", "the document: it is a mapping."),
        ("kind: QuarantineRules\nruleSets: [a]", "ruleSets[0]: it is a mapping."),
        ("kind: Other", "kind: Input should be 'QuarantineRules'"),
        (HEAD.replace("name: a", "name: forced"), "choose another one"),
        (HEAD.replace("name: a", "name: a\n    name: b"), "the key 'name' is there twice in line 5"),
        (HEAD + indent(HEAD.partition("ruleSets:\n")[2], ""), "ruleSets[1] 'a': another ruleset has this name"),
        (HEAD.replace("name: a", "name: a\n    colour: red"), "ruleSets[0].colour of 'a': Extra inputs"),
        (HEAD.replace("{shouldCordon: true}", "{shouldCordon: false}"), "ruleSets[0] 'a': it does nothing"),
        (HEAD.replace('- expression: "true"', "[]"), "everything would match"),
        (
            HEAD.replace("true}", "yes please}"),
            "ruleSets[0].cordon.shouldCordon of 'a': Input should be a valid boolean",
        ),
        (f"{HEAD}maxEventAge: soon", "maxEventAge: 'soon' is no duration such as 10m"),
        (f"{HEAD}maxEventAge: 48h", "max_event_age_s: Input should be less than or equal to 86400"),
        (f"{HEAD}circuitBreaker: {{percentage: 0}}", "breaker.percentage: Input should be greater than or equal to 1"),
        (f"{HEAD}    taint: {{key: a b, effect: NoSchedule}}", "the key 'a b' of the taint is not valid"),
        (f"{HEAD}    taint: {{key: a, effect: Never}}", "ruleSets[0].taints[0].effect of 'a': Input should be"),
        (f"{HEAD}    drain: {{mode: Soon}}", "ruleSets[0].drain.mode of 'a': Input should be 'Immediate'"),
        (f"{HEAD}    drain: {{timeout: 8d}}", "ruleSets[0].drain.timeout of 'a': '8d' is no duration such as 10m"),
        (f"{HEAD}    drain: {{timeout: 200h}}", "ruleSets[0].drain.timeout_s of 'a': Input should be less than or"),
        (f"{HEAD}    drain: {{namespaces: [{{name: '', mode: Immediate}}]}}", "ruleSets[0].drain.namespaces[0]"),
        (f"{HEAD}    drain: {{scope: node, force: true}}", "ruleSets[0].drain.force of 'a': Extra inputs"),
        (f"{HEAD}    labels: {{a: b c}}", "the value 'b c' of the label is not valid"),
        (HEAD.replace("name: a", "priority: -1\n    name: a"), "ruleSets[0].priority of 'a': Input should be greater"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_the_place(text: str, expected: str) -> None:
    assert expected in problem(text)


def test_documents_and_expressions_are_bounded() -> None:
    assert "bytes, and a document has at most" in problem(b"#" * (DOCUMENT_BYTES_MAX + 1))
    long = with_expression(f"event.agent == '{'x' * EXPRESSION_LENGTH_MAX}'")
    assert "String should have at most" in problem(long)
    for number in range(COMPILED_MAX + 10):
        compiled(f"{number} > 0")
    assert compiled.cache_info().currsize == COMPILED_MAX


@pytest.mark.parametrize("text", ["event['agent'] == 'gpu-health-monitor'", "size(event) > 0 && event.isFatal"])
def test_a_rule_that_uses_a_report_as_a_whole_sees_all_of_it(text: str) -> None:
    log = QuarantineLog("n1", "n2", document=parse(with_expression(text), "rules.yaml"))
    assert len(log.record("n1", reported("0"), 1)) == 1


def test_no_rules_are_a_document_too() -> None:
    log = QuarantineLog("n1", document=parse(b"kind: QuarantineRules", "none.yaml"))
    assert log.record("n1", reported("0"), 1) == []
    assert QUARANTINE in log.state.rules_row.rows


def test_the_example_is_what_ships_with_the_product() -> None:
    assert example_rules() == parse(EXAMPLE.read_bytes(), str(EXAMPLE.relative_to(ROOT)))
