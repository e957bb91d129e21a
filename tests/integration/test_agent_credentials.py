"""Every way to authenticate an agent that docs/agent-credentials.md describes, on real servers."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuledger.edge.kube.pki import Issued, certificate_pem, key_pem, new_authority, new_serving
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.credentials import ANONYMOUS, NatsIdentity
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError, PermissionDeniedError
from gpuledger.ledger.permissions import (
    AGENTS_ACCOUNT,
    LEDGER_ACCOUNT,
    agent_permissions,
    desired_devices_subject,
    exports_text,
    imports_text,
    permissions_text,
    templated_permissions,
    user_name,
)
from gpuledger.ledger.stream import ensure_stream
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from support.ledgers import DEADLINE_S
from support.nkeys import ACCOUNT, JETSTREAM, OPERATOR, UNLIMITED, USER, Key, credentials
from support.servers import short_directory

NODE, OTHER = "gpu-01.example.com", "gpu-02.example.com"
HANDSHAKE_MAX_S = 30
"""How long the server waits for a client's part of a TLS handshake; its own two seconds are short on a busy machine."""

WANTED = desired_devices_subject(NODE)
FACT = Outgoing(f"ledger.node.{user_name(NODE)}.device.d.seen", "f", b"{}")
FORGED = Outgoing(f"ledger.node.{user_name(OTHER)}.device.d.seen", "g", b"{}")


class WrittenServer(NatsServer):
    """A NATS server with a configuration that the test writes; it answers once its port does."""

    def __init__(self, directory: Path, logins: str) -> None:
        super().__init__(directory)
        self._logins = logins

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def _configuration_text(self, port: int) -> str:
        basics = {key: value for key, value in self._configuration(port).items() if key != "authorization"}
        return "\n".join((*(f"{key}: {json.dumps(value)}" for key, value in basics.items()), self._logins))

    def _probe(self) -> str | None:
        try:
            with socket.create_connection((HOST, self.port), 1.0) as connection:
                return None if connection.recv(4) == b"INFO" else "it does not greet"
        except OSError as error:
            return str(error)


@contextmanager
def written_server(logins: str) -> Iterator[WrittenServer]:
    with short_directory() as directory, WrittenServer(directory / "nats", logins) as server:
        yield server


async def make_ledger(url: str, identity: NatsIdentity = ANONYMOUS) -> None:
    """A ledger with one list of what is wanted."""
    async with connected(url, name="services", identity=identity) as connection:
        await ensure_stream(connection)
        await connection.jetstream.publish(WANTED, b"a list")


async def does_what_it_may(url: str, identity: NatsIdentity) -> None:
    """An agent that is let in writes, reads what is wanted, and does nothing else."""
    async with asyncio.timeout(DEADLINE_S), connect_edge(url, name="agent", node=NODE, identity=identity) as edge:
        assert (await edge.publish(FACT)).sequence == 2
        newest = await edge.newest(WANTED)
        assert newest is not None
        assert newest.data == b"a list"
        with pytest.raises(PermissionDeniedError, match="does not let us publish to"):
            await edge.publish(FORGED)


async def is_not_let_in(url: str, identity: NatsIdentity, recorded: str) -> None:
    with pytest.raises(LedgerUnavailableError, match=recorded):
        async with connect_edge(url, name="agent", node=NODE, identity=identity, connect_timeout_s=1.5):
            pass


def accounts(agent: str) -> str:
    """The accounts of the documentation, with one agent's user."""
    return (
        f"accounts: {{ {LEDGER_ACCOUNT}: {{ jetstream: enabled\n users: [ {{ user: services, password: s }} ]\n"
        f" {exports_text()} }}\n {AGENTS_ACCOUNT}: {{ users: [ {{ {agent}\n {permissions_text(agent_permissions(NODE))}"
        f" }} ]\n {imports_text()} }} }}"
    )


