"""One connection to NATS that outlives the server's restarts.

Only the first connect has a time limit; after that it reconnects for ever. It must never write, after a reconnect, what
it could not write before: a publisher that goes back would find its later messages recorded before its earlier ones.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from nats.errors import ConnectionClosedError, ConnectionDrainingError
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, BadRequestError, NotFoundError

from gpuledger.ledger.client import LedgerClient, is_refusal
from gpuledger.ledger.credentials import Logins
from gpuledger.ledger.errors import LedgerUnavailableError, PermissionDeniedError
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from gpuledger.runtime.tasks import abandon, within

CONNECT_TIMEOUT_S = 5.0
ATTEMPT_TIMEOUT_S = 2
TOKEN_ATTEMPT_TIMEOUT_S = 5
"""How long a server may take for each step of a login, and where it first has to ask others about a token."""

RECONNECT_WAIT_S = 0.2
REQUEST_TIMEOUT_S = 30.0
REQUEST_ATTEMPT_S = 1.0
RETRY = Backoff(first_s=0.05, max_s=0.5)
REFUSALS = (NotFoundError, BadRequestError)
"""Answers of JetStream that trying again does not change; any other is about the server, such as 500 and 503."""
PING_INTERVAL_S = 2
"""A server that is silent, such as on a machine that lost its power, is given up at the third ping in vain."""

UNSENT_BYTES_MAX = 8 * 1024 * 1024
FLUSH_TIMEOUT_S = 10.0
FILES_POLL_S = 5.0
"""How often a connection looks whether its certificate or credentials have changed."""

SCHEMES = frozenset({"nats", "tls", "ws", "wss"})

NO_ANSWER = "no answer in time"
INBOX_PREFIX = "_INBOX"
"""The beginning of the subjects that receive answers, unless permissions require another."""

SERVER_VERSION_MIN = (2, 11)
"""The first version that checks a condition about more subjects than the message's own."""

API_PREFIX = "$js.api."
"""The beginning of JetStream's requests, in the lower case of denials."""

ROLES_ADVICE = (
    "Give this user the permissions that `gpuledger permissions ROLE` prints; docs/service-credentials.md says which "
    "role is for what."
)

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


def permission_error(address: str, denial: Denial, advice: str = ROLES_ADVICE) -> PermissionDeniedError:
    """The error for a denial; its message says what to do about it."""
    doing = "listen on" if denial.kind == "subscription" else "publish to"
    return PermissionDeniedError(f"NATS at {address} does not let us {doing} {denial.subject}. {advice}")


@contextmanager
def _among(listeners: dict[object, T], listener: T) -> Iterator[None]:
    """Keep a listener among thousands of others, of which any may leave next."""
    listeners[key := object()] = listener
    try:
        yield
    finally:
        del listeners[key]


