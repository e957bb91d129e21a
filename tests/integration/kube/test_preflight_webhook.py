"""The webhook of preflight checks before an API server, which calls it about the pods of the golden files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import (
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from gpuledger.api.preflight import ANNOTATION_INJECTED
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError, NotFoundError, RefusedError, UnavailableError
from gpuledger.edge.kube.owner import CLUSTER_ROLES
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.edge.preflight.service import PreflightWebhook
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.preflight.webhook_configuration import NAME
from gpuledger.edge.webhooks.configuration import MUTATING
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.preflight import AUTHORITY, HOME, GoldenPod, golden_pods
from support.waiting import eventually

LEDGER = "ledger-1"
KINDS = {one.kind: one for one in (NAMESPACES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)}


@asynccontextmanager
async def webhook(client: KubeClient, file: Path, **more: Any) -> AsyncIterator[PreflightWebhook]:
    """A webhook that is configured in an API server of its ledger."""
    with suppress(AlreadyExistsError):
        await client.create(NAMESPACES, {"metadata": {"name": HOME}})
    await claim(client, owner(LEDGER, system_clock()), "of the test")
    settings = PreflightSettings(
        listen="127.0.0.1:0", address=None, namespace=HOME, file=file, file_poll_s=0.05, **more
    )
    found = PreflightWebhook(client, LEDGER, settings)
    running = asyncio.create_task(found.run())
    try:

        async def is_kept() -> bool:
            if running.done():
                await running
            return found.is_configured and found.health().is_ready

        await eventually(is_kept)
        yield found
    finally:
        await end([running])


def with_authority(golden: GoldenPod, folder: Path) -> Path:
    """The configuration of a case, in a file beside the authority that it names."""
    authority, file = folder / "ca.crt", folder / "preflight.yaml"
    authority.write_text(AUTHORITY)
    text = golden.configuration_file.read_text()
    named = (
        text.replace("connector:", f"connector:\n  authorityFile: {authority}")
        if "connector:\n" in text
        else (text.replace("connector: {", f"connector: {{authorityFile: {authority}, "))
    )
    file.write_text(named)
    return file


def contains(found: Any, expected: Any, place: str = "") -> None:
    """Whether an answer has all that is expected; an API server adds defaults, and pods lose what it does not know."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in found, f"{place}.{key}"
            contains(found[key], value, f"{place}.{key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(found) >= len(expected), place
        for number, (one, other) in enumerate(zip(found, expected, strict=False)):
            contains(one, other, f"{place}[{number}]")
    else:
        assert found == expected, place


@pytest.mark.parametrize("golden", list(golden_pods()), ids=lambda one: one.name)
async def test_an_api_server_stores_the_pod_of_the_golden_file(
    client: KubeClient, tmp_path: Path, golden: GoldenPod
) -> None:
    namespace = golden.namespace["metadata"]["name"]
    for one in golden.objects:
        metadata = {**one["metadata"]} | ({} if one["kind"] == "Namespace" else {"namespace": namespace})
        await client.create(KINDS[one["kind"]], {**one, "metadata": metadata})
    async with webhook(client, with_authority(golden, tmp_path)):
        pod = {**golden.pod, "metadata": {**golden.pod["metadata"], "namespace": namespace}}
        stored = await client.create(PODS, pod)
    expected = golden.expected["pod"]
    names = [one["name"] for one in expected["spec"].get("initContainers", [])]
    assert [one["name"] for one in stored["spec"].get("initContainers", [])] == names
    contains(stored["spec"].get("initContainers", []), expected["spec"].get("initContainers", []))
    contains(stored["spec"].get("volumes", []), expected["spec"].get("volumes", []))
    contains(stored["spec"]["containers"], expected["spec"]["containers"])
    marks = {key: value for key, value in stored["metadata"].get("annotations", {}).items() if "gpuledger.io" in key}
    wished = expected["metadata"].get("annotations", {})
    assert marks == {key: value for key, value in wished.items() if "gpuledger.io" in key}


async def test_another_configuration_counts_without_a_restart(client: KubeClient, tmp_path: Path) -> None:
    for name in ("training", "inference"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    file = tmp_path / "preflight.yaml"
    text = "checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\nwebhook: {failurePolicy: Fail}\n"
    file.write_text(text)
    async with webhook(client, file) as found:
        assert (await hook_of(client))["failurePolicy"] == "Fail"
        file.write_text("checks: everything")

        async def is_noticed() -> bool:
            return found.health().reason is not None

        await eventually(is_noticed)
        assert found.health().is_ready
        file.write_text(text.replace("Fail", "Ignore").replace("training", "inference"))

        async def is_applied() -> bool:
            return bool((await hook_of(client))["failurePolicy"] == "Ignore")

        await eventually(is_applied)
        assert "inference" in str((await hook_of(client))["namespaceSelector"])
        assert ANNOTATION_INJECTED in (await created(client, "inference"))["metadata"]["annotations"]
        assert ANNOTATION_INJECTED not in (await created(client, "training"))["metadata"].get("annotations", {})


@pytest.mark.parametrize(("policy", "is_let_in"), [("Fail", False), ("Ignore", True)])
async def test_the_failure_policy_decides_while_no_webhook_answers(
    client: KubeClient, tmp_path: Path, policy: str, is_let_in: bool
) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "training"}})
    file = tmp_path / "preflight.yaml"
    file.write_text(
        f"checks: [{{name: dcgm-diag, image: i}}]\nnamespaces: [training]\nwebhook: {{failurePolicy: {policy}}}\n"
    )
    async with webhook(client, file):
        pass
    plain = {
        "metadata": {"name": "web", "namespace": "training"},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    }
    assert (await client.create(PODS, plain))["metadata"]["name"] == "web", "a pod without GPUs needs no webhook"
    if is_let_in:
        assert "initContainers" not in (await created(client, "training"))["spec"]
        return
    with pytest.raises(Exception, match=r"preflight\.gpuledger\.io") as caught:
        await created(client, "training")
    assert not isinstance(caught.value, UnavailableError) or "preflight" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "is_let_in"),
    [
        ({"containers": [{"name": "preflight-dcgm-diag", "image": "i"}]}, False),
        (
            {"containers": [{"name": "m", "image": "i"}], "initContainers": [{"name": "preflight-x", "image": "i"}]},
            False,
        ),
        (
            {
                "containers": [{"name": "m", "image": "i"}],
                "initContainers": [{"name": "preflight-dcgm-diag", "image": "i"}, {"name": "own", "image": "i"}],
            },
            True,
        ),
    ],
)
async def test_no_other_container_has_the_name_of_a_check(
    client: KubeClient, tmp_path: Path, spec: dict[str, Any], is_let_in: bool
) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "training"}})
    file = tmp_path / "preflight.yaml"
    file.write_text("checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\n")
    pod = {"metadata": {"name": "web", "namespace": "training"}, "spec": spec}
    async with webhook(client, file):
        if is_let_in:
            stored = await client.create(PODS, pod)
            assert [one["name"] for one in stored["spec"]["initContainers"]] == ["own"]
            return
        with pytest.raises(RefusedError, match="ReservedContainerName"):
            await client.create(PODS, pod)


