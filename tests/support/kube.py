"""An embedded Kubernetes API server for tests, on a free port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.local.kubeapi.server import ApiServer

HOST = "127.0.0.1"


class KubeApi(NamedTuple):
    """A running server and how to find it."""

    server: ApiServer
    url: str
    kubeconfig: Path


@asynccontextmanager
async def kube_api(directory: Path, server: ApiServer | None = None, port: int = 0) -> AsyncIterator[KubeApi]:
    """An empty server (or the given one) that serves until the block ends."""
    server = server or ApiServer()
    async with server.serving(HOST, port) as url:
        path = directory / "kubeconfig"
        write_kubeconfig(path, kubeconfig(url, None))
        yield KubeApi(server, url, path)
