"""The proxy of the tests: what passes through it is the server's, and what it is told to do wrong it does."""

import pytest

from gpuledger.api.kinds import NAMESPACES, NODES
from gpuledger.edge.kube.client import ClientSettings, KubeClient, open_client
from gpuledger.edge.kube.errors import NotFoundError, TooManyRequestsError, UnavailableError
from support.kube_proxy import KubeProxy, drop, hang
from support.kube_server import KubeServer
from support.scripted_api import Answer, refuse

IMPATIENT = ClientSettings(request_timeout_s=0.5)
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}


async def name(client: KubeClient) -> str:
    return str((await client.get(NAMESPACES, "default"))["metadata"]["name"])


async def test_what_passes_is_counted(proxy: KubeProxy) -> None:
    async with open_client(proxy.kubeconfig) as client:
        await client.create(NODES, NODE)
        with pytest.raises(NotFoundError):
            await client.get(NODES, "none")
    assert [(one.method, one.path) for one in proxy.requests] == [
        ("POST", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/none"),
    ]
    assert [one.path for one in proxy.written] == ["/api/v1/nodes"]


async def test_watches_stream_through(kube: KubeServer, proxy: KubeProxy) -> None:
    async with open_client(proxy.kubeconfig) as client, open_client(kube.kubeconfig) as other:
        version = (await client.list(NODES)).resource_version
        await other.create(NODES, NODE)
        async for batch in client.watch(NODES, version, timeout_s=60):
            assert [(event["type"], event["object"]["metadata"]["name"]) for event in batch] == [("ADDED", "w1")]
            break


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refuse(429, headers={"Retry-After": "3"}), TooManyRequestsError),
        (refuse(500), UnavailableError),
        (drop, UnavailableError),
        (hang, UnavailableError),
    ],
    ids=["429", "500", "drop", "hang"],
)
async def test_a_fault_lasts_until_it_is_taken_away(proxy: KubeProxy, fault: Answer, error: type[Exception]) -> None:
    async with (
        open_client(proxy.kubeconfig) as client,
        open_client(proxy.kubeconfig, settings=IMPATIENT) as impatient,
    ):
        proxy.fault = fault
        with pytest.raises(error):
            await name(impatient if error is UnavailableError else client)
        proxy.fault = None
        assert await name(client) == "default"


async def test_it_goes_away_and_comes_back(proxy: KubeProxy) -> None:
    async with open_client(proxy.kubeconfig) as client:
        await proxy.away()
        with pytest.raises(UnavailableError):
            await name(client)
        await proxy.back()
        assert await name(client) == "default"
