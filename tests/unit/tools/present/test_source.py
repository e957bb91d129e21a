"""The present as an API server has it: what is listed, what may be missing, and what an answer then says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import DEVICE_CLASSES, NAMESPACES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import ForbiddenError
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.explain.consumers import NO_CONSUMER
from gpuledger.tools.explain.query import WhyQuery
from gpuledger.tools.explain.why import why_claim
from gpuledger.tools.present.source import KubernetesSource
from gpuledger.tools.queries.availability import claim_rows, slice_rows
from gpuledger.tools.queries.moments import PointInTime
from support.events import START
from support.kube import KubeApi, kube_api
from support.kube_accounts import AccountServer, config_file, let_get
from support.kube_fleet import create

DRIVER = "gpu.example.com"


async def equip(client: KubeClient) -> None:
    """Two cards on w1, one of them held by a claim of team-b, and a claim of team-a that waits."""
    for namespace in ("team-a", "team-b"):
        await create(client, NAMESPACES, {"metadata": {"name": namespace}})
    await create(client, NODES, {"metadata": {"name": "w1", "labels": {"zone": "a"}}, "spec": {}})
    await create(client, DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "w1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "w1", "pool": pool, "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}
    await create(client, RESOURCE_SLICES, {"metadata": {"name": "w1-slice"}, "spec": spec})
    for namespace, count in (("team-a", 2), ("team-b", 1)):
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
        claim = {"metadata": {"name": "c", "namespace": namespace}, "spec": {"devices": {"requests": [request]}}}
        await create(client, RESOURCE_CLAIMS, claim)
    result = {"request": "gpu", "driver": DRIVER, "pool": "w1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    await client.merge_patch(RESOURCE_CLAIMS, "c", {"status": status}, "team-b", subresource="status")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[KubeApi]:
    async with kube_api(tmp_path, AccountServer()) as api, open_client(api.kubeconfig) as client:
        await equip(client)
        yield api


def source_of(api: KubeApi, account: str = "", namespace: str | None = None) -> KubernetesSource:
    """What an account reads; the administrator without one."""
    config = config_file(api.kubeconfig.parent, api.url, account) if account else api.kubeconfig
    return KubernetesSource(KubeAccess(config), namespace)


async def test_everything_is_listed_and_folded(api: KubeApi) -> None:
    source = source_of(api)
    state = await source.availability()
    (found,) = slice_rows(state)
    assert (found["total"], found["allocated"], found["available"], found["complete"]) == (2, 1, 1, True)
    phases = {row["namespace"]: row["phase"] for row in claim_rows(state)}
    assert phases == {"team-a": "Pending", "team-b": "Allocated"}
    assert state.node("w1").labels["zone"] == "a"
    assert source.notes == ()
    assert await source.staleness() is None  # type: ignore[func-returns-value] # as a ledger's can answer


async def test_a_claim_that_waits_is_explained(api: KubeApi) -> None:
    access = KubeAccess(api.kubeconfig)
    document: dict[str, Any] = await why_claim(source_of(api), WhyQuery("team-a/c", None, "now", None, access))
    short = "request gpu: 2 devices requested, 1 available: 1 taken"
    assert document["answer"] == f"{NO_CONSUMER}; {short}"
    with pytest.raises(ToolError, match="claim 'team-a/none' was not found") as missing:
        await why_claim(source_of(api), WhyQuery("team-a/none", None, "now", None, access))
    assert "--at" not in str(missing.value)


@pytest.mark.parametrize("moment", [PointInTime(START), PointInTime(recorded=START)])
async def test_there_is_no_past(api: KubeApi, moment: PointInTime) -> None:
    source = source_of(api)
    with pytest.raises(RequestError, match="Kubernetes has no past"):
        await source.availability(moment)
    with pytest.raises(RequestError, match="Kubernetes has no past"):
        await source.pools(START)
    with pytest.raises(RequestError, match="Kubernetes has no past"):
        await source.pods("team-a/p", START)


async def test_without_the_right_to_list_slices_there_is_no_answer(api: KubeApi) -> None:
    async with open_client(api.kubeconfig) as admin:
        await let_get(admin, "team-a:dev", ("resource.k8s.io", "resourceclaims"))
    with pytest.raises(ForbiddenError, match="list resourceslices"):
        await source_of(api, "team-a:dev").availability()
