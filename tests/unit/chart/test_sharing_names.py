"""The names of sharing: every process of the services has the chart's, and what Kubernetes cannot have is refused."""

import pytest

from gpuledger.api.sharing import DOMAIN, SCHEDULER, SharingNames
from gpuledger.runtime.sharing_settings import read_sharing_names
from support.chart import NAME, NAMESPACE, WITH_SECRET, Object, needs_helm, render, template

pytestmark = needs_helm


def names_of(values: Object, deployment: str = NAME) -> SharingNames:
    """What the services of a Deployment make of their environment."""
    found = render({**WITH_SECRET, **values}).one("Deployment", deployment)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    environ = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    return read_sharing_names(environ)


def test_the_names_by_default_are_those_of_the_services() -> None:
    names = names_of({})
    assert (names.domain, names.scheduler) == (DOMAIN, SCHEDULER)
    assert names.account is not None
    assert names.account.startswith(f"system:serviceaccount:{NAMESPACE}:{NAME}")


def test_every_process_has_the_names_of_the_values() -> None:
    values = {
        "sharing": {"domain": "gpus.example", "schedulerName": ""},
        "processes": {"pools": {"only": ["pools"]}},
    }
    for deployment in (NAME, f"{NAME}-pools"):
        names = names_of(values, deployment)
        assert (names.domain, names.scheduler) == ("gpus.example", None)


@pytest.mark.parametrize(
    ("value", "words"), [("domain", "not a DNS name such as"), ("schedulerName", "not the name of")]
)
def test_names_that_kubernetes_cannot_have_are_refused(value: str, words: str) -> None:
    result = template({**WITH_SECRET, "sharing": {value: "No/Name"}})
    assert result.code
    assert words in result.err
