"""The embedded API server as a `KubeServer`: each start is a new one that reads what the last one saved."""

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

from gpuledger.local.kubeapi.persistence import load, save
from gpuledger.local.kubeapi.server import ApiServer
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.local.kubeapi.watching import BOOKMARK_EVERY_S
from gpuledger.runtime.clock import system_clock
from support.kube_server import HOST, KubeServer
from support.ports import free_ports


class EmbeddedKube(KubeServer):
    """An embedded API server; with `secure` it serves HTTPS, as a real one always does."""

    def __init__(
        self,
        directory: Path,
        *,
        secure: bool = False,
        bookmark_every_s: float = BOOKMARK_EVERY_S,
        allow_privileged: bool = False,
    ) -> None:
        files = certificates(directory / "tls", HOST, system_clock()) if secure else None
        (self._port,) = free_ports(1)
        scheme = "https" if secure else "http"
        super().__init__(directory, f"{scheme}://{HOST}:{self._port}", files.ca if files else None)
        self._tls: ssl.SSLContext | None = files.server_context() if files else None
        self._objects = directory / "objects.jsonl"
        self._bookmark_every_s = bookmark_every_s
        self._allow_privileged = allow_privileged
        self._serving = AsyncExitStack()

    async def start(self) -> None:
        server = ApiServer(bookmark_every_s=self._bookmark_every_s, allow_privileged=self._allow_privileged)
        load(server.store, self._objects)
        self._serving.callback(save, server.store, self._objects)
        await self._serving.enter_async_context(server.serving(HOST, self._port, self._tls))

    async def stop(self) -> None:
        await self._serving.aclose()

    async def forget_history(self) -> None:
        await self.stop()
        await self.start()
