"""A real kube-apiserver with etcd for tests, where `KUBEBUILDER_ASSETS` names the folder that has both.

It is the convention of envtest: the control plane alone, without kubelets, schedulers and controllers.
"""

import asyncio
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gpuledger.clock import system_clock
from gpuledger.kube.embedded.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.kube.embedded.tls import certificates
from support.kube import Kube

ASSETS = "KUBEBUILDER_ASSETS"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
ADMIN_TOKEN = "tests"


def assets() -> Path | None:
    """The folder with `kube-apiserver` and `etcd`, if one is named."""
    named = os.environ.get(ASSETS)
    return Path(named) if named else None


@asynccontextmanager
async def real_kube(directory: Path, programs: Path) -> AsyncIterator[Kube]:
    """An empty, real API server, at which everything is allowed."""
    client, peer, secure = _free_ports(3)
    etcd_url, url = f"http://{HOST}:{client}", f"https://{HOST}:{secure}"
    files = certificates(directory / "tls", HOST, system_clock())
    _write_keys(directory)
    async with AsyncExitStack() as stack:
        etcd = (
            *(str(programs / "etcd"), "--data-dir", str(directory / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url),
            *("--listen-peer-urls", f"http://{HOST}:{peer}"),
        )
        await stack.enter_async_context(_program(etcd, directory / "etcd.log"))
        apiserver = (
            *(str(programs / "kube-apiserver"), "--etcd-servers", etcd_url),
            *("--bind-address", HOST, "--secure-port", str(secure)),
            *("--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)),
            *("--token-auth-file", str(directory / "tokens.csv"), "--authorization-mode", "RBAC"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", str(directory / "sa.pub")),
            *("--service-account-signing-key-file", str(directory / "sa.key")),
            *("--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"),
        )
        await stack.enter_async_context(_program(apiserver, directory / "apiserver.log"))
        await _ready(url, files.ca)
        path = directory / "kubeconfig"
        write_kubeconfig(path, kubeconfig(url, files.ca.read_bytes(), ADMIN_TOKEN))
        yield Kube(url, path, ("--ca", str(files.ca), "--token", ADMIN_TOKEN))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _write_keys(directory: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "sa.key").write_bytes(private)
    (directory / "sa.pub").write_bytes(public)
    (directory / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,1,system:masters\n")


@asynccontextmanager
async def _program(command: tuple[str, ...], log: Path) -> AsyncIterator[None]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _ready(url: str, ca: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    async with asyncio.timeout(START_TIMEOUT_S):
        while not await asyncio.to_thread(_answers, request, context):  # noqa: ASYNC110 - another process gets ready
            await asyncio.sleep(0.1)


def _answers(request: urllib.request.Request, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(request, context=context, timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
