"""API servers for tests: the embedded one, and a real one too where KUBEBUILDER_ASSETS names its programs.

The ids of the tests tell which ran on which: `[embedded]`, `[real]`; `support.kube_kinds` decides.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.ledger.jetstream import JetStreamLedger
from support import kube_kinds
from support.chart import IMAGE
from support.chart_cluster import Cluster, cluster_for_helm
from support.cli import Cli, Run, aside
from support.embedded_kube import EmbeddedKube
from support.gangs import GangPods
from support.inventory_decisions import Decided
from support.killing import SteppingClient
from support.kube_equipped import equipped_client
from support.kube_http import Api, api_of, thing_crd
from support.kube_proxy import KubeProxy, kube_proxy
from support.kube_server import KubeServer, NewKube
from support.nodewriting import Maintainer
from support.real_kube import RealKube, assets
from support.slice_statuses import Driver
from support.statuswriting import CountingClient, counting, status_writer


def pytest_configure(config: pytest.Config) -> None:
    for marker in kube_kinds.MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kube_kinds.parametrize(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kube_kinds.skip(items)


@pytest.fixture
async def new_kube(kube_kind: str, tmp_path: Path) -> AsyncIterator[NewKube]:
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def start(*, allow_privileged: bool = False, **embedded: Any) -> KubeServer:
            directory = tmp_path / f"kube-{next(numbers)}"
            programs = assets()
            if kube_kind == kube_kinds.REAL and programs is not None:
                return await stack.enter_async_context(RealKube(directory, programs, allow_privileged=allow_privileged))
            server = EmbeddedKube(directory, allow_privileged=allow_privileged, **embedded)
            return await stack.enter_async_context(server)

        yield start


@pytest.fixture
async def kube(new_kube: NewKube) -> KubeServer:
    """An empty API server."""
    return await new_kube()


@pytest.fixture
async def proxy(kube: KubeServer, tmp_path: Path) -> AsyncIterator[KubeProxy]:
    """A proxy before the server."""
    async with kube_proxy(kube, tmp_path) as proxy:
        yield proxy


@pytest.fixture
async def api(kube: KubeServer) -> AsyncIterator[Api]:
    """Plain HTTP to the server."""
    async with api_of(kube) as api:
        yield api


@pytest.fixture
async def things(api: Api) -> Api:
    """The same, with a kind of things."""
    await api.serve(thing_crd())
    return api


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of a server that has every CRD."""
    async with equipped_client(kube) as client:
        yield client


@pytest.fixture
async def ours(kube: KubeServer, client: KubeClient) -> AsyncIterator[CountingClient]:
    """What the status writer uses; it comes after the CRDs."""
    async with counting(kube.kubeconfig) as ours:
        yield ours


@pytest.fixture
async def writer(ledger: JetStreamLedger, database_url: str, ours: CountingClient) -> AsyncIterator[StatusWriter]:
    """The status writer, running."""
    async with status_writer(ledger, database_url, ours) as writer:
        yield writer


@pytest.fixture
def driver(ledger: JetStreamLedger, client: KubeClient) -> Driver:
    """A driver that publishes slices."""
    return Driver(ledger, client)


@pytest.fixture
def decided(ledger: JetStreamLedger) -> Decided:
    """What the inventory decides, in a ledger."""
    return Decided(ledger)


@pytest.fixture
async def run(
    kube: KubeServer,
    clean_nats_url: str,
    migrated_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command line on an empty ledger and an API server."""
    urls = {"NATS_URL": clean_nats_url, "DATABASE_URL": migrated_url}
    home = str(kube.kubeconfig.parent)
    for name, value in {**urls, "KUBECONFIG": str(kube.kubeconfig), "NO_COLOR": "1", "HOME": home}.items():
        monkeypatch.setenv(name, value)
    return aside(Cli(capsys))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster that helm can install the chart in, whose roles are kept to."""
    async with cluster_for_helm(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def values(clean_nats_url: str, database_url: str) -> dict[str, Any]:
    """The chart's values, with real servers."""
    return {**IMAGE, "servers": {"natsUrl": clean_nats_url, "databaseUrl": database_url}}


@pytest.fixture
async def maintainer(ledger: JetStreamLedger, client: KubeClient) -> Maintainer:
    found = Maintainer(ledger, client)
    await found.claim()
    return found


@pytest.fixture
async def pods(ledger: JetStreamLedger, client: KubeClient) -> GangPods:
    """The pods of gangs in a cluster that is the ledger's."""
    found = GangPods(ledger, client)
    await found.claim()
    return found


@pytest.fixture
async def writing(kube: KubeServer, client: KubeClient) -> AsyncIterator[SteppingClient]:
    async with counting(kube.kubeconfig, SteppingClient) as found:
        assert isinstance(found, SteppingClient)
        yield found
