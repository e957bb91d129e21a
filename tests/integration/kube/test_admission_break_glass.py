"""The break-glass group before a real API: its members are let through, and the ledger has what they did."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES, Resource
from gpuledger.edge.admission.rules.access import BREAK_GLASS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.break_glass import BreakGlassUse
from gpuledger.events.envelope import decode
from gpuledger.ledger.memory import MemoryLedger
from support.admission import Json
from support.admission_serving import webhooks
from support.kube_http import MERGE, Answer, Api
from support.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = {"kind": "Group", "name": BREAK_GLASS, "apiGroup": "rbac.authorization.k8s.io"}
RESOURCES = [f"{kind.plural}{sub}" for kind in (GPU_DEVICES, GPU_NODE_STATES) for sub in ("", "/status")]
PROBE = "probe"
PRODUCT = "gpu.deckhouse.io/product"


class Glass:
    """What eva does as a member of the group, and what the ledger has of it."""

    def __init__(self, api: Api) -> None:
        self.ledger = MemoryLedger()
        self.api = api

    async def __call__(self, method: str, path: str, body: Json | None = None) -> Answer:
        media = MERGE if method == "PATCH" else "application/json"
        who = {"Impersonate_User": "eva", "Impersonate_Group": BREAK_GLASS}
        return await self.api(method, path, body, media=media, **who)

    async def uses(self, *, of_probe: bool = False) -> list[tuple[str, str, BreakGlassUse]]:
        """Aggregate, object and use, in the order of the log; those of the probe or of all others."""
        events = [decode(one.data) async for batch in self.ledger.history() for one in batch]
        uses = [(one.data.AGGREGATE, one.subject, one.data) for one in events if isinstance(one.data, BreakGlassUse)]
        return [use for use in uses if (use[1] == PROBE) == of_probe]

    async def until(self, number: int) -> list[tuple[str, str, BreakGlassUse]]:
        """The uses, once there are so many."""

        async def are_there() -> bool:
            return len(await self.uses()) >= number

        await eventually(are_there)
        return await self.uses()


@pytest.fixture
async def bound(client: KubeClient, api: Api) -> Api:
    """The server with two objects of the product, and a binding of the group's role."""
    for kind, name in ((GPU_DEVICES, "d1"), (GPU_NODE_STATES, "n1")):
        await api.made(kind.path(), _object(kind, name))
    rule = {"apiGroups": [GPU_DEVICES.group], "resources": RESOURCES, "verbs": ["*"]}
    await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "break-glass"}, "rules": [rule]})
    role = {"kind": "ClusterRole", "name": "break-glass", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "break-glass"}, "roleRef": role, "subjects": [GROUP]}
    await api.made(f"{RBAC}/clusterrolebindings", binding)
    return api


@asynccontextmanager
async def watched(bound: Api, client: KubeClient) -> AsyncIterator[Glass]:
    """The group's member, once the API server calls the webhook."""
    found = Glass(bound)
    async with webhooks(client, found.ledger):

        async def is_called() -> bool:
            await found("POST", GPU_DEVICES.path(), _object(GPU_DEVICES, PROBE))
            await found("DELETE", f"{GPU_DEVICES.path()}/{PROBE}")
            return bool(await found.uses(of_probe=True))

        await eventually(is_called)
        yield found


@pytest.fixture
async def glass(bound: Api, client: KubeClient) -> AsyncIterator[Glass]:
    async with watched(bound, client) as found:
        yield found


def _object(kind: Resource, name: str) -> Json:
    metadata: Json = {"name": name, "labels": {PRODUCT: "a100"}}
    spec = {"nodeName": name} if kind == GPU_NODE_STATES else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def of(name: str, uses: list[tuple[str, str, BreakGlassUse]]) -> list[Json]:
    """The uses about one object, as an event holds them."""
    return [use.model_dump(exclude_none=True, mode="json") for _, subject, use in uses if subject == name]


async def test_each_use_is_an_event_of_its_object(glass: Glass) -> None:
    device, state = f"{GPU_DEVICES.path()}/d1", f"{GPU_NODE_STATES.path()}/n1"
    relabelled = {"metadata": {"labels": {PRODUCT: "h100"}}}
    answers = [
        await glass("PATCH", device, relabelled),
        await glass("PATCH", f"{device}/status", {"status": {"state": "Faulted"}}),
        await glass("PATCH", state, {"metadata": {"annotations": {"by": "eva"}}}),
        await glass("DELETE", device),
    ]
    assert [answer.code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    found = await glass.until(4)
    eva: dict[str, Any] = {"user": "eva", "operation": "UPDATE"}
    assert of("d1", found) == [
        eva | {"changed": ["metadata.labels"]},
        eva | {"subresource": "status", "changed": ["status.state"]},
        {"user": "eva", "operation": "DELETE", "changed": []},
    ]
    assert of("n1", found) == [eva | {"changed": ["metadata.annotations"]}]
    assert {aggregate for aggregate, subject, _ in found if subject == "n1"} == {"node"}


async def test_what_everybody_may_do_a_dry_run_and_others_are_no_uses(glass: Glass) -> None:
    device = f"{GPU_DEVICES.path()}/d1"
    relabelled, ignored = (
        {"metadata": {"labels": labels}} for labels in ({PRODUCT: "h100"}, {f"{GPU_DEVICES.group}/ignore": "true"})
    )
    assert (await glass("PATCH", f"{device}?dryRun=All", relabelled)).code == 200
    assert (await glass("PATCH", device, ignored)).code == 200
    assert (await glass.api("PATCH", device, relabelled, media=MERGE)).code == 200
    assert (await glass("DELETE", f"{GPU_NODE_STATES.path()}/n1")).code == 200
    found = await glass.until(1)
    assert [subject for _, subject, _ in found] == ["n1"]


async def test_the_group_needs_no_webhook_that_answers(bound: Api, client: KubeClient) -> None:
    async with watched(bound, client) as glass:
        pass
    relabelled = {"metadata": {"labels": {PRODUCT: "h100"}}}
    assert (await glass("PATCH", f"{GPU_DEVICES.path()}/d1", relabelled)).code == 200
    assert await glass.uses() == []
