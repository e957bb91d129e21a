"""One connection to NATS that outlives the server's restarts.

Only the first connect has a time limit; after that it reconnects for ever. It must never write, after a reconnect, what
it could not write before: a publisher that goes back would find its later messages recorded before its earlier ones.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, ConnectionDrainingError
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, ServiceUnavailableError

from gpuledger.ledger.credentials import ANONYMOUS, Login, NatsIdentity, login_of
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.runtime.backoff import Backoff, Retries

CONNECT_TIMEOUT_S = 5.0
RECONNECT_WAIT_S = 0.2
REQUEST_TIMEOUT_S = 30.0
REQUEST_ATTEMPT_S = 2.0
RETRY = Backoff(first_s=0.05, max_s=2.0)
PING_INTERVAL_S = 10
UNSENT_BYTES_MAX = 8 * 1024 * 1024
FLUSH_TIMEOUT_S = 10.0

_DELIVERED = b"$JS.ACK."
"""The reply subject of every message that a consumer delivers begins with this."""

SCHEMES = frozenset({"nats", "tls", "ws", "wss"})

INBOX_PREFIX = "_INBOX"
"""The beginning of the subjects that receive answers, unless permissions require another."""

_NEXT_SERVER = re.compile(r",(?=\w+://)")
_PASSWORD = re.compile(r"^(\w+://)?.*@", re.DOTALL)

_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

_log = logging.getLogger("gpuledger.ledger")

T = TypeVar("T")
Listener = Callable[[], None]


class Denial(NamedTuple):
    """The server refused permission for a `publish` or `subscription`. It reports subjects in lower case."""

    kind: str
    subject: str


class Receiver(Protocol):
    """Takes the messages of a consumer in their order, as they come from the wire."""

    def on_delivered(self, subject: str, reply: bytes, data: bytes) -> None:
        """Take a message of the log; `reply` holds its position."""
        ...

    async def on_control(self, reply: str, headers: dict[str, str]) -> None:
        """Take a heartbeat or a flow control message of the server."""
        ...


class _Client(Client):
    """The library's client with a short way for the log's messages.

    Without it a message passes headers that only repeat ids, an object, a queue and a task, which together take more
    time than the folding of most events. The contract tests hold the library's inner calls that this builds on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.receivers: dict[int, Receiver] = {}
        self._requires_tls = False

    def log_in_as(self, login: Login) -> None:
        """Use this login from now on; over TLS only, where the login requires it."""
        self._public_nkey = login.nkey
        self._requires_tls = login.requires_tls

    def _connect_command(self) -> bytes:
        """The login as sent to the server. The library would send it in the clear to a server that offers no TLS."""
        if self._requires_tls and not self._server_info.get("tls_required"):
            raise NatsError("the server does not ask for TLS, and without it nobody knows who listens")
        return super()._connect_command()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """The server accepts subjects that are not UTF-8, and the library would break the connection on each."""
        if not subject.isascii():
            subject = subject.decode(errors="backslashreplace").encode()
        receiver = self.receivers.get(sid)
        if receiver is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        elif reply.startswith(_DELIVERED):
            receiver.on_delivered(subject.decode(), reply, data)
        else:
            await receiver.on_control(reply.decode(), await self._process_headers(headers) or {})

    def forget_unsent(self) -> None:
        """Drop what was not written when the connection broke; subscriptions are replayed by the library."""
        self._pending = []
        self._pending_data_size = 0


