"""The servers that the chart brings, as processes with the commands and Secrets of their pods."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from gpuledger.api.kinds import Resource
from gpuledger.runtime.settings import POSTGRES_BIN
from support.chart import NAME, NAMESPACE, Object
from support.chart_cluster import HOST, Cluster
from support.ports import free_ports
from support.tls_postgres import programs
from support.up import COMMAND, DEADLINE_S

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
NATS, POSTGRES = f"{NAME}-nats", f"{NAME}-postgres"


class PodProcess:
    """The container of a pod as a process, whose output is kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.output += line.decode()

    async def stop(self) -> None:
        """End it as the kubelet does."""
        if self.process.returncode is None:
            self.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await self.process.wait()
            await self._reading


class ChartServers:
    """The ports of the servers on this machine, and their processes."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self.nats_port, self._monitoring_port, self.postgres_port = free_ports(3)
        cluster.kubelet.files.places |= {
            f"{NATS}.{NAMESPACE}.svc:4222": f"{HOST}:{self.nats_port}",
            f"{POSTGRES}.{NAMESPACE}.svc:5432": f"{HOST}:{self.postgres_port}",
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[PodProcess, PodProcess]]:
        """NATS and PostgreSQL as their pods run them, but for the ports."""
        async with AsyncExitStack() as stack:
            yield (
                await stack.enter_async_context(self.nats()),
                await stack.enter_async_context(self._server(POSTGRES, ("--port", str(self.postgres_port)))),
            )

    def nats(self) -> AbstractAsyncContextManager[PodProcess]:
        """NATS alone."""
        ports = ("--port", str(self.nats_port), "--monitoring-port", str(self._monitoring_port))
        return self._server(NATS, ports)

    @asynccontextmanager
    async def _server(self, name: str, more: Sequence[str]) -> AsyncIterator[PodProcess]:
        tls = {POSTGRES_BIN: str(programs())}
        found = await self._cluster.client.get(STATEFUL_SETS, name, NAMESPACE)
        async with pod_process(self._cluster, found["spec"]["template"]["spec"], f"{name}-0", more, **tls) as process:
            status = {"status": {"replicas": 1, "readyReplicas": 1}}
            await self._cluster.client.merge_patch(STATEFUL_SETS, name, status, NAMESPACE, subresource="status")
            yield process


@asynccontextmanager
async def pod_process(
    cluster: Cluster, pod: Object, owner: str, more: Sequence[str] = (), **environ: str
) -> AsyncIterator[PodProcess]:
    """The container of a pod, with the account, environment and files that it has there, until the block ends."""
    (container,), kubelet = pod["containers"], cluster.kubelet
    variables = await kubelet.environment(NAMESPACE, pod, owner)
    folders = await kubelet.files.mount(NAMESPACE, pod, owner)
    arguments = [kubelet.files.here(one, folders) for one in container["args"]]
    pipe = asyncio.subprocess.PIPE
    process = PodProcess(
        await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, *more, env=variables | environ, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
    )
    try:
        yield process
        assert process.process.returncode is None, process.output
    finally:
        await process.stop()