async def test_an_nkey(tmp_path: Path) -> None:
    key, file = Key(USER), tmp_path / "agent.nk"
    file.write_text(f"{key.seed}\n")
    with written_server(accounts(f"nkey: {key.public}")) as server:
        await make_ledger(f"nats://services:s@{server.address}")
        await does_what_it_may(f"nats://{server.address}", NatsIdentity(file))
        file.write_text(Key(USER).seed)
        await is_not_let_in(f"nats://{server.address}", NatsIdentity(file), "(?i)authorization")


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        (None, "cannot be read"),
        ("", "has no user's seed"),
        (Key(ACCOUNT).seed, "has no user's seed"),
        ("SUABC", "is damaged"),
        (credentials("a.b.c", Key(ACCOUNT).seed), "is damaged, or no user's"),
    ],
    ids=["no file", "empty", "another kind of seed", "damaged", "another kind of seed with a JWT"],
)
async def test_an_invalid_credentials_file_is_reported(text: str | None, recorded: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.creds"
    if text is not None:
        file.write_text(text)
    await is_not_let_in("nats://127.0.0.1:4", NatsIdentity(file), recorded)


async def test_a_jwt_of_a_scoped_signing_key(tmp_path: Path) -> None:
    operator, signing = Key(OPERATOR), Key(ACCOUNT)
    system, ledger, agents = Key(ACCOUNT), Key(ACCOUNT), Key(ACCOUNT)
    claims = {
        system: account(operator, system, "SYS"),
        ledger: account(operator, ledger, LEDGER_ACCOUNT, exports=EXPORTS),
        agents: account(
            operator, agents, AGENTS_ACCOUNT, imports=imports_from(ledger.public), signing_keys=[scope(signing)]
        ),
    }
    preload = "\n".join(f"{key.public}: {claim}" for key, claim in claims.items())
    root = operator.claim(operator.public, "test", {"type": "operator", "system_account": system.public})
    services = credentials_file(tmp_path / "services.creds", ledger, "services", {})
    scoped = {"issuer_account": agents.public}
    agent = credentials_file(tmp_path / "agent.creds", signing, user_name(NODE), scoped)
    other = credentials_file(tmp_path / "other.creds", signing, user_name(OTHER), scoped)
    with written_server(f"operator: {root}\nresolver: MEMORY\nresolver_preload: {{ {preload} }}") as server:
        url = f"nats://{server.address}"
        await make_ledger(url, services)
        await does_what_it_may(url, agent)
        with pytest.raises(PermissionDeniedError):
            async with connect_edge(url, name="agent", node=NODE, identity=other):
                pass


EXPORTS = [
    {"name": "write", "subject": "ledger.node.*.>", "type": "service"},
    {"name": "find", "subject": "$JS.API.STREAM.NAMES", "type": "service"},
    {
        "name": "read",
        "subject": f"$JS.API.DIRECT.GET.*.{desired_devices_subject('X').replace('X', '*')}",
        "type": "service",
    },
    {"name": "hear", "subject": desired_devices_subject("X").replace("X", "*"), "type": "stream"},
]


def imports_from(exporting: str) -> list[dict[str, Any]]:
    local = {"find": {"local_subject": "$JS.LEDGER.API.STREAM.NAMES"}}
    return [export | {"account": exporting} | local.get(export["name"], {}) for export in EXPORTS]


def account(operator: Key, key: Key, name: str, **more: Any) -> str:
    limits = UNLIMITED | {"wildcards": True} | (JETSTREAM if "exports" in more else {})
    return operator.claim(key.public, name, {"type": "account", "limits": limits} | more)


def scope(signing: Key) -> dict[str, Any]:
    publish, subscribe = templated_permissions()
    template = {"pub": {"allow": publish}, "sub": {"allow": subscribe}, "subs": -1, "data": -1, "payload": -1}
    return {"kind": "user_scope", "key": signing.public, "role": "gpu-agent", "template": template}


def credentials_file(path: Path, signer: Key, name: str, more: dict[str, Any]) -> NatsIdentity:
    key = Key(USER)
    limits = {} if more else {"subs": -1, "data": -1, "payload": -1}
    path.write_text(credentials(signer.claim(key.public, name, {"type": "user"} | limits | more), key.seed))
    return NatsIdentity(path)


class Certificates:
    """An authority, the server's certificate, and those of clients, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now, self._life = datetime.now(UTC), timedelta(hours=1)
        self._authority = new_authority("test", self._now, self._life)
        self.ca = self._write("ca.pem", certificate_pem(self._authority.certificate))
        self.server = self._files("server", new_serving("server", [HOST], self._authority, self._now, self._life))

    def client(self, name: str) -> NatsIdentity:
        certificate, key = self._files(name, new_client(name, self._authority, self._now, self._life))
        return NatsIdentity(None, self.ca, certificate, key)

    def _files(self, name: str, issued: Issued) -> tuple[Path, Path]:
        certificate = self._write(f"{name}.pem", certificate_pem(issued.certificate))
        return certificate, self._write(f"{name}.key", key_pem(issued.key))

    def _write(self, name: str, text: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(text)
        return path


def new_client(name: str, signer: Issued, now: datetime, life: timedelta) -> Issued:
    """A client's certificate as an issuer for nodes gives it: the node's name is its DNS name."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agent")]))
        .issuer_name(signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - life)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    return Issued(certificate, key)


async def test_a_client_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate, key = map(str, certificates.server)
    ca, seconds = str(certificates.ca), HANDSHAKE_MAX_S
    tls = {"cert_file": certificate, "key_file": key, "ca_file": ca, "verify_and_map": True, "timeout": seconds}
    logins = accounts(f"user: {json.dumps(NODE)}").replace("user: services, password: s", 'user: "services.test"')
    with written_server(f"tls: {json.dumps(tls)}\n{logins}") as server:
        url = f"tls://{server.address}"
        await make_ledger(url, certificates.client("services.test"))
        await does_what_it_may(url, certificates.client(NODE))
        await is_not_let_in(url, certificates.client(OTHER), "(?i)authorization|reset")
        await is_not_let_in(url, NatsIdentity(ca=certificates.ca), "(?i)cert|reset|tls|empty")
        await is_not_let_in(url, ANONYMOUS, "(?i)certificate")


async def test_nothing_is_reported_to_a_server_that_offers_no_tls(tmp_path: Path) -> None:
    logins = "authorization: { user: u, password: p }"
    with written_server(logins) as server:
        certificates = Certificates(tmp_path)
        for url, identity in (
            (f"tls://u:p@{server.address}", ANONYMOUS),
            (f"nats://u:p@{server.address}", NatsIdentity(ca=certificates.ca)),
        ):
            await is_not_let_in(url, identity, "does not ask for TLS")


async def test_certificates_that_are_none_are_reported(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("")
    for identity in (NatsIdentity(ca=empty), NatsIdentity(ca=tmp_path / "missing.pem")):
        await is_not_let_in("nats://127.0.0.1:4", identity, "certificates .* cannot be used")
