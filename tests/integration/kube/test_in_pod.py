"""`gpuledger up` in a pod: it works with the cluster that the pod's service account lets it into."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.config import incluster_config
from structlog.testing import capture_logs

from gpuledger.api.kinds import (
    CONFIG_MAPS,
    GPU_DEVICES,
    GPU_POOLS,
    LEDGER_CONFIG_MAP,
    LEDGER_CONFIG_MAP_NAMESPACE,
    NAMESPACES,
    NODE_FEATURE_RULE,
    NODE_FEATURE_RULES,
    PODS,
    SECRETS,
    Resource,
)
from gpuledger.compose.edge import Edge, EdgeParts, kube_edge
from gpuledger.compose.up import health_of
from gpuledger.edge.admission.settings import SERVICE
from gpuledger.edge.admission.webhook_configuration import NAME as WEBHOOKS
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.edge.webhooks.configuration import MUTATING
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogReplacedError
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import Supervision
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime import settings
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Settings, WebhookSettings, read_settings
from gpuledger.tools.errors import ToolError
from support.kube_accounts import ADMIN, AccountServer, config_file
from support.kube_fleet import create
from support.ledgers import jetstream_ledger
from support.ports import free_ports
from support.projections import execute, publish, stop
from support.runners import failures
from support.up import DEADLINE_S, gpuledger
from support.waiting import eventually

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
    admin_config: Path


def parts(ledger: Ledger, database_url: str) -> EdgeParts:
    """The parts of an edge that must not start an API server of its own."""
    return EdgeParts(ledger, database_url, lambda: pytest.fail("there is a cluster"), None, pytest.fail)


@pytest.fixture
async def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pod]:
    files, token = certificates(tmp_path / "tls", HOST, system_clock()), tmp_path / "token"
    token.write_text(f"{NAMESPACE}:{NAME}")
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT_TOKEN", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(files.ca))
    (webhooks_port,) = free_ports(1)
    server = AccountServer({(NAMESPACE, SERVICE): (HOST, webhooks_port)})
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.serving(HOST, 0, files.server_context()))
        config = config_file(tmp_path, url, ADMIN, files.ca.read_bytes())
        admin = await stack.enter_async_context(open_client(config))
        await crds.install(admin, [*crds.shipped(), *crds.foreign()])
        await create(admin, BINDINGS, EVERYTHING)
        await create(admin, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        environ = {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(urlsplit(url).port)}
        environ |= {"GPULEDGER_ADMISSION_LISTEN": f"{HOST}:{webhooks_port}", "GPULEDGER_NAMESPACE": NAMESPACE}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield Pod(read_settings(environ, tmp_path / "data"), server, admin, config)


@asynccontextmanager
async def working(pod: Pod, ledger: Ledger, database_url: str) -> AsyncIterator[Edge]:
    """The edge of `gpuledger up` at work."""
    async with kube_edge(pod.settings, parts(ledger, database_url)) as edge:
        tasks = [asyncio.create_task(one) for one in edge.work]
        try:
            yield edge
        finally:
            for task in tasks:
                await stop(task)


async def test_the_services_work_with_the_cluster_of_the_pod(pod: Pod, clean_nats_url: str, migrated_url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger, working(pod, ledger, migrated_url) as edge:
        assert edge.kubeconfig is None
        await eventually(partial(_has_rule, pod.admin))
    assert pod.server.requested.keys() == {f"{NAMESPACE}:{NAME}"}
    assert not pod.settings.data_dir.exists()


async def _has_rule(admin: KubeClient) -> bool:
    found = (await admin.list(NODE_FEATURE_RULES)).items
    return [one["metadata"]["name"] for one in found] == [NODE_FEATURE_RULE]


def _pod(name: str, resource: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: "1"}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


async def _refusal(admin: KubeClient, given: dict[str, Any]) -> str:
    try:
        await create(admin, PODS, given)
    except KubeError as error:
        return str(error)
    return ""


async def _is_refused(admin: KubeClient) -> bool:
    return "PoolNotFound: " in await _refusal(admin, _pod("early", "gpu.deckhouse.io/x"))


async def test_the_webhooks_are_called_through_their_service_and_keep_nobody_else_waiting(
    pod: Pod, clean_nats_url: str, migrated_url: str
) -> None:
    admin = pod.admin
    await create(admin, GPU_DEVICES, {"metadata": {"name": "d"}})
    pool = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"resource": {"unit": "Card"}}}
    await create(admin, GPU_POOLS, pool)
    async with jetstream_ledger(clean_nats_url) as ledger, working(pod, ledger, migrated_url) as edge:
        await eventually(partial(_is_refused, admin))
        assert edge.webhooks is not None
        assert edge.webhooks.health().is_ready
        hook, _ = (await admin.get(MUTATING, WEBHOOKS))["webhooks"]
        where = {key: hook["clientConfig"]["service"][key] for key in ("name", "namespace")}
        assert where == {"name": SERVICE, "namespace": NAMESPACE}
    assert await _refusal(admin, _pod("plain", "cpu")) == ""
    assert "failed calling webhook" in await _refusal(admin, _pod("gpu", "gpu.deckhouse.io/x"))
    await admin.merge_patch(GPU_POOLS, "p", {"metadata": {"finalizers": None}}, "default")
    await admin.delete(PODS, "plain", "default")
    await admin.delete(GPU_POOLS, "p", "default")
    for secret in (await admin.list(SECRETS)).items:
        await admin.delete(SECRETS, secret["metadata"]["name"], secret["metadata"]["namespace"])
    for device in (await admin.list(GPU_DEVICES)).items:
        await admin.delete(GPU_DEVICES, device["metadata"]["name"])
    assert not (await admin.list(GPU_POOLS)).items
    remove = partial(gpuledger, pod.settings.data_dir, "admission", "remove", "--kubeconfig", str(pod.admin_config))
    first, second = await asyncio.to_thread(remove), await asyncio.to_thread(remove)
    assert b"MutatingWebhookConfiguration, ValidatingWebhookConfiguration" in first.stdout + first.stderr
    assert (second.returncode, b"nothing to remove" in second.stdout + second.stderr) == (0, True)
    assert await _refusal(admin, _pod("gpu", "gpu.deckhouse.io/x")) == ""


async def test_a_pod_is_not_ready_before_its_own_webhooks_answer(
    pod: Pod, clean_nats_url: str, migrated_url: str
) -> None:
    """Another replica has told the API server of the webhooks: it calls whatever pod is ready."""
    async with jetstream_ledger(clean_nats_url) as ledger:
        healthy = Supervision((), ledger, migrated_url, checked_at=system_clock())
        async with kube_edge(pod.settings, parts(ledger, migrated_url)) as edge:
            before = health_of(healthy, edge)
            for work in edge.work:
                work.close()
            assert (before.ok, before.document["status"]) == (False, "starting")
            assert before.document["reason"] == "The webhooks do not answer yet (folding)."
        async with working(pod, ledger, migrated_url) as edge:

            async def is_ready() -> bool:
                return health_of(healthy, edge).ok

            await eventually(is_ready)
            assert await _is_refused(pod.admin)


async def test_the_services_leave_the_cluster_and_a_log_alone_that_the_rows_do_not_follow(
    pod: Pod, clean_nats_url: str, migrated_url: str
) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        head = await publish(ledger, failures(range(1, 4)))
        await Runner(DevicesProjection(), ledger, migrated_url).catch_up(head)
        execute(migrated_url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
        async with working(pod, ledger, migrated_url) as edge:

            async def are_reported() -> bool:
                admission = edge.webhooks and edge.webhooks.health().reason
                return edge.writer.health().state == "log-changed" and "no ledger yet" in (admission or "")

            await eventually(are_reported)
            standby = Supervision((), ledger, migrated_url, checked_at=system_clock())
            health = health_of(standby, edge)
            assert (standby.healthy, health.ok, health.document["status"]) == (True, False, "failing")
            assert "The log was replaced" in str(health.document["reason"])
        with pytest.raises(LogReplacedError):
            async with kube_edge(pod.settings, parts(ledger, migrated_url)._replace(takes_over=True)):
                pass
        assert await ledger.head() == head
    with pytest.raises(NotFoundError):
        await pod.admin.get(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)


async def test_a_cluster_that_has_no_way_to_us_gets_no_webhooks(
    pod: Pod, clean_nats_url: str, migrated_url: str
) -> None:
    far = pod._replace(settings=replace(pod.settings, webhooks=WebhookSettings()))
    with capture_logs() as logs:
        async with jetstream_ledger(clean_nats_url) as ledger, working(far, ledger, migrated_url) as edge:
            assert edge.webhooks is None
            await eventually(partial(_has_rule, pod.admin))
    (entry,) = (one for one in logs if one["event"] == "up.no-admission")
    assert "GPULEDGER_ADMISSION_LISTEN" in entry["reason"]
    assert (await pod.admin.list(MUTATING)).items == []


async def test_a_port_in_use_is_reported(pod: Pod, clean_nats_url: str, migrated_url: str) -> None:
    taken = await asyncio.start_server(lambda *_: None, HOST, 0)
    async with taken, jetstream_ledger(clean_nats_url) as ledger:
        listen = f"{HOST}:{taken.sockets[0].getsockname()[1]}"
        settings = replace(pod.settings, webhooks=WebhookSettings(listen))
        async with kube_edge(settings, parts(ledger, migrated_url)) as edge:
            tasks = [asyncio.create_task(one) for one in edge.work]
            async with asyncio.timeout(DEADLINE_S):
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            (failed,) = done
            with pytest.raises(ToolError, match=f"Cannot listen on {listen}.*GPULEDGER_ADMISSION_LISTEN"):
                await failed
            for task in tasks:
                if task is not failed:
                    await stop(task)
