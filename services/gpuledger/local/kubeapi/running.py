"""Runs the server for a data directory, which keeps its objects and its kubeconfig."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.local.kubeapi.persistence import keep_saved, load
from gpuledger.local.kubeapi.server import ApiServer

HOST = "127.0.0.1"
OBJECTS = "kube/objects.jsonl"
KUBECONFIG = "kubeconfig"


class EmbeddedKube(NamedTuple):
    """A running server and its kubeconfig."""

    url: str
    kubeconfig: Path


@asynccontextmanager
async def embedded_kube(data_dir: Path, host: str = HOST, port: int = 0) -> AsyncIterator[EmbeddedKube]:
    """Load the objects of the data directory, and serve and save them until the block ends.

    It stands for a whole cluster, whose installers allow privileged containers.

    Raises:
        ObjectsFileError: the saved objects cannot be read.
        OSError: the address is not available, or a file cannot be written.
    """
    server, objects = ApiServer(allow_privileged=True), data_dir / OBJECTS
    load(server.store, objects)
    saving = asyncio.create_task(keep_saved(server.store, objects))
    try:
        async with server.serving(host, port) as url:
            path = data_dir / KUBECONFIG
            write_kubeconfig(path, kubeconfig(url, None))
            try:
                yield EmbeddedKube(url, path)
            finally:
                path.unlink(missing_ok=True)
    finally:
        saving.cancel()
        with suppress(asyncio.CancelledError):
            await saving
