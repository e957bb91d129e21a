"""Who waits for a claim, and what else people mean by its name."""

from typing import Any

import pytest

from gpuledger.tools.explain.consumers import (
    EXTENDED,
    Meant,
    PodClaims,
    claims_of,
    class_of,
    consumers_of,
    origin_note,
    pod_meant,
    resource_meant,
    template_meant,
    unclaimed_resources,
)

Json = dict[str, Any]


def pod(name: str, *entries: Json, status: Json | None = None, resources: Json | None = None) -> Json:
    spec = {
        "containers": [{"name": "c", "resources": {"limits": resources or {}}}],
        "resourceClaims": list(entries),
    }
    return {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec, "status": status or {}}


def made(**claims: str | None) -> Json:
    return {"resourceClaimStatuses": [{"name": name, "resourceClaimName": claim} for name, claim in claims.items()]}


NAMES = {"name": "gpu", "resourceClaimName": "train"}
FROM_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "big"}
EXTENDED_STATUS = {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended-x"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod("p", NAMES), PodClaims({"gpu": "train"}, ())),
        (pod("p", FROM_TEMPLATE), PodClaims({}, ("gpu",))),
        (pod("p", FROM_TEMPLATE, status=made(gpu="p-gpu-x")), PodClaims({"gpu": "p-gpu-x"}, ())),
        (pod("p", FROM_TEMPLATE, status=made(gpu=None)), PodClaims({}, ())),
        (pod("p", status=EXTENDED_STATUS), PodClaims({EXTENDED: "p-extended-x"}, ())),
        ({"metadata": {}, "spec": {"resourceClaims": [3]}}, PodClaims({}, ())),
        ({}, PodClaims({}, ())),
    ],
)
def test_the_claims_of_a_pod(given: Json, expected: PodClaims) -> None:
    assert claims_of(given) == expected


def test_a_pod_refers_to_a_claim_by_name_by_template_and_by_extended_resource_until_it_ends() -> None:
    pods = [
        pod("names", NAMES),
        pod("template", FROM_TEMPLATE, status=made(gpu="train")),
        pod("extended", status={"extendedResourceClaimStatus": {"resourceClaimName": "train"}}),
        pod("ended", NAMES, status={"phase": "Succeeded"}),
        pod("other", {"name": "train", "resourceClaimName": "other"}),
    ]
    assert list(consumers_of("train", pods)) == ["names", "template", "extended"]


def claim(**annotations: str) -> Json:
    keys = {key.replace("_", "-"): value for key, value in annotations.items()}
    marks = {f"resource.kubernetes.io/{key}": value for key, value in keys.items()}
    return {"metadata": {"annotations": marks, "ownerReferences": [{"kind": "Pod", "name": "p"}]}}


def test_a_claim_that_no_person_made_says_who_made_it() -> None:
    assert origin_note(claim(pod_claim_name="gpu")) == (
        "A template made this claim for the entry gpu of pod p, and it goes with the pod."
    )
    assert "for the extended resources that pod p requests" in str(origin_note(claim(extended_resource_claim="true")))
    assert origin_note(claim()) is None
    assert "a pod requests" in str(
        origin_note({"metadata": {"annotations": claim(extended_resource_claim="true")["metadata"]["annotations"]}})
    )


CLASSES = [
    {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}},
    {"metadata": {"name": "nic"}, "spec": {}},
]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("example.com/gpu", "gpu"),
        ("deviceclass.resource.kubernetes.io/nic", "nic"),
        ("deviceclass.resource.kubernetes.io/none", None),
        ("example.com/other", None),
        ("gpu", None),
    ],
)
def test_the_device_class_of_an_extended_resource(resource: str, expected: str | None) -> None:
    assert class_of(resource, CLASSES) == expected


def test_extended_resources_count_until_the_scheduler_has_made_a_claim_for_them() -> None:
    requests = {"example.com/gpu": "1", "example.com/none": "0", "cpu": "2"}
    assert unclaimed_resources(pod("p", resources=requests)) == ["example.com/gpu"]
    assert unclaimed_resources(pod("p", status=EXTENDED_STATUS, resources=requests)) == []


def test_an_extended_resource_is_meant() -> None:
    found = resource_meant("example.com/gpu", CLASSES)
    assert found is not None
    assert "an extended resource that DeviceClass gpu provides" in found.message
    assert resource_meant("example.com/other", CLASSES) is None


@pytest.mark.parametrize(
    ("pods", "hint"),
    [
        ([pod("p", FROM_TEMPLATE, status=made(gpu="p-gpu-x"))], "Ask about one of them: team-a/p-gpu-x"),
        ([pod("q", FROM_TEMPLATE), pod("p", FROM_TEMPLATE)], "Ask `gpuledger why pod team-a/p`"),
        ([pod("p", NAMES)], "Create a pod that does"),
        (
            [pod(str(one), FROM_TEMPLATE, status=made(gpu=f"c{one}")) for one in range(5)],
            "Ask about one of them: team-a/c0, team-a/c1, team-a/c2 and 2 more",
        ),
    ],
)
def test_a_template_is_meant(pods: list[Json], hint: str) -> None:
    found = template_meant("team-a", "big", pods)
    assert found.message.startswith("big is a ResourceClaimTemplate")
    assert found.hint == hint


def test_a_pod_or_its_entry_is_meant() -> None:
    assert pod_meant("team-a", "p", [pod("p")]) == Meant("p is a Pod", "Ask `gpuledger why pod team-a/p`")
    entry = pod_meant("team-a", "gpu", [pod("p", NAMES)])
    assert entry == Meant("gpu is what pods call a claim of theirs", "Ask about one of them: team-a/train")
    assert pod_meant("team-a", "none", [pod("p", NAMES)]) is None
