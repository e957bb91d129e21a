"""What the Helm chart makes of admission: the webhooks' Service and job, and the policy that restricts access."""

from importlib.resources import files
from typing import Any

import pytest
import yaml

from gpuledger.api.kinds import NAMESPACE as PRODUCT_NAMESPACE
from gpuledger.edge.admission.settings import SERVICE
from gpuledger.edge.admission.webhook_configuration import NAME as WEBHOOKS
from gpuledger.edge.kube.crds import component_daemon_sets
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from gpuledger.edge.webhooks.settings import SERVICE_PORT
from gpuledger.runtime.settings import ADMISSION_LISTEN
from gpuledger.runtime.settings import NAMESPACE as NAMESPACE_VARIABLE
from gpuledger.tools.uninstall import OUR_SECRETS
from support.chart import NAME, NAMESPACE, WITH_SECRET, WITHOUT_ADMISSION, needs_helm, render

RESTRICTED_ACCESS = "gpu-control-plane-restricted-access"

pytestmark = needs_helm


def test_a_service_leads_to_where_the_webhooks_listen() -> None:
    made = render(WITH_SECRET)
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    environ = {one["name"]: one for one in container["env"]}
    _, _, number = environ[ADMISSION_LISTEN]["value"].rpartition(":")
    assert environ[NAMESPACE_VARIABLE]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    service = made.one("Service", SERVICE)
    assert service["spec"]["selector"] == made.one("Service")["spec"]["selector"]
    (port,) = service["spec"]["ports"]
    assert port["port"] == SERVICE_PORT
    assert {"name": port["targetPort"], "containerPort": int(number)} in container["ports"]


def test_without_admission_nothing_of_it_is_left() -> None:
    made = render(WITHOUT_ADMISSION)
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert not {ADMISSION_LISTEN, NAMESPACE_VARIABLE} & {one["name"] for one in container["env"]}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert SERVICE not in made.names("Service")
    assert f"{NAME}-admission" not in made.names("Role") | made.names("ClusterRole")


@pytest.mark.parametrize(
    ("values", "moments"),
    [(WITH_SECRET, "pre-delete"), (WITHOUT_ADMISSION, "post-upgrade,post-rollback")],
)
def test_the_webhooks_are_taken_away_when_nobody_answers_any_more(values: dict[str, Any], moments: str) -> None:
    made, name = render(values), f"{NAME}-unhook"
    for kind in ("Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
        assert made.one(kind, name)["metadata"]["annotations"]["helm.sh/hook"] == moments
    rules = made.one("ClusterRole", name)["rules"]
    assert {plural for rule in rules for plural in rule["resources"]} == {MUTATING.plural, VALIDATING.plural}
    assert all((rule["verbs"], rule["resourceNames"]) == (["delete"], [WEBHOOKS]) for rule in rules)


def test_the_policy_is_the_shipped_one_for_the_releases_namespace() -> None:
    for part, kind in (("policy", "ValidatingAdmissionPolicy"), ("binding", "ValidatingAdmissionPolicyBinding")):
        text = (files("gpuledger.schemas") / "manifests" / f"restricted-access-{part}.yaml").read_text()
        shipped = yaml.safe_load(text.replace(f"accounts:{PRODUCT_NAMESPACE}", f"accounts:{NAMESPACE}"))
        made = render(WITH_SECRET).one(kind, RESTRICTED_ACCESS)
        del made["metadata"]["labels"]
        assert made == shipped


def test_what_is_kept_in_the_cluster_is_removed_when_the_release_is_gone() -> None:
    made, name = render(WITH_SECRET), f"{NAME}-uninstall"
    for kind in ("Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert made.one(kind, name)["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    job = made.one("Job", name)
    assert job["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation", "its log is read"
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    named = {one for rule in made.one("Role", name)["rules"] for one in rule.get("resourceNames", ())}
    assert named == {one["metadata"]["name"] for one in component_daemon_sets()} | {*OUR_SECRETS}
