"""What an API server accepts by its own policy: names that quotas limit, and privileged containers."""

from typing import Final

import pytest

from support.kube_http import DEFAULT, STRATEGIC, Api, Json, api_of
from support.kube_server import NewKube

PODS: Final = f"{DEFAULT}/pods"
QUOTAS: Final = f"{DEFAULT}/resourcequotas"
APPS: Final = "/apis/apps/v1/namespaces/default"
BATCH: Final = "/apis/batch/v1/namespaces/default"
LABELS: Final = {"app": "x"}


@pytest.mark.parametrize(
    ("hard", "is_accepted"),
    [
        ({"pods": "2", "count/things.example.com": "1", "requests.cpu": "1", "limits.memory": "1Gi"}, True),
        ({"requests.cluster.gpu.deckhouse.io/a": "2", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"}, True),
        ({"requests.storage": "1Gi", "services.nodeports": "0"}, True),
        ({"requests.pods": "2"}, False),
        ({"limits.storage": "1Gi"}, False),
        ({"anything": "1"}, False),
        ({"pods": "-1"}, False),
        ({"pods": "1500m"}, False),
    ],
)
async def test_a_quota_limits_only_what_is_counted(api: Api, hard: Json, is_accepted: bool) -> None:
    answer = await api("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert answer.code == (201 if is_accepted else 422), answer.text
    assert is_accepted or answer.causes == {("FieldValueInvalid", f"spec.hard[{name}]") for name in hard}


async def test_a_quota_keeps_to_what_is_counted(api: Api) -> None:
    await api.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
    patch = {"spec": {"hard": {"requests.pods": "2"}}}
    answer = await api("PATCH", f"{QUOTAS}/q", patch, media=STRATEGIC)
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", "spec.hard[requests.pods]")})


def pod_spec(**more: object) -> Json:
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    return {"containers": [{"name": "plain", "image": "i"}, container], **more}


def template(**more: object) -> Json:
    return {"metadata": {"labels": LABELS}, "spec": pod_spec(**more)}


WORKLOADS: Final[list[tuple[str, Json, str]]] = [
    (PODS, pod_spec(), "spec"),
    (f"{APPS}/daemonsets", {"selector": {"matchLabels": LABELS}, "template": template()}, "spec.template.spec"),
    (f"{APPS}/deployments", {"selector": {"matchLabels": LABELS}, "template": template()}, "spec.template.spec"),
    (f"{APPS}/statefulsets", {"selector": {"matchLabels": LABELS}, "template": template()}, "spec.template.spec"),
    (f"{BATCH}/jobs", {"template": template(restartPolicy="Never")}, "spec.template.spec"),
    (
        f"{BATCH}/cronjobs",
        {"schedule": "@daily", "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}}},
        "spec.jobTemplate.spec.template.spec",
    ),
]


@pytest.mark.parametrize(("path", "spec", "place"), WORKLOADS, ids=[path.rpartition("/")[2] for path, *_ in WORKLOADS])
async def test_privileged_containers_are_refused(api: Api, path: str, spec: Json, place: str) -> None:
    answer = await api("POST", path, {"metadata": {"name": "w"}, "spec": spec})
    field = f"{place}.containers[1].securityContext.privileged"
    assert (answer.code, answer.causes) == (422, {("FieldValueForbidden", field)})
    assert "Forbidden: disallowed by cluster policy" in answer.body["message"]


async def test_a_server_may_allow_privileged_containers(new_kube: NewKube) -> None:
    async with api_of(await new_kube(allow_privileged=True)) as api:
        for path, spec, _ in WORKLOADS:
            await api.made(path, {"metadata": {"name": "w"}, "spec": spec})
