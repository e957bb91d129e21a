"""A real kube-apiserver with etcd as a `KubeServer`, where `KUBEBUILDER_ASSETS` names the folder that has both.

It is the convention of envtest: the control plane alone, without kubelets, schedulers and controllers. Of what
controllers do, only the service account `default` of each namespace is made here, because no pod is let in without it.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import aiohttp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gpuledger.api.kinds import NAMESPACES, Resource
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.edge.kube.reflector import ChangeBatch, Listed, Reflector
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import system_clock
from support.etcd import Etcd
from support.kube_http import api_of
from support.kube_server import HOST, KubeServer
from support.ports import free_ports
from support.processes import Program

ASSETS = "KUBEBUILDER_ASSETS"
START_TIMEOUT_S = 60.0
POLL_S = 0.1
ADMIN_TOKEN = "tests"
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
WATCHED = (
    *(f"/api/v1/{plural}" for plural in ("configmaps", "namespaces", "nodes", "pods", "secrets")),
    *("/apis/events.k8s.io/v1/events", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
)
"""What the tests watch. Before Kubernetes 1.36 a server was ready a moment before it could be watched."""


def assets() -> Path | None:
    """The folder with `kube-apiserver` and `etcd`, if one is named."""
    named = os.environ.get(ASSETS)
    return Path(named) if named else None


class RealKube(KubeServer):
    """A real API server, at which its administrator may do everything.

    Stopped, its etcd runs on; the process is killed, for nothing that matters is in it.
    """

    def __init__(self, directory: Path, programs: Path, *, allow_privileged: bool = False) -> None:
        files = certificates(directory / "tls", HOST, system_clock())
        port, etcd_port = free_ports(2)
        super().__init__(directory, f"https://{HOST}:{port}", files.ca, ADMIN_TOKEN)
        _write_credentials(directory)
        self._etcd = Etcd(programs / "etcd", directory, etcd_port)
        self._program = Program(
            (
                *(str(programs / "kube-apiserver"), "--etcd-servers", self._etcd.url),
                *("--bind-address", HOST, "--advertise-address", HOST, "--secure-port", str(port)),
                *("--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)),
                *("--token-auth-file", str(directory / "tokens.csv"), "--authorization-mode", "RBAC"),
                *("--service-account-issuer", "https://kubernetes.default.svc"),
                *("--service-account-key-file", str(directory / "sa.pub")),
                *("--service-account-signing-key-file", str(directory / "sa.key")),
                *("--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none"),
                *(("--allow-privileged",) if allow_privileged else ()),
            ),
            directory / "apiserver.log",
        )
        self._accounts: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._etcd.start()
        await self._program.start()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while self._program.running and not await self._is_ready():  # noqa: ASYNC110 - it gets ready
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(self._program.complaint()) from None
        assert self._program.running, self._program.complaint()
        self._accounts = asyncio.create_task(_make_accounts(self.kubeconfig))

    async def stop(self) -> None:
        if self._accounts is not None:
            self._accounts.cancel()
            with suppress(asyncio.CancelledError):
                await self._accounts
        await self._program.kill()

    async def forget_history(self) -> None:
        """Compacting alone would leave what the server has in its watch caches, restarting alone what etcd has."""
        await self.stop()
        await self._etcd.compact()
        await self.start()

    async def close(self) -> None:
        await self.stop()
        await self._etcd.stop()

    async def _is_ready(self) -> bool:
        try:
            async with api_of(self) as api:
                answers = [(await api("GET", path)).code for path in ("/readyz", "/api/v1/namespaces/default")]
                return answers == [200, 200] and all([await api.is_watched(path) for path in WATCHED])
        except (aiohttp.ClientError, TimeoutError):
            return False


async def _make_accounts(kubeconfig: Path) -> None:
    """Give each namespace its service account, as the controller manager does."""
    async with open_client(kubeconfig) as client:
        reflector = Reflector(client, NAMESPACES, _name, backoff=Backoff(first_s=0.05, max_s=0.5))
        async with aclosing(reflector.run()) as run:
            async for one in run:
                if isinstance(one, Listed):
                    await _make_account(client, one.objects)
                elif isinstance(one, ChangeBatch):
                    await _make_account(client, (change.object for change in one.changes if change.type == "ADDED"))


async def _make_account(client: KubeClient, namespaces: Iterable[str]) -> None:
    for namespace in namespaces:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        }
        with suppress(AlreadyExistsError):
            await client.create(SERVICE_ACCOUNTS, account)


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _write_credentials(directory: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "sa.key").write_bytes(private)
    (directory / "sa.pub").write_bytes(public)
    (directory / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,1,system:masters\n")
