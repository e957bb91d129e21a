"""Every way to authenticate an agent that docs/agent-credentials.md describes, on real servers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError, PermissionDeniedError
from gpuledger.ledger.permissions import (
    AGENTS_ACCOUNT,
    LEDGER_ACCOUNT,
    SHARED_SUBJECTS_SUBJECT,
    agent_permissions,
    desired_devices_subject,
    exports_text,
    imports_text,
    node_labels_subject,
    permissions_text,
    templated_permissions,
    user_name,
)
from gpuledger.ledger.stream import create_ledger
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from support.ledgers import DEADLINE_S
from support.nats_logins import Certificates, written_server
from support.nkeys import ACCOUNT, JETSTREAM, OPERATOR, UNLIMITED, USER, Key, credentials

NODE, OTHER = "gpu-01.example.com", "gpu-02.example.com"
WANTED = desired_devices_subject(NODE)
FACT = Outgoing(f"ledger.node.{user_name(NODE)}.device.d.seen", "f", b"{}")
FORGED = Outgoing(f"ledger.node.{user_name(OTHER)}.device.d.seen", "g", b"{}")


async def make_ledger(url: str, identity: NatsIdentity = ANONYMOUS) -> None:
    """A ledger with one list of what is wanted."""
    async with connected(url, name="services", identity=identity) as connection:
        await create_ledger(connection, "ledger")
        await connection.jetstream.publish(WANTED, b"a list")


async def does_what_it_may(url: str, identity: NatsIdentity) -> None:
    """An agent that is let in writes, reads what is wanted, and does nothing else."""
    async with asyncio.timeout(DEADLINE_S), connect_edge(url, name="agent", node=NODE, identity=identity) as edge:
        assert (await edge.publish(FACT)).sequence == 2
        newest = await edge.newest(WANTED)
        assert newest is not None
        assert newest.data == b"a list"
        assert await edge.newest(node_labels_subject(NODE)) is None
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
    {
        "name": "labels",
        "subject": f"$JS.API.DIRECT.GET.*.{node_labels_subject('X').replace('X', '*')}",
        "type": "service",
    },
    {"name": "rule", "subject": f"$JS.API.DIRECT.GET.*.{SHARED_SUBJECTS_SUBJECT}", "type": "service"},
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


async def test_a_client_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    logins = accounts(f"user: {json.dumps(NODE)}").replace("user: services, password: s", 'user: "services.test"')
    with written_server(f"{certificates.tls_text(verify_and_map=True)}\n{logins}") as server:
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