async def test_no_ephemeral_container_has_the_name_of_a_check(client: KubeClient, tmp_path: Path) -> None:
    """Whether or not there is such a check; elsewhere the name means nothing."""
    for name in ("training", "elsewhere"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    file = tmp_path / "preflight.yaml"
    file.write_text("checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\n")
    async with webhook(client, file):
        for namespace in ("training", "elsewhere"):
            await created(client, namespace)
        for name in ("preflight-dcgm-diag", "preflight-x"):
            with pytest.raises(RefusedError, match="ReservedContainerName"):
                await debug(client, "training", name)
        await debug(client, "training", "debugger")
        with pytest.raises(RefusedError, match="ReservedContainerName"):
            await debug(client, "training", "debugger", "preflight-y")
        await debug(client, "elsewhere", "preflight-x")
    found = await client.get(PODS, "train", "training")
    assert [one["name"] for one in found["spec"]["ephemeralContainers"]] == ["debugger"]


async def test_a_check_of_a_pod_gets_no_other_image(client: KubeClient, tmp_path: Path) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "training"}})
    file = tmp_path / "preflight.yaml"
    file.write_text("checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\n")
    async with webhook(client, file):
        spec = (await created(client, "training"))["spec"]
        other = [{**one, "image": "mine"} for one in spec["initContainers"]]
        with pytest.raises(RefusedError, match="CheckImageFixed"):
            await client.merge_patch(PODS, "train", {"spec": {"initContainers": other}}, "training")
        own = [{**one, "image": "mine"} for one in spec["containers"]]
        labelled = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": own}}
        stored = await client.merge_patch(PODS, "train", labelled, "training")
    assert stored["spec"]["containers"][0]["image"] == "mine"
    assert [one["image"] for one in stored["spec"]["initContainers"]] == ["i"]


async def debug(client: KubeClient, namespace: str, *names: str) -> None:
    """What `kubectl debug` writes."""
    containers = [{"name": name, "image": "busybox"} for name in names]
    patch = {"spec": {"ephemeralContainers": containers}}
    await client.merge_patch(PODS, "train", patch, namespace, subresource="ephemeralcontainers")


@pytest.mark.embedded_only("dependents are collected by a controller")
async def test_the_webhook_goes_with_the_role_of_the_release(client: KubeClient, tmp_path: Path) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "training"}})
    await client.create(CLUSTER_ROLES, {"metadata": {"name": "checks"}, "rules": []})
    file = tmp_path / "preflight.yaml"
    file.write_text("checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\n")
    async with webhook(client, file, owner="checks"):
        assert (await hook_of(client))["failurePolicy"] == "Fail"
        await client.delete(CLUSTER_ROLES, "checks")

        async def is_gone() -> bool:
            with suppress(NotFoundError):
                await client.get(MUTATING, NAME)
                return False
            return True

        await eventually(is_gone)
        assert "initContainers" not in (await created(client, "training"))["spec"]


async def hook_of(client: KubeClient) -> dict[str, Any]:
    hook, *_ = (await client.get(MUTATING, NAME))["webhooks"]
    return dict(hook)


async def created(client: KubeClient, namespace: str) -> dict[str, Any]:
    container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"metadata": {"name": "train", "namespace": namespace}, "spec": {"containers": [container]}}
    return await client.create(PODS, pod)
