"""Services log in to NATS as agents do, and go on with renewed files while they run; on real servers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuledger.ledger import connect
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from support.ledgers import DEADLINE_S, HEARTBEAT_S, everything, new_ledger, numbers_of, outgoing, read_count
from support.nats_logins import Certificates, WrittenServer, written_server
from support.nkeys import ACCOUNT, JETSTREAM, OPERATOR, UNLIMITED, USER, Key, credentials
from support.waiting import eventually

POLL_S = 0.05
NEVER_S = 3600.0


class Kind(NamedTuple):
    """A way to log in: the server's text for the logins in force (`old`, `new`), and a file that gets one of them."""

    identity: NatsIdentity
    logins: Callable[[set[str]], str]
    write: Callable[[str], None]
    scheme: str = "nats"


def passwords(folder: Path) -> Kind:
    file = folder / "service.login"
    users = {name: f"{{ user: {name}, password: p-{name} }}" for name in ("old", "new")}
    return Kind(
        NatsIdentity(file),
        lambda names: f"authorization: {{ users: [ {', '.join(users[name] for name in sorted(names))} ] }}",
        lambda name: _write(file, f"user: {name}\npassword: p-{name}\n"),
    )


def nkeys(folder: Path) -> Kind:
    file, keys = folder / "service.nk", {"old": Key(USER), "new": Key(USER)}
    return Kind(
        NatsIdentity(file),
        lambda names: (
            f"authorization: {{ users: [ {', '.join(f'{{ nkey: {keys[name].public} }}' for name in sorted(names))} ] }}"
        ),
        lambda name: _write(file, keys[name].seed),
    )


def certificates(folder: Path) -> Kind:
    made = Certificates(folder)
    identity = NatsIdentity(None, made.ca, folder / "service.pem", folder / "service.key")

    def write(name: str) -> None:
        _, _, certificate, key, _ = made.client(f"{name}.services.test")
        assert certificate is not None
        assert key is not None
        _write(folder / "service.pem", certificate.read_text())
        _write(folder / "service.key", key.read_text())

    def logins(names: set[str]) -> str:
        users = ", ".join(f"{{ user: {name}.services.test }}" for name in sorted(names))
        return f"{made.tls_text(verify_and_map=True)}\nauthorization: {{ users: [ {users} ] }}"

    return Kind(identity, logins, write, "tls")


def _write(file: Path, text: str) -> None:
    """Replace a file at once, as a Secret's volume does."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


KINDS = {"password": passwords, "nkey": nkeys, "certificate": certificates}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made = KINDS[request.param](tmp_path)
    made.write("old")
    return made


class Publishing:
    """Publishes one event after the other."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.count = 0
        self._ledger = ledger

    async def run(self) -> None:
        while True:
            await self._ledger.publish(outgoing(self.count))
            self.count += 1

    async def goes_on(self) -> None:
        """Return after some further events."""
        target = self.count + 20

        async def reached() -> bool:
            return self.count >= target

        await eventually(reached)


@asynccontextmanager
async def publishing(ledger: JetStreamLedger) -> AsyncIterator[Publishing]:
    events = Publishing(ledger)
    task = asyncio.create_task(events.run())
    yield events
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def service(server: WrittenServer, kind: Kind) -> AbstractAsyncContextManager[JetStreamLedger]:
    return new_ledger(
        f"{kind.scheme}://{server.address}",
        name="service",
        identity=kind.identity,
        heartbeat_s=HEARTBEAT_S,
        connect_timeout_s=DEADLINE_S,
    )


def reconnects(ledger: JetStreamLedger) -> int:
    return ledger._connection.client.stats["reconnects"]


async def is_complete(ledger: JetStreamLedger, events: Publishing) -> None:
    """Every event that was acknowledged is in the log, once and in order."""
    recorded = numbers_of(await everything(ledger))
    assert recorded[: events.count] == list(range(events.count))
    assert len(recorded) <= events.count + 1


