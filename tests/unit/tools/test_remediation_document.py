"""What a document of remedies may say, and how each mistake in one is named."""

import orjson
import pytest

from gpuledger.domain.remediation.rules import document_text, object_of, remedies_of
from gpuledger.domain.remediation.signs import message_of, shows
from gpuledger.domain.remediation.templates import LONGEST, rendered
from gpuledger.events.envelope import Event, decode, encode
from gpuledger.events.payload import truncated
from gpuledger.events.remediation import MANIFEST_LENGTH_MAX, OutcomeSign, RemediationFinished, RemediationRequested
from gpuledger.tools.errors import RequestError
from gpuledger.tools.remediation.document import parse
from support.events import START
from support.paths import ROOT
from support.remediation import RemediationLog, card

EXAMPLE = ROOT / "examples" / "remediation-rules.yaml"
HEAD = """
kind: RemediationRules
remedies:
  - name: reboot
    actions: [RESTART_BM]
    resource: reboots
    template:
      apiVersion: example.com/v1
      kind: Reboot
      spec: {node: "${node}"}
    outcome:
      succeeded: {condition: Done}
"""


def problem(text: str) -> str:
    with pytest.raises(RequestError) as refused:
        parse(text.encode(), "rules.yaml")
    return refused.value.message


def test_the_example_resets_a_card_and_reboots_its_node_when_that_fails() -> None:
    document = parse(EXAMPLE.read_bytes(), EXAMPLE.name)
    assert [one.name for one in document.remedies] == ["reset-gpu", "reboot", "replace"]
    log = RemediationLog(document)
    log.record("n1", card(1), 10)
    (reset,) = log.set_aside("n1", 11)
    assert isinstance(reset.data, RemediationRequested)
    assert reset.data.object.content["spec"] == {"nodeName": "n1", "selector": {"uuids": ["GPU-1"]}}
    assert (reset.data.timeout_s, reset.data.retention_s, reset.data.rules) == (900, 86400, document.digest)
    (reboot,) = log.finish(reset, "Failed", 20)
    assert isinstance(reboot.data, RemediationRequested)
    assert (reboot.data.object.kind, reboot.data.object.api_version) == (
        "RebootNode", "janitor.dgxc.nvidia.com/v1alpha1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("RESTART_BM", "REBOOT"), "remedies[0] 'reboot': actions: 'REBOOT' is none of COMPONENT_RESET, "),
        (("RESTART_BM", "NONE"), "actions: 'NONE' is none of "),
        (("${node}", "${nodes}"), "template.spec.node: there is no placeholder ${nodes}; choose from ${node}, "),
        (("${node}", "${no-de}"), "template.spec.node: there is no placeholder ${no-de}; choose from ${node}, "),
        (("${node}", "$ 5"), "template.spec.node: $ is followed by a placeholder such as ${node}"),
        (("${node}", "${device}"), "template.spec.node: ${device} needs scope Device"),
        (("kind: Reboot\n", "kind: Reboot\n      metadata: {name: a}\n"), "metadata.name: gpuledger names the object"),
        (("{condition: Done}", "{condition: Done, path: a}"), "outcome.succeeded: it has either condition, or path"),
        (("{condition: Done}", "{path: status.phase}"), "outcome.succeeded: path needs values"),
        (("{condition: Done}", "{path: 'a[0]', values: [b]}"), "'a[0]' is no path such as status.phase"),
        (("actions:", "escalateTo: other\n    actions:"), "escalateTo: there is no remedy 'other'"),
        (("actions:", "escalateTo: reboot\n    actions:"), "the escalation comes back to 'reboot'"),
        (("actions:", "timeout: 1\n    actions:"), "remedies[0].timeout of 'reboot': it is a duration such as 10m"),
        (("name: reboot", "name: Re Boot"), "remedies[0].name of 'Re Boot': String should match pattern"),
        (("resource: reboots", "resource: Re/boots"), "resource 'Re/boots' is not the plural of a kind"),
        (("RemediationRules", "QuarantineRules"), "kind: Input should be 'RemediationRules'"),
        (("remedies:", "colour: red\nremedies:"), "colour: Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: tuple[str, str], expected: str) -> None:
    assert expected in problem(HEAD.replace(*change, 1))


def test_remedies_for_the_same_action_or_of_the_same_name_are_refused() -> None:
    found = problem(HEAD + HEAD.split("remedies:\n")[1])
    assert "another remedy has this name" in found
    assert "another remedy is for RESTART_BM as well" in found


def test_an_object_has_its_values_and_a_name_that_follows_from_its_seed() -> None:
    document = parse(HEAD.replace("${node}", "$$${node} for ${remedy}").encode(), "rules.yaml")
    remedy = remedies_of(document_text(document)).by_name["reboot"]
    made = object_of(remedy, "seed", {"node": "n1"})
    assert made.content["spec"] == {"node": "$n1 for reboot"}
    assert made == object_of(remedy, "seed", {"node": "n1"})
    assert made.name != object_of(remedy, "other", {"node": "n1"}).name
    assert orjson.loads(made.manifest)["metadata"] == {"name": made.name}


def test_values_are_no_templates() -> None:
    assert rendered({"a": ["${node}", 1]}, {"node": "${uid}", "uid": "u"}) == {"a": ["${uid}", 1]}


@pytest.mark.parametrize(
    ("status", "sign", "is_shown"),
    [
        ({"conditions": [{"type": "Done", "status": "True"}]}, {"condition": "Done"}, True),
        ({"conditions": [{"type": "Done", "status": "False"}]}, {"condition": "Done"}, False),
        ({"conditions": [{"type": "Done", "status": "False"}]}, {"condition": "Done", "status": "False"}, True),
        ({"conditions": "odd"}, {"condition": "Done"}, False),
        ({"phase": "Ok"}, {"path": "status.phase", "values": ["Fine", "Ok"]}, True),
        ({"phase": {"a": 1}}, {"path": "status.phase.b.c", "values": ["Ok"]}, False),
        ({"done": True}, {"path": "status.done", "values": ["true"]}, True),
    ],
)
def test_what_an_object_shows(status: dict[str, object], sign: dict[str, object], is_shown: bool) -> None:
    found = OutcomeSign.model_validate(sign)
    assert shows({"status": status}, found) is is_shown
    assert isinstance(message_of({"status": status}, found), str)
    assert not shows({}, found)


@pytest.mark.parametrize(
    "spec", ["{1: a}", "{a: 123456789012345678901234567890}", "{a: !!binary aGk=}", '{a: "\\uD800"}']
)
def test_what_json_does_not_have_is_refused_with_its_place(spec: str) -> None:
    found = problem(HEAD.replace('{node: "${node}"}', spec))
    assert "remedies[0].template of 'reboot': it is no object of JSON, as Kubernetes takes it: " in found


def test_a_template_has_room_for_the_longest_values() -> None:
    """Else the decider could not record the request, and would stop at that node for good."""
    assert "it may have 16," in problem(HEAD.replace("${node}", "${nodeUID}" * 20))
    fits = parse(HEAD.replace("${node}", "${nodeUID}" * 10).encode(), "rules.yaml").remedies[0]
    made = object_of(fits, "seed", {**LONGEST, "remedy": fits.name})
    assert len(made.manifest) <= MANIFEST_LENGTH_MAX


def test_a_nul_character_is_refused_before_it_makes_the_document_unreadable() -> None:
    text = HEAD.replace("resource:", 'equivalenceGroup: "a\\0b"\n    resource:')
    assert "rules.yaml is no YAML: a text holds a NUL character in line 6, column 23" in problem(text)


def test_what_an_object_says_is_recorded_without_what_no_event_may_hold() -> None:
    obj = {"status": {"conditions": [{"type": "Done", "status": "True", "message": "a\0b"}]}}
    message = truncated(message_of(obj, OutcomeSign(condition="Done")))
    data = RemediationFinished(intent="i", result="Succeeded", message=message)
    event = Event("id", "/services/remediator", data.TYPE, "n1", START, data, "e", 1)
    assert decode(encode(event)).data == data