class Connection:
    """The client, whether it is up, and the listeners to call when it breaks."""

    def __init__(self, address: str, identity: NatsIdentity = ANONYMOUS, inbox_prefix: str = INBOX_PREFIX) -> None:
        self.address = address
        self.client = LedgerClient(self._notify_departure)
        self._identity = identity
        self.inbox_prefix = inbox_prefix
        self.last_error: Exception | None = None
        self.times_connected = 0
        self._refusal: Exception | None = None
        self._logged = ""
        self._begun = False
        self._restored = False
        self._up = asyncio.Event()
        self._listeners: dict[object, Listener] = {}
        self._on_departure: dict[object, Listener] = {}
        self._on_denial: dict[object, Callable[[Denial], None]] = {}

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream's own API; requests go through `request`."""
        return self.client.jetstream(timeout=REQUEST_ATTEMPT_S)

    @property
    def is_up(self) -> bool:
        """Whether a message published now is sent; in a reconnect the client alone reports that too early."""
        return self._restored and self.client.is_connected

    def on_break(self, listener: Listener) -> AbstractContextManager[None]:
        """Call `listener` whenever the connection breaks or closes."""
        return _among(self._listeners, listener)

    def on_departure(self, listener: Listener) -> AbstractContextManager[None]:
        """Call `listener` whenever another server leaves the cluster of the one that we are connected to."""
        return _among(self._on_departure, listener)

    def on_denial(self, listener: Callable[[Denial], None]) -> AbstractContextManager[None]:
        """Call `listener` whenever the server refuses to let us publish or subscribe; it reports that nowhere else."""
        return _among(self._on_denial, listener)

    async def wait_up(self, timeout_s: float) -> None:
        """Return when the server is connected.

        Raises:
            LedgerUnavailableError: the connection was closed, or is not back within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_up:
                    self._refuse_closed()
                    self._up.clear()
                    await self._up.wait()
        except TimeoutError as error:
            gone = f"NATS at {self.address} has been gone for {timeout_s:g} s ({self.last_error})"
            raise LedgerUnavailableError(f"{gone}. {self._advice('Start it again.')}") from error

    async def request(
        self,
        send: Callable[[], Awaitable[T]],
        timeout_s: float = REQUEST_TIMEOUT_S,
        *,
        refusals: tuple[type[APIError], ...] = REFUSALS,
    ) -> T:
        """The answer to a request, which is repeated while the server is away or has trouble of its own.

        Raises:
            LedgerUnavailableError: no answer within `timeout_s`.
            PermissionDeniedError: the server refuses permission.
            APIError: one of `refusals`.
        """
        clock = asyncio.get_running_loop().time
        deadline, retries = clock() + timeout_s, Retries(RETRY)
        denials: list[Denial] = []
        while True:
            try:
                with self.on_denial(denials.append):
                    return await send()
            except (ConnectionClosedError, ConnectionDrainingError) as error:
                raise LedgerUnavailableError(f"The connection to NATS at {self.address} was closed.") from error
            except NatsError as error:
                if isinstance(error, refusals):
                    raise
                self._refuse_denied(denials)
                failure = error
            pause_s = retries.pause_s()
            if clock() + pause_s >= deadline:
                raise self._unanswered(failure) from failure
            await asyncio.sleep(pause_s)

    async def open(self, servers: list[str], name: str, timeout_s: float, *, repeat: bool = True) -> None:
        """Connect for the first time; `repeat` also after the server has refused us.

        Raises:
            LedgerUnavailableError: not within `timeout_s`.
        """
        try:
            _refuse_malformed(servers)
            self.client.logins = Logins(self._identity, servers)
            self.client.logins.current()
            self._begun = True
            await within(timeout_s, self._connect(servers, name, repeat=repeat))
        except (TimeoutError, NatsError, OSError, ValueError) as error:
            raise LedgerUnavailableError(
                f"Cannot reach NATS at {self.address}: {self._reason(error)}. "
                f"{self._advice('Start it, or set NATS_URL.')}"
            ) from error
        self.times_connected = 1
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

    async def follow_files(self) -> None:
        """Reconnect with a renewed certificate or renewed credentials, for as long as this runs.

        What the server does not accept yet, or is half written, is tried again later; the old login serves meanwhile.
        """
        while any(self._identity) and not self.client.is_closed:
            await asyncio.sleep(FILES_POLL_S)
            if self.client.logins.is_stale and self.is_up and await self._accepts_files():
                _log.info("NATS at %s: a certificate or credentials have changed; logging in with them", self.address)
                await self.client.force_reconnect()

    async def _accepts_files(self) -> bool:
        """Whether the server lets us in with the files as they are now."""
        logins = self.client.logins
        trial = Connection(self.address, self._identity, self.inbox_prefix)
        try:
            await trial.open(list(logins.servers), "trial of renewed credentials", CONNECT_TIMEOUT_S, repeat=False)
        except LedgerUnavailableError as error:
            self._log_once(f"a certificate or credentials have changed, but cannot be used: {error}")
            return False
        finally:
            await trial.close()
        return True

    async def _connect(self, servers: list[str], name: str, *, repeat: bool) -> None:
        await self.client.connect(
            servers,
            name=name,
            inbox_prefix=self.inbox_prefix,
            allow_reconnect=repeat,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type] # declared as int, used as seconds
            ping_interval=PING_INTERVAL_S,
            connect_timeout=ATTEMPT_TIMEOUT_S if self._identity.token is None else TOKEN_ATTEMPT_TIMEOUT_S,
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
        return f"{str(reason) or NO_ANSWER}{hint if isinstance(reason, ConnectionResetError) else ''}"

    def _unanswered(self, failure: Exception) -> LedgerUnavailableError:
        if self.is_up:
            text = f"JetStream at {self.address} does not answer ({failure}). Is it enabled (-js) and running?"
        else:
            text = f"NATS at {self.address} is away ({self._reason(failure)}). {self._advice('Start it again.')}"
        return LedgerUnavailableError(text)

    def _advice(self, otherwise: str) -> str:
        """What to do about a server that refuses us, and otherwise."""
        if self._refusal is None:
            return otherwise
        if self._identity.token is not None:
            return "It asks the auth callout service about our token; look whether that runs, and what its log says."
        return "Renew our credentials, or allow them there."

    def _refuse_denied(self, denials: Sequence[Denial]) -> None:
        """Stop waiting for the answer to a request of JetStream that the server has not let through."""
        for denial in denials:
            if denial.subject.startswith(API_PREFIX) or denial.subject.startswith(self.inbox_prefix.lower()):
                raise permission_error(self.address, denial)

    def _refuse_closed(self) -> None:
        if self.client.is_closed:
            raise LedgerUnavailableError(f"The connection to NATS at {self.address} was closed ({self.last_error}).")

    def _notify(self) -> None:
        for listener in tuple(self._listeners.values()):
            listener()

    async def _on_error(self, error: Exception) -> None:
        self.last_error = error
        if is_refusal(str(error)):
            self._refusal = error
        self._log_once(str(error))
        if match := _DENIAL.search(str(error)):
            for listener in tuple(self._on_denial.values()):
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

    def _notify_departure(self) -> None:
        for listener in tuple(self._on_departure.values()):
            listener()

    async def _on_reconnected(self) -> None:
        _log.info("NATS at %s is back", self.address)
        self._logged = ""
        self._refusal = None
        self.times_connected += 1
        self._restored = True
        self._up.set()

    async def _on_closed(self) -> None:
        self._up.set()
        self._notify()


def refuse_old_server(connection: Connection) -> None:
    """Return unless the server is known not to check all conditions that decisions are published under.

    Raises:
        LedgerUnavailableError: it is older than `SERVER_VERSION_MIN`.
    """
    version = connection.client.connected_server_version
    try:
        is_old = (version.major, version.minor) < SERVER_VERSION_MIN
    except ValueError:
        return  # a build with a version of its own
    if is_old:
        minimum = ".".join(map(str, SERVER_VERSION_MIN))
        raise LedgerUnavailableError(
            f"NATS at {connection.address} has version {version.major}.{version.minor}.{version.patch}. "
            f"Use {minimum} or newer: older ones do not keep two leaders from recording one decision."
        )


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
    connection = Connection(without_passwords(url), identity, inbox_prefix)
    following: asyncio.Task[None] | None = None
    try:
        await connection.open(servers, name, timeout_s)
        following = asyncio.create_task(connection.follow_files(), name="credentials of NATS")
        yield connection
    finally:
        if following is not None:
            following.cancel()
        await connection.close()
        if following is not None:
            await abandon(following)


def _refuse_malformed(servers: list[str]) -> None:
    for server in servers:
        try:
            parts = urlsplit(server)
            usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:  # its message may hold a part of the password
            usable = False
        if not usable:
            raise ValueError("it is not a URL such as nats://127.0.0.1:4222, or its password has one of /?#,[]")


def without_passwords(url: str) -> str:
    """The servers without their passwords, even where a password makes the URL malformed."""
    return ", ".join(_PASSWORD.sub(r"\1", server) for server in _NEXT_SERVER.split(url))
