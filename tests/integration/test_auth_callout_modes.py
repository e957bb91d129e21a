"""Every way that a server asks the auth callout service: by configuration or in operator mode, encrypted or not."""

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error as NatsError

from gpuledger.edge.authcallout.decide import Reason
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import PermissionDeniedError
from gpuledger.ledger.jwt import UNLIMITED, VERSION, SigningKey, encoded
from gpuledger.ledger.nkeys import KeyKind, seed_key
from gpuledger.ledger.operator_mode import credentials_text, user_nats
from gpuledger.ledger.permissions import CALLOUT_SUBJECT, CALLOUT_USER, Role, desired_devices_subject
from gpuledger.ledger.stream import create_ledger, stream_name
from gpuledger.runtime.settings import NatsIdentity
from support.auth_callout import Callouts, Setup, by_configuration, by_operator, callouts
from support.logins import edge, fact, logins, not_let_in, refused
from support.waiting import eventually

MODES = {
    "encrypted": partial(by_configuration, xkey=True),
    "operator": by_operator,
    "operator, encrypted": partial(by_operator, xkey=True),
    "operator, resolver": partial(by_operator, resolver=True),
}


@pytest.fixture(params=list(MODES.values()), ids=list(MODES))
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Callouts]:
    async with callouts(request.param) as here:
        async with here.nats.connected_as(Role.OPERATOR) as connection:
            await create_ledger(connection, "ledger")
        yield here


async def test_an_agent_is_confined_to_the_node_of_its_token_and_cannot_read_the_log(here: Callouts) -> None:
    node = "gpu-01.example.com"
    subject = desired_devices_subject(node)
    async with here.serving():
        async with here.nats.connected_as(Role.SERVICES) as pools:
            await pools.jetstream.publish(subject, b"a list")
        async with edge(here, node, here.file("agent", await here.token(node))) as agent:
            await agent.publish(fact(node))
            newest = await agent.newest(subject)
            assert newest is not None
            assert newest.data == b"a list"
            with pytest.raises(PermissionDeniedError):
                await agent.publish(fact("other"))
        denied = await denials(here, node, f"$JS.API.STREAM.MSG.GET.{stream_name(1)}", "$JS.API.INFO")
        assert denied == {"publish"}
        await refused(here, await here.token("w1", account="other"), Reason.OTHER_ACCOUNT)
    async with here.nats.connected_as(Role.READER) as reader:
        assert (await reader.jetstream.stream_info(stream_name(1))).state.messages == 2


async def denials(here: Callouts, node: str, *subjects: str) -> set[str]:
    """What the server does not let the agent do that requests these subjects."""
    found: list[str] = []
    url, file = f"nats://{here.nats.address}", here.file("agent", await here.token(node))
    prefix = "_INBOX_node.gpu-01%2Eexample%2Ecom"
    async with connected(url, name="curious", identity=NatsIdentity(token=file), inbox_prefix=prefix) as agent:
        with agent.on_denial(lambda denial: found.append(denial.kind)):
            for subject in subjects:
                with pytest.raises(NatsError):
                    await agent.client.request(subject, b"{}", timeout=0.2)

            async def all_are_denied() -> bool:
                return len(found) >= len(subjects)

            await eventually(all_are_denied)
    assert len(found) == len(subjects)
    return set(found)


async def test_nobody_else_is_let_in(here: Callouts) -> None:
    async with here.serving():
        before = logins(Reason.NO_TOKEN)
        for login in ("", "gpuledger-services:p@", f"{CALLOUT_USER}:p@"):
            await not_let_in(here, login=login)
        assert logins(Reason.NO_TOKEN) > before, "the server asks about who names no user of its own"


async def test_the_service_does_nothing_but_answer(here: Callouts) -> None:
    identity, denied = here.settings.nats_identity, set()
    async with connected(here.settings.nats_url, name="callout", identity=identity) as service:
        with service.on_denial(lambda denial: denied.add((denial.kind, denial.subject))):
            await service.client.publish(fact("w1").subject, b"{}")
            await service.client.subscribe(">")
            await service.client.flush()
            await service.client.flush()
    assert denied == {("publish", fact("w1").subject), ("subscription", ">")}
    assert CALLOUT_SUBJECT not in str(denied)


async def test_it_tells_what_it_signs_with_once_it_is_up(here: Callouts) -> None:
    async with here.serving() as process:
        assert [line for line in here.output if " is up" in line] == [here.output[-1]]
        assert re.search(r"issuer A[A-Z2-7]{55}", here.output[-1])
        account = here.settings.account
        assert account is None or account in here.output[-1]
        assert process.health().ok


async def test_another_account_of_the_operator_reaches_the_ledger_by_no_import() -> None:
    """The ledger's account exports to the account that it has activated, and to no other."""
    async with callouts(with_a_thief) as here:
        async with here.nats.connected_as(Role.OPERATOR) as connection:
            await create_ledger(connection, "ledger")
        async with connected(here.settings.nats_url, name="thief", identity=NatsIdentity(here.folder / THIEF)) as thief:
            with pytest.raises(NatsError):
                await thief.client.request(fact("w1").subject, b"{}", timeout=1.0)
        async with here.nats.connected_as(Role.READER) as reader:
            assert (await reader.jetstream.stream_info(stream_name(1))).state.messages == 0


THIEF = "thief.creds"


def with_a_thief(folder: Path) -> Setup:
    """A server with a further account of its operator, which imports from the ledger's without an activation."""
    setup, accounts = by_operator(folder), folder / "keys" / "server" / "accounts"
    operator, ledger = key_of(folder, KeyKind.OPERATOR, "operator"), key_of(folder, KeyKind.ACCOUNT, "ledger")
    account, user = (SigningKey(kind, Ed25519PrivateKey.generate()) for kind in (KeyKind.ACCOUNT, KeyKind.USER))
    subject = "ledger.node.*.>"
    stolen = {"name": "x", "subject": subject, "local_subject": subject, "type": "service", "account": ledger.public}
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), UNLIMITED)
    nats = {"type": "account", "version": VERSION, "limits": limits, "imports": [stolen]}
    claims = {"iat": 1, "sub": account.public, "name": "thief", "nats": nats}
    (accounts / f"{account.public}.jwt").write_text(encoded(claims, operator))
    login = encoded({"iat": 1, "sub": user.public, "name": "thief", "nats": user_nats({})}, account)
    (folder / THIEF).write_text(credentials_text(login, user.seed))
    return setup


def key_of(folder: Path, kind: KeyKind, name: str) -> SigningKey:
    seed = (folder / "keys" / "offline" / f"{name}.seed").read_text().strip()
    return SigningKey(kind, Ed25519PrivateKey.from_private_bytes(seed_key(kind, seed)))
