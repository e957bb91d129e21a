"""Agents that log in by their service account, for tests: NATS as `gpuledger nats-config` has it, and the service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gpuledger.api.kinds import NAMESPACES, PODS, TOKEN_REVIEWS
from gpuledger.cli.commands.nats_setup import nats_config, nats_keys
from gpuledger.compose.auth_callout import CalloutProcess
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.edge.kube.transport import KubeRequest
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.permissions import CALLOUT_USER, Role, role_user
from gpuledger.ledger.server_config import CALLOUT_LOGIN
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from gpuledger.runtime.settings import (
    ANONYMOUS,
    CALLOUT_ACCOUNT,
    CALLOUT_ACCOUNT_SEED,
    CALLOUT_SEED,
    CALLOUT_SERVICE_ACCOUNT,
    CALLOUT_XKEY,
    KUBECONFIG,
    METRICS_LISTEN,
    NATS_CREDENTIALS,
    NATS_URL,
    CalloutSettings,
    NatsIdentity,
)
from support.embedded_kube import EmbeddedKube
from support.examples import ACCOUNTS
from support.kube_fleet import create
from support.servers import short_directory
from support.waiting import eventually

NAMESPACE = "gpu"
ACCOUNT = "agent"
AUDIENCE = "gpuledger-agents"
PASSWORDS = {login: f"p-{login}" for login in (*Role, CALLOUT_LOGIN)}


class Setup(NamedTuple):
    """Options of `nats-config` for a server, and what the service has. `logins` are credentials by role."""

    options: dict[str, Any]
    settings: CalloutSettings
    logins: Path | None = None

    def identity(self, role: Role) -> NatsIdentity:
        return ANONYMOUS if self.logins is None else NatsIdentity(self.logins / f"{role}.creds")


def by_configuration(folder: Path, *, xkey: bool = False) -> Setup:
    """A server with users and passwords."""
    keys, login, passwords = folder / "keys", folder / "callout.login", folder / "passwords"
    nats_keys(keys, xkey=xkey)
    passwords.mkdir()
    for name, password in PASSWORDS.items():
        (passwords / name).write_text(password)
    login.write_text(f"user: {CALLOUT_USER}\npassword: {PASSWORDS[CALLOUT_LOGIN]}\n")
    options: dict[str, Any] = {"passwords": passwords, "issuer": (keys / "issuer").read_text().strip()}
    options |= {"xkey": keys / "xkey.pub"} if xkey else {}
    return Setup(options, replace(_settings(login, keys / "seed"), xkey=keys / "xkey" if xkey else None))


def by_operator(folder: Path, *, xkey: bool = False, resolver: bool = False) -> Setup:
    """A server in operator mode, which has the accounts' JWTs in its configuration or in a folder."""
    keys = folder / "keys"
    nats_keys(keys, xkey=xkey, operator=True)
    options: dict[str, Any] = {"jwts": keys / "server"}
    options |= {"resolver": keys / "server" / "accounts"} if resolver else {}
    service = keys / "callout"
    settings = replace(
        _settings(service / "callout.creds", service / "seed"),
        account=(service / "account").read_text().strip(),
        account_seed=service / "account-seed",
        xkey=service / "xkey" if xkey else None,
    )
    return Setup(options, settings, keys / "logins")


def _settings(login: Path, seed: Path) -> CalloutSettings:
    return CalloutSettings("", NatsIdentity(login), seed, (NAMESPACE, ACCOUNT), AUDIENCE, f"{HOST}:0", None)