class Connection:
    """The client, whether it is up, and the listeners to call when it breaks."""

    def __init__(self, address: str, identity: NatsIdentity = ANONYMOUS, inbox_prefix: str = INBOX_PREFIX) -> None:
        self.address = address
        self.client = _Client()
        self._identity = identity
        self.inbox_prefix = inbox_prefix
        self.last_error: Exception | None = None
        self._refusal: Exception | None = None
        self._logged = ""
        self._begun = False
        self._restored = False
        self._listeners: list[Listener] = []
        self._on_denial: list[Callable[[Denial], None]] = []

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream's own API; requests go through `request`."""
        return self.client.jetstream(timeout=REQUEST_ATTEMPT_S)

    @property
    def is_up(self) -> bool:
        """Whether a message published now is sent; in a reconnect the client alone reports that too early."""
        return self._restored and self.client.is_connected

    @contextmanager
    def on_break(self, listener: Listener) -> Iterator[None]:
        """Call `listener` whenever the connection breaks or closes."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def on_denial(self, listener: Callable[[Denial], None]) -> Iterator[None]:
        """Call `listener` whenever the server refuses to let us publish or subscribe; it reports that nowhere else."""
        self._on_denial.append(listener)
        try:
            yield
        finally:
            self._on_denial.remove(listener)

    async def wait_up(self, timeout_s: float) -> None:
        """Return when the server is connected.

        Raises:
            LedgerUnavailableError: the connection was closed, or is not back within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_up:
                    self._refuse_closed()
                    await asyncio.sleep(RECONNECT_WAIT_S / 4)
        except TimeoutError as error:
            raise LedgerUnavailableError(
                f"NATS at {self.address} has been gone for {timeout_s:g} s ({self.last_error}). Start it again."
            ) from error

    async def request(
        self,
        send: Callable[[], Awaitable[T]],
        timeout_s: float = REQUEST_TIMEOUT_S,
        *,
        transient: tuple[type[APIError], ...] = (ServiceUnavailableError,),
    ) -> T:
        """The answer to a request, which is repeated while the server is away or answers with one of `transient`.

        Raises:
            LedgerUnavailableError: no answer within `timeout_s`.
            APIError: the server refuses.
        """
        clock = asyncio.get_running_loop().time
        deadline, retries = clock() + timeout_s, Retries(RETRY)
        while True:
            try:
                return await send()
            except (ConnectionClosedError, ConnectionDrainingError) as error:
                raise LedgerUnavailableError(f"The connection to NATS at {self.address} was closed.") from error
            except NatsError as error:
                if isinstance(error, APIError) and not isinstance(error, transient):
                    raise
                failure = error
            pause_s = retries.pause_s()
            if clock() + pause_s >= deadline:
                raise LedgerUnavailableError(
                    f"JetStream at {self.address} does not answer ({failure}). Is it enabled (-js) and running?"
                ) from failure
            await asyncio.sleep(pause_s)

    async def open(self, servers: list[str], name: str, timeout_s: float) -> None:
        """Connect for the first time.

        Raises:
            LedgerUnavailableError: not within `timeout_s`.
        """
        try:
            _refuse_malformed(servers)
            login = login_of(self._identity, servers)
            self._begun = True
            await asyncio.wait_for(self._connect(servers, name, login), timeout_s)
        except (TimeoutError, NatsError, OSError, ValueError) as error:
            raise LedgerUnavailableError(
                f"Cannot reach NATS at {self.address}: {self._reason(error)}. Start it, or set NATS_URL."
            ) from error
        self._restored = True

    async def close(self) -> None:
        """Close for good, and call the listeners."""
        if not self._begun:
            return
        try:
            await self.client.close()
        except asyncio.CancelledError:
            # The client awaits its own cancelled reconnect; that cancellation is not ours.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except (NatsError, OSError, TimeoutError) as error:
            _log.info("closing the connection to %s: %s", self.address, error)
        finally:
            self._notify()

    async def _connect(self, servers: list[str], name: str, login: Login) -> None:
        self.client.log_in_as(login)
        await self.client.connect(
            servers,
            name=name,
            inbox_prefix=self.inbox_prefix,
            tls=login.tls,
            signature_cb=login.sign,
            user_jwt_cb=login.jwt,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type] # declared as int, used as seconds
            ping_interval=PING_INTERVAL_S,
            pending_size=UNSENT_BYTES_MAX,
            flush_timeout=FLUSH_TIMEOUT_S,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    def _reason(self, error: Exception) -> str:
        """Why there is no connection. A server that refuses us may hang up before we have read that it does."""
        reason = self._refusal or self.last_error or error
        hint = " (a server that refuses the authorization hangs up like this)"
        return f"{reason or 'no answer'}{hint if isinstance(reason, ConnectionResetError) else ''}"

    def _refuse_closed(self) -> None:
        if self.client.is_closed:
            raise LedgerUnavailableError(f"The connection to NATS at {self.address} was closed ({self.last_error}).")

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    async def _on_error(self, error: Exception) -> None:
        self.last_error = error
        if "authorization" in str(error).lower():
            self._refusal = error
        self._log_once(str(error))
        if match := _DENIAL.search(str(error)):
            for listener in tuple(self._on_denial):
                listener(Denial(match[1], match[2]))

    def _log_once(self, text: str) -> None:
        """Log an error once, and not with every attempt to connect: there are five a second, for hours."""
        if text != self._logged:
            _log.info("NATS at %s: %s", self.address, text)
        self._logged = text

    async def _on_disconnected(self) -> None:
        self._restored = False
        self.client.forget_unsent()
        self._notify()

    async def _on_reconnected(self) -> None:
        _log.info("NATS at %s is back", self.address)
        self._logged = ""
        self._restored = True

    async def _on_closed(self) -> None:
        self._notify()


@asynccontextmanager
async def connected(
    url: str,
    *,
    name: str,
    timeout_s: float = CONNECT_TIMEOUT_S,
    identity: NatsIdentity = ANONYMOUS,
    inbox_prefix: str = INBOX_PREFIX,
) -> AsyncIterator[Connection]:
    """A connection to the servers of `url` (several are separated by commas), closed at the end.

    Raises:
        LedgerUnavailableError: no server accepts us within `timeout_s`.
    """
    servers = url.split(",")
    connection = Connection(_without_passwords(url), identity, inbox_prefix)
    try:
        await connection.open(servers, name, timeout_s)
        yield connection
    finally:
        await connection.close()


def _refuse_malformed(servers: list[str]) -> None:
    for server in servers:
        try:
            parts = urlsplit(server)
            usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:  # its message may hold a part of the password
            usable = False
        if not usable:
            raise ValueError("it is not a URL such as nats://127.0.0.1:4222, or its password has one of /?#,[]")


def _without_passwords(url: str) -> str:
    """The servers without their passwords, even where a password makes the URL malformed."""
    return ", ".join(_PASSWORD.sub(r"\1", server) for server in _NEXT_SERVER.split(url))
