"""The example's remedies fit the kinds of NVSentinel's janitor: an API server takes them, and their outcome is seen."""

from typing import Any

import pytest

from gpuledger.domain.remediation.rules import object_of
from gpuledger.domain.remediation.signs import shows
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.crds import install
from gpuledger.edge.kube.errors import InvalidError
from gpuledger.events.remediation import Remedy
from gpuledger.tools.remediation.document import parse
from support.janitor import KINDS, condition, janitor_crds
from support.paths import ROOT

EXAMPLE = ROOT / "examples" / "remediation-rules.yaml"
UUID = "GPU-455d8f70-2051-db6c-0430-ffc457bff834"
RESOURCES = {resource.kind: resource for resource, _, _ in KINDS}
WAITS, SUCCEEDED, FAILED = (False, False), (True, False), (False, True)


def remedy(name: str) -> Remedy:
    return next(one for one in parse(EXAMPLE.read_bytes(), "rules.yaml").remedies if one.name == name)


async def created(client: KubeClient, one: Remedy, device: str = UUID) -> Object:
    made = object_of(one, "seed", {"node": "n1", "device": device})
    return await client.create(RESOURCES[made.kind], dict(made.content))


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("reset-gpu", {"nodeName": "n1", "selector": {"uuids": [UUID]}}),
        ("reboot", {"nodeName": "n1", "force": False}),
        ("replace", {"nodeName": "n1", "force": False}),
    ],
)
async def test_the_api_server_takes_the_object_of_each_remedy(client: KubeClient, name: str, spec: Object) -> None:
    await install(client, janitor_crds())
    assert (await created(client, remedy(name)))["spec"] == spec


async def test_the_kind_refuses_what_is_no_card(client: KubeClient) -> None:
    await install(client, janitor_crds())
    with pytest.raises(InvalidError, match="uuids"):
        await created(client, remedy("reset-gpu"), "MIG-455d8f70-2051-db6c-0430-ffc457bff834")


@pytest.mark.parametrize(
    ("name", "status", "outcome"),
    [
        ("reset-gpu", {"phase": "InProgress", "conditions": [condition("Ready", "True", "ReadyForReset")]}, WAITS),
        (
            "reset-gpu",
            {"phase": "Succeeded", "conditions": [condition("Complete", "True", "GPUResetSucceeded")]},
            SUCCEEDED,
        ),
        ("reset-gpu", {"phase": "Failed", "conditions": [condition("Complete", "True", "ResetJobFailed")]}, FAILED),
        ("reboot", {"conditions": [condition("NodeReady", "Unknown", "Initializing")]}, WAITS),
        ("reboot", {"conditions": [condition("NodeReady", "True", "Succeeded")]}, SUCCEEDED),
        ("reboot", {"conditions": [condition("NodeReady", "False", "Timeout")]}, FAILED),
        ("replace", {"conditions": [condition("NodeTerminated", "Unknown", "Initializing")]}, WAITS),
        ("replace", {"conditions": [condition("NodeTerminated", "True", "Succeeded")]}, SUCCEEDED),
        ("replace", {"conditions": [condition("NodeTerminated", "False", "MaxRetriesExceeded")]}, FAILED),
    ],
)
async def test_what_its_controller_writes_is_the_outcome(
    client: KubeClient, name: str, status: dict[str, Any], outcome: tuple[bool, bool]
) -> None:
    await install(client, janitor_crds())
    one = remedy(name)
    made = await created(client, one)
    resource = RESOURCES[made["kind"]]
    shown = await client.merge_patch(resource, made["metadata"]["name"], {"status": status}, subresource="status")
    assert shown["status"] == status, "the kind has a status of that form"
    assert (shows(shown, one.succeeded), shows(shown, one.failed)) == outcome