class CalloutServer(NatsServer):
    """A NATS server that asks the service about every login without a password."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        super().__init__(directory)
        self.setup = setup

    @property
    def url(self) -> str:
        return self.url_of(Role.OPERATOR)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def url_of(self, role: Role) -> str:
        if self.setup.logins is not None:
            return f"nats://{self.address}"
        return f"nats://{role_user(role)}:{PASSWORDS[role]}@{self.address}"

    def connected_as(self, role: Role) -> AbstractAsyncContextManager[Connection]:
        return connected(self.url_of(role), name=role, identity=self.setup.identity(role))

    def _configuration_text(self, port: int) -> str:
        written = self.directory / "written.conf"
        nats_config(
            **self.setup.options,
            listen=f"{HOST}:{port}",
            monitor=f"{HOST}:{self._monitoring_port}",
            store=self.directory / "jetstream",
            server_name=self._server_name,
            output=written,
        )
        return written.read_text()


class Callouts:
    """The server, an API server, and as many services as a test starts."""

    def __init__(self, folder: Path, nats: CalloutServer, kube: EmbeddedKube, admin: KubeClient) -> None:
        self.folder = folder
        self.nats = nats
        self.kube = kube
        self.admin = admin
        self.output: list[str] = []
        """What services have reported."""

    @property
    def settings(self) -> CalloutSettings:
        """The settings of a service that serves."""
        url, kubeconfig = f"nats://{self.nats.address}", str(self.kube.kubeconfig)
        return replace(self.nats.setup.settings, nats_url=url, kubeconfig=kubeconfig)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[CalloutProcess]:
        """One service, up for the length of the block."""
        async with self.running(self.settings) as process:

            async def is_up() -> bool:
                return process.health().ok

            await eventually(is_up)
            yield process

    @asynccontextmanager
    async def running(self, settings: CalloutSettings) -> AsyncIterator[CalloutProcess]:
        """One service with these settings, which may not be able to serve."""
        process = CalloutProcess(settings)
        task = asyncio.create_task(process.run(self.output.append))
        try:
            yield process
            assert not task.done(), task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])

    def environ(self) -> dict[str, str]:
        """The same settings, for a service in a process of its own."""
        settings = self.settings
        found = {
            NATS_URL: settings.nats_url,
            NATS_CREDENTIALS: settings.nats_identity.credentials,
            CALLOUT_SEED: settings.seed,
            CALLOUT_ACCOUNT: settings.account,
            CALLOUT_ACCOUNT_SEED: settings.account_seed,
            CALLOUT_XKEY: settings.xkey,
            CALLOUT_SERVICE_ACCOUNT: "/".join(settings.service_account),
            METRICS_LISTEN: settings.metrics_listen,
            KUBECONFIG: settings.kubeconfig,
        }
        return {name: str(value) for name, value in found.items() if value}

    async def token(self, node: str | None, *, account: str = ACCOUNT, audience: str = AUDIENCE) -> str:
        """The token of the agent's pod on a node; without one, a token that is bound to nothing."""
        return await bound_token(self.admin, NAMESPACE, account, node, audience)

    def file(self, name: str, token: str) -> Path:
        """A file with a token, as a kubelet projects it."""
        path = self.folder / f"{name}.token"
        fresh = path.with_suffix(".part")
        fresh.write_text(token)
        fresh.replace(path)
        return path


async def bound_token(
    admin: KubeClient, namespace: str, account: str, node: str | None, audience: str = AUDIENCE
) -> str:
    """The token of an account's pod on a node; without one, a token that is bound to nothing."""
    spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 3600}
    if node is not None:
        name = f"{account}-{node}"
        container = {"name": "agent", "image": "agent"}
        pod = {"serviceAccountName": account, "nodeName": node, "containers": [container]}
        with suppress(AlreadyExistsError):
            await create(admin, PODS, {"metadata": {"name": name, "namespace": namespace}, "spec": pod})
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": name}
    path = f"{ACCOUNTS.path(namespace)}/{account}/token"
    body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenRequest", "spec": spec}
    answer = await admin.send(KubeRequest("request a token", "POST", path, {}, body))
    return str(answer["status"]["token"])


@asynccontextmanager
async def callouts(prepare: Callable[[Path], Setup] = by_configuration) -> AsyncIterator[Callouts]:
    """A NATS server, an API server with the agents' account and another one, and no service yet."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_directory())
        nats = stack.enter_context(CalloutServer(folder / "nats", prepare(folder)))
        kube = await stack.enter_async_context(EmbeddedKube(folder))
        admin = await stack.enter_async_context(open_client(kube.kubeconfig))
        await create(admin, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for name in (ACCOUNT, "other"):
            await create(admin, ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}})
        yield Callouts(folder, nats, kube, admin)
