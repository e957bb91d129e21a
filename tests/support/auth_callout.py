"""Agents that log in by their service account, for tests: NATS as `gpuledger nats-config` has it, and the service."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuledger.api.kinds import NAMESPACES, PODS, TOKEN_REVIEWS
from gpuledger.compose.auth_callout import CalloutProcess
from gpuledger.edge.authcallout.issuer_key import issuer_of
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.edge.kube.transport import KubeRequest
from gpuledger.ledger.nkeys import KeyKind, seed_text
from gpuledger.ledger.permissions import CALLOUT_USER, Role, role_user
from gpuledger.ledger.server_config import CALLOUT_LOGIN, ServerConfig, config_text
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from gpuledger.runtime.settings import CalloutSettings, NatsIdentity
from support.embedded_kube import EmbeddedKube
from support.examples import ACCOUNTS
from support.kube_fleet import create
from support.servers import short_directory
from support.waiting import eventually

NAMESPACE = "gpu"
ACCOUNT = "agent"
AUDIENCE = "gpuledger-agents"
PASSWORDS = {login: f"p-{login}" for login in (*Role, CALLOUT_LOGIN)}


class CalloutServer(NatsServer):
    """A NATS server that asks the service about every login without a password."""

    def __init__(self, directory: Path, issuer: str) -> None:
        super().__init__(directory)
        self._issuer = issuer

    @property
    def url(self) -> str:
        return self.url_of(Role.OPERATOR)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def url_of(self, role: Role) -> str:
        return f"nats://{role_user(role)}:{PASSWORDS[role]}@{self.address}"

    def _configuration_text(self, port: int) -> str:
        return config_text(
            ServerConfig(
                f"{HOST}:{port}",
                f"{HOST}:{self._monitoring_port}",
                self.directory / "jetstream",
                self._server_name,
                PASSWORDS,
                self._issuer,
            )
        )


class Callouts:
    """The server, an API server, and as many services as a test starts."""

    def __init__(self, folder: Path, nats: CalloutServer, kube: EmbeddedKube, admin: KubeClient, seed: Path) -> None:
        self.folder = folder
        self.nats = nats
        self.kube = kube
        self.admin = admin
        self._seed = seed

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[CalloutProcess]:
        """One service, up for the length of the block."""
        password = self.folder / "callout.login"
        password.write_text(f"user: {CALLOUT_USER}\npassword: {PASSWORDS[CALLOUT_LOGIN]}\n")
        process = CalloutProcess(
            CalloutSettings(
                f"nats://{self.nats.address}",
                NatsIdentity(password),
                self._seed,
                (NAMESPACE, ACCOUNT),
                AUDIENCE,
                f"{HOST}:0",
                str(self.kube.kubeconfig),
            )
        )
        task = asyncio.create_task(process.run(lambda _: None))

        async def is_up() -> bool:
            if task.done():
                task.result()
            return process.health().ok

        try:
            await eventually(is_up)
            yield process
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def token(self, node: str | None, *, account: str = ACCOUNT, audience: str = AUDIENCE) -> str:
        """The token of the agent's pod on a node; without one, a token that is bound to nothing."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 3600}
        if node is not None:
            name = f"{account}-{node}"
            container = {"name": "agent", "image": "agent"}
            pod = {"serviceAccountName": account, "nodeName": node, "containers": [container]}
            with suppress(AlreadyExistsError):
                await create(self.admin, PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": pod})
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": name}
        path = f"{ACCOUNTS.path(NAMESPACE)}/{account}/token"
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenRequest", "spec": spec}
        answer = await self.admin.send(KubeRequest("request a token", "POST", path, {}, body))
        return str(answer["status"]["token"])

    def file(self, name: str, token: str) -> Path:
        """A file with a token, as a kubelet projects it."""
        path = self.folder / f"{name}.token"
        fresh = path.with_suffix(".part")
        fresh.write_text(token)
        fresh.replace(path)
        return path


@contextmanager
def callout_server(issuer: str) -> Iterator[CalloutServer]:
    with short_directory() as directory, CalloutServer(directory / "nats", issuer) as server:
        yield server


@asynccontextmanager
async def callouts() -> AsyncIterator[Callouts]:
    """A NATS server, an API server with the agents' account and another one, and no service yet."""
    key = Ed25519PrivateKey.generate()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_directory())
        seed = folder / "seed"
        seed.write_text(seed_text(KeyKind.ACCOUNT, key.private_bytes_raw()))
        nats = stack.enter_context(callout_server(issuer_of(key)))
        kube = await stack.enter_async_context(EmbeddedKube(folder))
        admin = await stack.enter_async_context(open_client(kube.kubeconfig))
        await create(admin, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for name in (ACCOUNT, "other"):
            await create(admin, ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}})
        yield Callouts(folder, nats, kube, admin, seed)
