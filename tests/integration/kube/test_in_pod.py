"""`gpuledger up` in a pod: it works with the cluster that the pod's service account lets it into."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.config import incluster_config

from gpuledger import settings
from gpuledger.cli.edge import EdgeOptions, kube_edge
from gpuledger.clock import system_clock
from gpuledger.kube import crds
from gpuledger.kube.client import KubeClient, open_client
from gpuledger.kube.embedded.tls import certificates
from gpuledger.kube.names import NODE_FEATURE_RULE, NODE_FEATURE_RULES, Resource
from gpuledger.settings import Settings, read_settings
from support.kube_accounts import ADMIN, AccountServer, config_file
from support.kube_fleet import create
from support.ledgers import eventually, jetstream_ledger
from support.projections import prepare, stop

HOST = "127.0.0.1"
NAMESPACE, NAME = "gpu-system", "gpuledger"
RBAC = "rbac.authorization.k8s.io"
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding")
EVERYTHING = {
    "metadata": {"name": NAME},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
}


class Pod(NamedTuple):
    """What a process in a pod finds, and the cluster around it."""

    settings: Settings
    server: AccountServer
    admin: KubeClient


@pytest.fixture
async def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    files, token = certificates(tmp_path / "tls", HOST, system_clock()), tmp_path / "token"
    token.write_text(f"{NAMESPACE}:{NAME}")
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT_TOKEN", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(files.ca))
    server = AccountServer()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.serving(HOST, 0, files.server_context()))
        config = config_file(tmp_path, url, ADMIN, files.ca.read_bytes())
        admin = await stack.enter_async_context(open_client(config))
        await crds.install(admin, [*crds.shipped(), *crds.foreign()])
        await create(admin, BINDINGS, EVERYTHING)
        environ = {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(urlsplit(url).port)}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield Pod(read_settings(environ, tmp_path / "data"), server, admin)


async def test_the_services_work_with_the_cluster_of_the_pod(pod: Pod, clean_nats_url: str, database_url: str) -> None:
    prepare(database_url)
    options = EdgeOptions(f"{HOST}:0")
    async with (
        jetstream_ledger(clean_nats_url) as ledger,
        kube_edge(pod.settings, options, ledger, database_url) as edge,
    ):
        assert edge.embedded is None
        tasks = [asyncio.create_task(one) for one in edge.work]
        try:
            await eventually(partial(_has_rule, pod.admin))
        finally:
            for task in tasks:
                await stop(task)
    assert pod.server.asked.keys() == {f"{NAMESPACE}:{NAME}"}
    assert not pod.settings.data_dir.exists()


async def _has_rule(admin: KubeClient) -> bool:
    found = (await admin.list(NODE_FEATURE_RULES)).items
    return [one["metadata"]["name"] for one in found] == [NODE_FEATURE_RULE]