async def test_a_service_goes_on_with_renewed_credentials(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader and a publisher, while the file is replaced and the server then forgets the old user."""
    monkeypatch.setattr(connect, "FILES_POLL_S", POLL_S)
    with written_server(kind.logins({"old"})) as server:
        async with service(server, kind) as ledger, ledger.read() as reader:
            async with publishing(ledger) as events:
                await events.goes_on()
                await server.reload(kind.logins({"old", "new"}))
                kind.write("new")
                await eventually(lambda: _is(reconnects(ledger) == 1))
                await events.goes_on()
                await server.reload(kind.logins({"new"}))
                await events.goes_on()
                assert reconnects(ledger) == 1, "the old login was no longer in use when the server forgot it"
            await is_complete(ledger, events)
            assert numbers_of(await read_count(reader, events.count))[: events.count] == list(range(events.count))


async def test_a_login_that_the_server_forgets_too_early_comes_back_once_the_file_is_renewed(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "FILES_POLL_S", NEVER_S)
    with written_server(kind.logins({"old"})) as server:
        async with service(server, kind) as ledger:
            async with publishing(ledger) as events:
                await events.goes_on()
                await server.reload(kind.logins({"new"}))
                await eventually(lambda: _is(not ledger._connection.is_up))
                kind.write("new")
                await events.goes_on()
            await is_complete(ledger, events)


async def test_renewed_files_that_the_server_does_not_take_leave_the_connection_as_it_is(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is renewed before the server learns of the new login."""
    monkeypatch.setattr(connect, "FILES_POLL_S", POLL_S)
    trials = _counted_trials(monkeypatch)
    with written_server(kind.logins({"old"})) as server:
        async with service(server, kind) as ledger, publishing(ledger) as events:
            kind.write("new")
            await eventually(lambda: _is(len(trials) > 1))
            await events.goes_on()
            assert reconnects(ledger) == 0
            await server.reload(kind.logins({"old", "new"}))
            await eventually(lambda: _is(reconnects(ledger) == 1))
            await events.goes_on()


async def test_a_half_written_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "FILES_POLL_S", POLL_S)
    trials = _counted_trials(monkeypatch)
    kind = certificates(tmp_path)
    kind.write("old")
    with written_server(kind.logins({"old", "new"})) as server:
        async with service(server, kind) as ledger, publishing(ledger) as events:
            assert kind.identity.certificate is not None
            whole = kind.identity.certificate.read_bytes()
            kind.identity.certificate.write_bytes(whole[:100])
            await eventually(lambda: _is(len(trials) > 1))
            await events.goes_on()
            assert reconnects(ledger) == 0
            kind.write("new")
            await eventually(lambda: _is(reconnects(ledger) == 1))
            await events.goes_on()


async def test_a_token_is_renewed_with_the_server(tmp_path: Path) -> None:
    """A server has one token at a time: the file first, then the server, which drops whoever used the old one."""
    file = tmp_path / "service.token"
    _write(file, "token: t-old\n")
    kind = Kind(NatsIdentity(file), lambda names: f"authorization: {{ token: t-{names.pop()} }}", lambda _name: None)
    with written_server(kind.logins({"old"})) as server:
        async with service(server, kind) as ledger:
            async with publishing(ledger) as events:
                await events.goes_on()
                _write(file, "token: t-new\n")
                await server.reload(kind.logins({"new"}))
                await eventually(lambda: _is(reconnects(ledger) == 1))
                await events.goes_on()
            await is_complete(ledger, events)


async def test_a_jwt_that_expires_while_the_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server drops the user at the second that the JWT names; the file holds the next one by then."""
    monkeypatch.setattr(connect, "FILES_POLL_S", NEVER_S)
    operator, system, account = Key(OPERATOR), Key(ACCOUNT), Key(ACCOUNT)
    claims = {
        system: operator.claim(system.public, "SYS", {"type": "account", "limits": UNLIMITED}),
        account: operator.claim(account.public, "LEDGER", {"type": "account", "limits": UNLIMITED | JETSTREAM}),
    }
    preload = "\n".join(f"{key.public}: {claim}" for key, claim in claims.items())
    root = operator.claim(operator.public, "test", {"type": "operator", "system_account": system.public})
    file = tmp_path / "service.creds"
    kind = Kind(
        NatsIdentity(file),
        lambda _names: f"operator: {root}\nresolver: MEMORY\nresolver_preload: {{ {preload} }}",
        lambda _name: None,
    )

    def write(expires_s: int | None) -> None:
        key, limits = Key(USER), {"subs": -1, "data": -1, "payload": -1}
        _write(file, credentials(account.claim(key.public, "service", {"type": "user"} | limits, expires_s), key.seed))

    with written_server(kind.logins(set())) as server:
        write(int(time.time()) + 3)
        async with service(server, kind) as ledger:
            async with publishing(ledger) as events:
                write(None)
                await eventually(lambda: _is(reconnects(ledger) == 1))
                await events.goes_on()
            await is_complete(ledger, events)


@pytest.mark.parametrize(
    "text", ["user: service\n", "user: service\npassword:\n", "name: x\ntoken: y\n", "service"], ids=str
)
async def test_a_file_with_other_lines_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "service.login"
    file.write_text(text)
    with pytest.raises(LedgerUnavailableError, match=r"has no user's seed .*, nor the lines `user:` and `password:`"):
        async with connect_ledger("nats://127.0.0.1:4", name="service", identity=NatsIdentity(file)):
            pass


async def test_without_a_login_a_service_is_not_let_in(kind: Kind) -> None:
    with written_server(kind.logins({"old"})) as server:
        stranger = kind._replace(identity=ANONYMOUS._replace(ca=kind.identity.ca))
        with pytest.raises(LedgerUnavailableError, match=r"(?i)authorization|certificate|reset|tls|empty"):
            async with connect_ledger(
                f"{kind.scheme}://{server.address}", name="service", identity=stranger.identity, connect_timeout_s=2.0
            ):
                pass


def _counted_trials(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each trial of renewed files."""
    found: list[bool] = []
    accepts = connect.Connection._accepts_files

    async def counted(connection: connect.Connection) -> bool:
        found.append(await accepts(connection))
        return found[-1]

    monkeypatch.setattr(connect.Connection, "_accepts_files", counted)
    return found


async def _is(value: object) -> object:
    return value
