"""A cluster that real helm installs the chart on, and the services as its Deployment's pods run them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gpuledger.api.kinds import DEPLOYMENTS, NAMESPACES, Resource
from gpuledger.edge.admission.settings import SERVICE, AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import NAME as WEBHOOKS
from gpuledger.edge.admission.webhook_configuration import configurations
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.runtime.settings import ADMISSION_LISTEN
from support.chart import CHART, NAME, NAMESPACE, RELEASE, HelmResult, Object, helm
from support.kube_accounts import ADMIN, THIS_TREE, AccountServer, Image, Kubelet, Permission, config_file
from support.kube_fleet import create, create_storage_class
from support.pod_files import PodFiles
from support.ports import free_ports
from support.servers import short_directory
from support.up import DEADLINE_S

WAIT = ("--timeout", f"{DEADLINE_S:.0f}s")
HOST = "127.0.0.1"


class Cluster:
    """A cluster with Node Feature Discovery's kinds and a namespace, and what helm does to it."""

    def __init__(
        self, config: Path, server: AccountServer, client: KubeClient, kubelet: Kubelet, webhooks_port: int
    ) -> None:
        self.config = config
        self.server = server
        self.webhooks_port = webhooks_port
        self.client = client
        self.kubelet = kubelet

    async def helm(
        self, verb: str, values: dict[str, Any] | None = None, *options: str, chart: Path = CHART
    ) -> HelmResult:
        """Run helm on the release."""
        given = () if verb == "uninstall" else (str(chart), *WAIT)
        arguments = (verb, RELEASE, *given, "--namespace", NAMESPACE, *options)
        return await asyncio.to_thread(helm, *arguments, values=values, kubeconfig=self.config)

    async def names(self, resource: Resource) -> set[str]:
        """What of a kind the release has."""
        label = f"app.kubernetes.io/instance={RELEASE}"
        found = (await self.client.list(resource)).items
        return {one["metadata"]["name"] for one in found if label in _labels(one)}

    async def have_webhooks(self) -> None:
        """The configurations are there, as the services apply them."""
        settings = AdmissionSettings(namespace=NAMESPACE)
        for resource, configuration in configurations(settings, WebhookAddress(SERVICE), b"", "token"):
            await self.client.apply(resource, configuration)

    async def webhooks(self) -> list[Object]:
        """The webhooks that the API server asks."""
        found = [one for kind in (MUTATING, VALIDATING) for one in (await self.client.list(kind)).items]
        return [hook for one in found if one["metadata"]["name"] == WEBHOOKS for hook in one["webhooks"]]

    async def has_webhooks(self) -> bool:
        """Whether the API server calls any."""
        return bool(await self.webhooks())

    async def pod_environment(self) -> dict[str, str]:
        """That of the Deployment's pods; the webhooks listen where this API server finds them."""
        pod = (await self.client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["template"]["spec"]
        environ = await self.kubelet.environment(NAMESPACE, pod, NAME)
        return environ | ({ADMISSION_LISTEN: f"{HOST}:{self.webhooks_port}"} if ADMISSION_LISTEN in environ else {})

    def requested_by(self, account: str) -> set[Permission]:
        """What an account has asked."""
        return self.server.requested[f"{NAMESPACE}:{account}"]


def _labels(obj: Object) -> list[str]:
    return [f"{key}={value}" for key, value in (obj["metadata"].get("labels") or {}).items()]


@asynccontextmanager
async def cluster_for_helm(directory: Path) -> AsyncIterator[Cluster]:
    """A cluster with nothing released, until the block ends."""
    (webhooks_port,) = free_ports(1)
    server = AccountServer({(NAMESPACE, SERVICE): (HOST, webhooks_port)})
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.serving(HOST, 0))
        config = config_file(directory, url, ADMIN)
        client = await stack.enter_async_context(open_client(config))
        await crds.install(client, crds.foreign())
        await create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await create_storage_class(client, "standard")
        files = PodFiles(client, stack.enter_context(short_directory()))
        kubelet = await stack.enter_async_context(Kubelet(client, directory, files).running())
        yield Cluster(config, server, client, kubelet, webhooks_port)


@asynccontextmanager
async def serving(environ: dict[str, str], image: Image = THIS_TREE) -> AsyncIterator[asyncio.subprocess.Process]:
    """`gpuledger up` as the Deployment's pods run it, but for the port, which it prints."""
    command = (*image.command, "up", "--listen", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
        assert process.returncode is None
    finally:
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()
