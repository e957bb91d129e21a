"""The jobs that put a release's documents of rules into force, and what helm refuses of a document by itself."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gpuledger.api.bundled import BundledServers
from gpuledger.cli.run import as_cli_error
from gpuledger.ledger.errors import ClosingError, LedgerUnavailableError, PublishError
from gpuledger.tools.document_forms import Form
from gpuledger.tools.errors import RequestError
from gpuledger.tools.quarantine import document as quarantine
from gpuledger.tools.remediation import document as remediation
from support.chart import (
    CHART,
    IMAGE,
    KUBE_VERSION,
    NAME,
    NAMESPACE,
    WITH_LOGINS,
    WITH_SECRET,
    Object,
    helm,
    is_hook,
    needs_helm,
    render,
    template,
)
from support.paths import ROOT

pytestmark = needs_helm

EXAMPLES = ROOT / "examples"
RULES: dict[str, Any] = {
    part: {"rules": yaml.safe_load((EXAMPLES / f"{part}-rules.yaml").read_text(encoding="utf-8"))}
    for part in ("quarantine", "remediation")
}
JOBS = {"quarantine": f"{NAME}-rules", "remediation": f"{NAME}-remedies"}
PARSE = {"quarantine": quarantine.parse, "remediation": remediation.parse}
SCHEMA = orjson.loads((CHART / "values.schema.json").read_bytes())


def pod_of(job: Object) -> Object:
    spec: Object = job["spec"]["template"]["spec"]
    return spec


def code_of(error: Exception) -> int:
    """With which code a command ends."""
    shown = as_cli_error(error)
    assert shown is not None
    return shown.code


def changed(part: str, path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """The values with one thing of a document replaced."""
    values = deepcopy(RULES)
    found = values[part]["rules"]
    for name in path[:-1]:
        found = found[name]
    found[path[-1]] = value
    return {**WITH_SECRET, **values}


def test_without_rules_nothing_is_applied() -> None:
    made = render(WITH_SECRET)
    assert made.names("Job") & set(JOBS.values()) == set()
    assert made.names("ConfigMap") == set()


@pytest.mark.parametrize("part", JOBS)
def test_one_document_has_one_job(part: str) -> None:
    made = render({**WITH_SECRET, part: RULES[part]})
    assert made.names("Job") & set(JOBS.values()) == {JOBS[part]}


@pytest.mark.parametrize("part", JOBS)
def test_the_job_applies_what_is_in_the_values_and_nothing_else_changes_it(part: str) -> None:
    made = render({**WITH_SECRET, **RULES})
    ((file, text),) = made.one("ConfigMap", JOBS[part])["data"].items()
    kept = PARSE[part](text.encode(), "x")
    assert kept == PARSE[part]((EXAMPLES / f"{part}-rules.yaml").read_bytes(), "x")
    pod = pod_of(made.one("Job", JOBS[part]))
    (container,), (volume,) = pod["containers"], [one for one in pod["volumes"] if "configMap" in one]
    (folder,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"]]
    assert volume["configMap"] == {"name": JOBS[part]}
    assert container["args"] == [part, "apply", "--file", f"{folder}/{file}"]
    assert {"name": "LOGNAME", "value": "helm"} in container["env"]


def test_large_numbers_stay_whole() -> None:
    made = render(changed("quarantine", ("ruleSets", 0, "priority"), 1_000_000))
    document = quarantine.parse(made.one("ConfigMap", JOBS["quarantine"])["data"]["quarantine.yaml"].encode(), "x")
    assert document.rulesets[0].priority == 1_000_000


@pytest.mark.parametrize("job", JOBS.values())
def test_servers_that_are_there_have_hooks_behind_the_release_and_those_that_come_a_job_beside_them(job: str) -> None:
    there = render({**WITH_SECRET, **RULES}).one("Job", job)
    assert there["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade,post-rollback"
    coming = render({**IMAGE, **RULES}).one("Job", f"{job}-1")
    assert not is_hook(coming), "a hook would keep helm waiting for servers that only start"
    for one in (there, coming):
        (wait,) = pod_of(one)["initContainers"]
        assert wait["args"] == ["migrate", "--check", "--wait", "1800"]


def test_texts_stay_as_they_are() -> None:
    texts = ["=", "<<", "{{ .Values.image }} ${node}", "1:30", "017", "on", "~", "", "\n  #x\n", "\u2028\t", "é "]
    template = {**RULES["remediation"]["rules"]["remedies"][1]["template"], "spec": {"texts": texts}}
    made = render(changed("remediation", ("remedies", 1, "template"), template)).one("ConfigMap", JOBS["remediation"])
    document = remediation.parse(made["data"]["remediation.yaml"].encode(), "x")
    assert orjson.loads(document.remedies[1].template)["spec"]["texts"] == texts


@pytest.mark.parametrize("job", JOBS.values())
def test_a_document_that_is_refused_is_not_tried_again(job: str) -> None:
    spec = render({**WITH_SECRET, **RULES}).one("Job", job)["spec"]
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    codes = rule["onExitCodes"].pop("values")
    assert rule["onExitCodes"] == {"containerName": "gpuledger", "operator": "In"}
    assert code_of(RequestError("the document is wrong")) in codes
    assert not {code_of(one) for one in (LedgerUnavailableError(), PublishError(), ClosingError())} & set(codes)
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "the policy needs that"


@pytest.mark.parametrize("job", JOBS.values())
def test_it_logs_in_as_the_skipper_and_has_no_token(job: str) -> None:
    pod = pod_of(render({**IMAGE, **RULES}).one("Job", f"{job}-1"))
    assert (pod["automountServiceAccountToken"], "serviceAccountName" in pod) == (False, False)
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {BundledServers(NAME, NAMESPACE).secret("skipper")}
    servers = {**WITH_LOGINS["servers"], "skipper": {"credentialsSecret": "skippers", "credentialsKey": "s"}}
    volumes = pod_of(render({**WITH_LOGINS, **RULES, "servers": servers}).one("Job", job))["volumes"]
    (login,) = [one["secret"] for one in volumes if one["name"] == "nats"]
    assert login == {"secretName": "skippers", "items": [{"key": "s", "path": "nats.creds"}]}


def test_nothing_is_recorded_while_all_work_is_stopped() -> None:
    assert render({**WITH_SECRET, **RULES, "replicas": 0}).names("Job") & set(JOBS.values()) == set()


def test_helm_finds_nothing_wrong_with_the_examples() -> None:
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values={**WITH_SECRET, **RULES})
    assert result.code == 0, result


def test_a_document_without_entries_retracts_all(tmp_path: Path) -> None:
    nothing = {"quarantine": {"rules": {"kind": "QuarantineRules", "ruleSets": []}}}
    text = render({**WITH_SECRET, **nothing}).one("ConfigMap", JOBS["quarantine"])["data"]["quarantine.yaml"]
    assert quarantine.parse(text.encode(), "x").rulesets == ()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (changed("quarantine", ("kind",), "Rules"), "quarantine.rules.kind"),
        ({**WITH_SECRET, "quarantine": {"rules": {"ruleSets": []}}}, "kind is required"),
        (changed("quarantine", ("ruleSets", 0, "priority"), "high"), "quarantine.rules.ruleSets.0.priority"),
        (changed("quarantine", ("ruleSets", 0, "colour"), "red"), "Additional property colour is not allowed"),
        (changed("quarantine", ("ruleSets", 0), {"name": "x"}), "match is required"),
        (changed("remediation", ("remedies", 0, "scope"), "node"), "remediation.rules.remedies.0.scope"),
        (changed("remediation", ("remedies", 0, "outcome"), {}), "succeeded is required"),
        ({**IMAGE, "servers": {"skipper": {"tlsSecret": "mine"}}}, "are logins for a NATS server of your own"),
    ],
)
def test_what_cannot_be_a_document_is_refused_by_helm(values: dict[str, Any], problem: str) -> None:
    result = template(values)
    assert result.code != 0
    assert problem in result.err


@pytest.mark.parametrize(
    ("name", "form"), [("quarantineRules", quarantine._Document), ("remediationRules", remediation._Document)]
)
def test_the_schema_of_a_document_has_what_the_command_takes(name: str, form: type[Form]) -> None:
    own = form.model_json_schema(by_alias=True)
    shipped = SCHEMA["definitions"][name]
    assert shipped["if"] == {"minProperties": 1}, "without rules there is no document"
    whole = {**shipped, "required": shipped["then"]["required"]}
    assert list(differences(whole, SCHEMA["definitions"], own, own["$defs"])) == []


def differences(shipped: Object, definitions: Object, own: Object, parts: Object, at: str = "") -> list[str]:
    """Where a schema has other fields, or requires others, than the form of a document."""
    shipped, own = resolved(shipped, definitions), resolved(own, parts)
    if "items" in own:
        return differences(shipped.get("items", {}), definitions, own["items"], parts, f"{at}[]")
    if "properties" not in own:
        return []
    found = [at] if shipped.get("additionalProperties") is not False else []
    if set(shipped["properties"]) != set(own["properties"]) or sorted(shipped.get("required", [])) != sorted(
        own.get("required", [])
    ):
        found.append(at)
    for key in own["properties"].keys() & shipped["properties"].keys():
        found += differences(shipped["properties"][key], definitions, own["properties"][key], parts, f"{at}.{key}")
    return found


def resolved(schema: Object, parts: Object) -> Object:
    """A schema without the reference that it is, or the null that it may be as well."""
    for one in schema.get("anyOf", [schema]):
        if one.get("type") != "null":
            schema = one
            break
    return parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
