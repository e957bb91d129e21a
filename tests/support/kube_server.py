"""What a test may do with an API server, whichever it is: find it, stop it, start it again, have it forget.

Everything else goes over HTTP. `embedded_kube` and `real_kube` implement it, equally completely.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig

HOST = "127.0.0.1"


class KubeServer(ABC):
    """An API server of one test alone, empty at first. Stopped, it keeps its address and its objects.

    `ca` is the authority that signed its certificate, None where it speaks plain HTTP; `token` is the administrator's,
    empty where nobody is asked for one.
    """

    def __init__(self, directory: Path, url: str, ca: Path | None = None, token: str = "") -> None:
        self.url = url
        self.ca = ca
        self.token = token
        self.kubeconfig = directory / "kubeconfig"
        write_kubeconfig(self.kubeconfig, kubeconfig(url, ca.read_bytes() if ca else None, token))

    @abstractmethod
    async def start(self) -> None:
        """Serve, with what there was when it stopped. Who watched earlier may have to list again."""

    @abstractmethod
    async def stop(self) -> None:
        """Go away as in an outage: open requests break off, new ones are refused."""

    @abstractmethod
    async def forget_history(self) -> None:
        """Restart knowing nothing older than now: earlier revisions and pages of earlier lists are answered 410."""

    async def close(self) -> None:
        """Stop for good, and leave nothing behind."""
        await self.stop()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


NewKube = Callable[..., Awaitable[KubeServer]]
"""Starts another empty server of a test's kind; what is given is how an embedded one is to be."""
