"""The health gateway for tests: certificates of its own, an API server that reviews tokens, and monitors over TLS."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuledger.api.kinds import NAMESPACES
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.service import HealthGateway, Ports
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.pki import Issued, new_authority, new_serving
from gpuledger.events.envelope import Decoded, parse, with_payload
from gpuledger.events.health import NodeHealthReported
from gpuledger.ledger.api import Ledger
from gpuledger.local.servers.ports import HOST
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.gateway_settings import DEFAULT_AUDIENCE, GatewaySettings, TlsFiles
from gpuledger.runtime.settings import ANONYMOUS
from gpuledger.runtime.tasks import end
from support.auth_callout import bound_token
from support.embedded_kube import EmbeddedKube
from support.examples import ACCOUNTS
from support.health_monitor import Monitor
from support.kube_fleet import create
from support.ledgers import DEADLINE_S

NAMESPACE: Final = "monitors"
TENANT: Final = "tenant"
ACCOUNT: Final = "monitor"
LIFE: Final = timedelta(hours=1)
ANYWHERE: Final = f"{HOST}:0"


def pem(one: Issued) -> tuple[bytes, bytes]:
    """A certificate and its key."""
    key = one.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return one.certificate.public_bytes(serialization.Encoding.PEM), key


def client_of(
    authority: Issued, name: str, organization: str = "system:nodes", *, ends: timedelta = LIFE, dns: Sequence[str] = ()
) -> Issued:
    """A client's certificate."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
        x509.NameAttribute(NameOID.COMMON_NAME, name),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + ends)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(one) for one in dns])
        builder = builder.add_extension(names, critical=False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


class Gateways:
    """An API server, certificates in files, and as many gateways as a test starts."""

    def __init__(self, folder: Path, ledger: Ledger, kube: KubeClient, server: EmbeddedKube) -> None:
        self.folder = folder
        self.ledger = ledger
        self.kube = kube
        self.server = server
        self.authority = new_authority("clients", datetime.now(UTC), LIFE)
        self.servers = new_authority("servers", datetime.now(UTC), LIFE)
        self.trusted = pem(self.servers)[0]
        (folder / "clients.crt").write_bytes(pem(self.authority)[0])
        self.renew("first")

    @property
    def settings(self) -> GatewaySettings:
        files = TlsFiles(self.folder / "tls.crt", self.folder / "tls.key", self.folder / "clients.crt")
        return GatewaySettings(
            "",
            ANONYMOUS,
            files,
            ANYWHERE,
            ANYWHERE,
            reporters=frozenset({(NAMESPACE, "*")}),
            cluster_reporters=frozenset({(NAMESPACE, "cluster")}),
            certificates={"csp.example": "*", "rack-7.example": "n7"},
        )

    def renew(self, name: str) -> None:
        """Put a new certificate of the server into its files."""
        certificate, key = pem(new_serving(name, ["localhost", HOST], self.servers, datetime.now(UTC), LIFE))
        (self.folder / "tls.key").write_bytes(key)
        (self.folder / "tls.crt").write_bytes(certificate)

    @asynccontextmanager
    async def serving(
        self, bounds: GatewayBounds | None = None, *, clock: Clock = system_clock, **settings: Any
    ) -> AsyncIterator[Ports]:
        """One gateway that serves for the length of the block."""
        gateway = HealthGateway(self.ledger, self.kube, replace(self.settings, **settings), bounds, clock=clock)
        up: asyncio.Future[Ports] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(gateway.run(up.set_result))
        try:
            waiting: set[asyncio.Future[Any]] = {task, up}
            done, _ = await asyncio.wait(waiting, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            assert up in done, task.result() if task.done() else "it does not serve in time"
            yield up.result()
        finally:
            await end([task])

    async def token(
        self, node: str | None, *, namespace: str = NAMESPACE, account: str = ACCOUNT, audience: str = DEFAULT_AUDIENCE
    ) -> str:
        """The token of a monitor's pod on a node; without one, a token that is bound to nothing."""
        return await bound_token(self.kube, namespace, account, node, audience)

    async def events(self) -> list[Decoded]:
        """What the ledger has of reports."""
        found = [with_payload(parse(one.data)) async for batch in self.ledger.history() for one in batch]
        return [one for one in found if isinstance(one.data, NodeHealthReported)]

    async def reports(self) -> list[NodeHealthReported]:
        return [one.data for one in await self.events() if isinstance(one.data, NodeHealthReported)]

    @asynccontextmanager
    async def monitor(
        self, port: int | None, *, token: str = "", certificate: Issued | None = None, trusted: bytes | None = None
    ) -> AsyncIterator[Monitor]:
        """A monitor with a token or a certificate."""
        shown, key = (None, None) if certificate is None else pem(certificate)
        credentials = grpc.ssl_channel_credentials(trusted or self.trusted, key, shown)
        if token:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options) as channel:
            yield Monitor(channel)


@asynccontextmanager
async def gateways(folder: Path, ledger: Ledger) -> AsyncIterator[Gateways]:
    """An API server with accounts of monitors and of a tenant, and no gateway yet."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedKube(folder))
        kube = await stack.enter_async_context(open_client(server.kubeconfig))
        accounts: Mapping[str, Sequence[str]] = {NAMESPACE: (ACCOUNT, "cluster"), TENANT: (ACCOUNT,)}
        for namespace, names in accounts.items():
            await create(kube, NAMESPACES, {"metadata": {"name": namespace}})
            for name in names:
                await create(kube, ACCOUNTS, {"metadata": {"name": name, "namespace": namespace}})
        yield Gateways(folder, ledger, kube, server)
