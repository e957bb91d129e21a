"""The library's NATS client, changed where a ledger needs more: speed, renewed logins, and reconnecting for ever."""

import asyncio
import re
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

from nats.aio.client import Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError

from gpuledger.ledger.credentials import Login, Logins
from gpuledger.ledger.wire import DELIVERED, DeliveryParser, OnDelivered, text_of
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.settings import ANONYMOUS

_REFUSAL = re.compile(r"authori[sz]ation|authentication")
_PERMISSION = "permissions violation"


REFUSED: Final = Backoff(first_s=0.2, max_s=10.0)
"""Pauses after logins in a row that a server refused; ten thousand agents may be refused at once."""


def is_refusal(error: str) -> bool:
    """Whether the server does not know us, or not any more: a user was removed, or a JWT has expired."""
    text = error.lower()
    return _PERMISSION not in text and _REFUSAL.search(text) is not None


HUNG_UP: Final = "the server hung up before it let us in, as one does whose authentication takes too long"


class Receiver(Protocol):
    """Takes the messages of a consumer in their order, as they come from the wire."""

    def on_delivered(self, subject: str, reply: bytes, data: bytes) -> None:
        """Take a message of the log; `reply` holds its position."""
        ...

    async def on_control(self, reply: str, headers: dict[str, str]) -> None:
        """Take a heartbeat or a flow control message of the server."""
        ...


class LedgerClient(Client):
    """The library's client with a short way for the log's messages.

    Without it a message passes headers that only repeat ids, an object, a queue and a task, which together take more
    time than the folding of most events. The contract tests hold the library's inner calls that this builds on.
    """

    def __init__(self, on_departure: Callable[[], None] = lambda: None) -> None:
        """`on_departure` is called whenever another server leaves the cluster of the one that we are connected to."""
        super().__init__()
        self._on_departure = on_departure
        self._cluster: frozenset[str] = frozenset()
        self.departures = 0
        """How often another server has left the cluster."""
        self.receivers: dict[int, Receiver] = {}
        self._ps = DeliveryParser(self, self._taker)
        self.logins = Logins(ANONYMOUS, ())
        self._login = Login()
        self._refused = Retries(REFUSED, system_jitter)
        self._pause_s = 0.0
        self._is_over = False

    async def close(self) -> None:
        """Close for good; an attempt to reconnect ends also where the cancellation of it gets lost."""
        self._is_over = True
        await super().close()

    @property
    def is_clustered(self) -> bool:
        """Whether the server names a cluster that it belongs to."""
        return bool(self._server_info.get("cluster"))

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The certificates of the current login; the library would keep those of the first."""
        return self._login.tls or super().ssl_context

    async def _connect_to_server(self, s: Any) -> None:  # noqa: ANN401 - the library types it for itself
        """Log in with the files as they are now, at every connect; close what is left of an attempt that failed."""
        if self._is_over:
            raise asyncio.CancelledError
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        if isinstance(self._transport, TcpTransport):
            self._transport.close()  # type: ignore[no-untyped-call] # the library's own
        login = self._login = self.logins.current()
        self._signature_cb, self._user_jwt_cb, self._public_nkey = login.sign, login.jwt, login.nkey
        self.options |= {"user": login.user, "password": login.password, "token": login.token}
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """Log in; each refusal in a row makes the next attempt later. A server that hangs up has not let us in."""
        try:
            await super()._process_connect_init()
            if not self.is_connected:
                self._end_tasks()
                raise NatsError(HUNG_UP)
        except NatsError as error:
            if is_refusal(str(error)):
                self._pause_s = self._refused.pause_s()
            raise
        self._refused.reset()
        self._pause_s = 0.0

    def _end_tasks(self) -> None:
        """End what the library has started for a connection that is none."""
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()

    def _connect_command(self) -> bytes:
        """The login as sent to the server. The library would send it in the clear to a server that offers no TLS."""
        if self._login.requires_tls and not self._server_info.get("tls_required"):
            raise NatsError("the server does not ask for TLS, and without it nobody knows who listens")
        self._mark_encrypted()
        return super()._connect_command()

    def _mark_encrypted(self) -> None:
        """Tell a stream that has TLS so; at its end it would ask for what TLS cannot do, and asyncio would warn."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None or writer.get_extra_info("ssl_object") is None:
            return
        protocol = writer.transport.get_protocol()  # None once the connection is lost
        if isinstance(protocol, asyncio.StreamReaderProtocol):
            protocol._over_ssl = True  # type: ignore[attr-defined] # noqa: SLF001 - the library forgets it

    async def _process_err(self, err_msg: str) -> None:
        """Come back with the files as they are now, where the library would close a connection for good."""
        if not is_refusal(err_msg):
            await super()._process_err(err_msg)
            return
        error = NatsError(f"the server refuses us: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """The server accepts subjects that are not UTF-8, and the library would break the connection on each."""
        receiver = self.receivers.get(sid)
        if receiver is None:
            await super()._process_msg(sid, text_of(subject).encode(), reply, data, headers)
        elif reply.startswith(DELIVERED):
            receiver.on_delivered(text_of(subject), reply, data)
        else:
            await receiver.on_control(reply.decode(), await self._process_headers(headers) or {})

    def _taker(self, sid: int) -> OnDelivered | None:
        receiver = self.receivers.get(sid)
        return None if receiver is None else receiver.on_delivered

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Take what a server says of its cluster, at connecting and whenever a server joins or leaves it."""
        await super()._process_info(info, initial_connection)
        self._log_in_everywhere()
        before, self._cluster = self._cluster, frozenset(info.get("connect_urls") or ())
        if not initial_connection and before - self._cluster:
            self.departures += 1
            self._on_departure()

    def _log_in_everywhere(self) -> None:
        """A server that another one names is logged in to as to that one; the library would come without a login."""
        current = self._current_server
        login, at, _ = current.uri.netloc.rpartition("@") if current else ("", "", "")
        pool: dict[tuple[str | None, int | None], Srv] = {}
        for server in self._server_pool:
            if at and server.discovered and "@" not in server.uri.netloc:
                server.uri = server.uri._replace(netloc=f"{login}@{server.uri.netloc}")
            pool.setdefault((server.uri.hostname, server.uri.port), server)
        self._server_pool = list(pool.values())

    def forget_unsent(self) -> None:
        """Drop what was not written when the connection broke; subscriptions are replayed by the library."""
        self._pending = []
        self._pending_data_size = 0
