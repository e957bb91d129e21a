"""What may stand between us and PostgreSQL: packets that vanish, TLS, and a pooler in transaction mode.

They speak PostgreSQL's protocol in threads of their own, in front of the tests' server, so that code that blocks can
be tried as well. A proxy's kernel goes on acknowledging: what a machine that vanishes does to TCP needs a network
namespace (`support.namespaces`).
"""

import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg

HOST = "127.0.0.1"
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
CHUNK_BYTES = 65_536
AnySocket = TypeVar("AnySocket", bound=socket.socket)
READY = b"Z"
IDLE = b"I"
INVENTED_PROCESS = 4_000_000
"""The number that the pooler gives to its clients as that of their process."""


class _Proxy:
    """Listens, and has a thread for every client until it is closed."""

    def __init__(self, url: str, host: str = HOST) -> None:
        self._target = urlsplit(url)
        self._host = host
        self._listener = socket.create_server((host, 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._closing = threading.Lock()

    @property
    def url(self) -> str:
        """The server's URL through this proxy."""
        account, at, _ = self._target.netloc.rpartition("@")
        address = f"{self._host}:{self._listener.getsockname()[1]}"
        return urlunsplit(self._target._replace(netloc=f"{account}{at}{address}"))

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._closing:
            self._is_closed = True
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def serve(self, client: socket.socket) -> None:
        """Serve one client until it ends."""
        raise NotImplementedError

    def connect(self) -> socket.socket:
        """A new connection to the server."""
        return self._keep(socket.create_connection((self._target.hostname or HOST, self._target.port or 5432)))

    def pump_both(self, client: socket.socket, upstream: socket.socket) -> None:
        """Pass on what comes from either side until one ends."""
        self._spawn(lambda: self._pump(upstream, client))
        self._pump(client, upstream)

    def passes(self) -> bool:
        """Whether what comes is passed on."""
        return True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._keep(self._listener.accept()[0])
                self._spawn(lambda client=client: self._serve(client))

    def _keep(self, one: AnySocket) -> AnySocket:
        """Have it closed with the proxy; a proxy that closes already takes no more, which ends the thread."""
        with self._closing:
            if self._is_closed:
                one.close()
                raise ConnectionAbortedError
            self._sockets.append(one)
        return one

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            self.serve(client)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self.passes():
                    target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _spawn(self, work: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


class SilentProxy(_Proxy):
    """Passes everything on until it is to swallow it, in both directions, without an end of either connection."""

    def __init__(self, url: str, host: str = HOST) -> None:
        super().__init__(url, host)
        self._is_silent = threading.Event()

    def swallow(self) -> None:
        """Pass on nothing more."""
        self._is_silent.set()

    def passes(self) -> bool:
        """Whether what comes is passed on."""
        return not self._is_silent.is_set()

    def serve(self, client: socket.socket) -> None:
        """Serve one client until it ends."""
        self.pump_both(client, self.connect())


class LossyProxy(SilentProxy):
    """A network that loses packets for a while: TCP repeats them, or the connections do not survive it.

    It speaks no protocol, so it may stand before a NATS server as well.
    """

    def __init__(self, url: str, host: str = HOST) -> None:
        super().__init__(url, host)
        self._passes = threading.Event()
        self._passes.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passes.set()
        super().__exit__(kind, error, trace)

    def hold(self) -> None:
        """Keep everything back until `release`, as where packets are lost and sent again."""
        self._passes.clear()

    def release(self) -> None:
        """Pass on what was kept back, and what comes."""
        self._passes.set()

    def come_back(self) -> None:
        """After `swallow`: end the connections that lost something, and pass on what comes through others."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._is_silent.clear()

    def passes(self) -> bool:
        """Whether what comes is passed on; waits while it is kept back."""
        self._passes.wait()
        return super().passes()


class TlsFront(_Proxy):
    """Ends TLS in front of a server without any, as PostgreSQL negotiates it; clients without TLS are refused."""

    def __init__(self, database_url: str, certificate: Path, key: Path, client_authority: Path | None = None) -> None:
        super().__init__(database_url)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        if client_authority is not None:
            self._context.load_verify_locations(client_authority)
            self._context.verify_mode = ssl.CERT_REQUIRED

    def serve(self, client: socket.socket) -> None:
        """Serve one client until it ends."""
        while (code := _startup(client)[0]) == GSS_REQUEST:
            client.sendall(b"N")
        if code != SSL_REQUEST:
            return
        client.sendall(b"S")
        secured = self._keep(self._context.wrap_socket(client, server_side=True))
        self.pump_both(secured, self.connect())


class Pooler(_Proxy):
    """Gives each client a session of the server that is free, as PgBouncer does, and says nothing of it.

    In transaction mode a client keeps it for a transaction only. The session that was freed last comes first, or
    with `in_turn` the one that was freed first.
    """

    def __init__(self, database_url: str, *, sessions: int = 3, by_transaction: bool, in_turn: bool = False) -> None:
        super().__init__(database_url)
        self._by_transaction = by_transaction
        self._next = 0 if in_turn else -1
        self._owners = [psycopg.connect(database_url, autocommit=True) for _ in range(sessions)]
        self._free = [socket.socket(fileno=os.dup(owner.fileno())) for owner in self._owners]
        for one in self._free:
            one.setblocking(True)
        self._sockets.extend(self._free)
        self._freed = threading.Condition()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for owner in self._owners:
            owner.close()

    def serve(self, client: socket.socket) -> None:
        """Serve one client until it ends."""
        while (code := _startup(client)[0]) in {SSL_REQUEST, GSS_REQUEST}:
            client.sendall(b"N")
        if code == CANCEL_REQUEST:
            return
        client.sendall(_message(b"R", struct.pack("!I", 0)))
        for name, value in (("client_encoding", "UTF8"), ("server_version", "18.0"), ("application_name", "pooled")):
            client.sendall(_message(b"S", f"{name}\0{value}\0".encode()))
        client.sendall(_message(b"K", struct.pack("!II", INVENTED_PROCESS, 1)) + _message(READY, IDLE))
        if self._by_transaction:
            while True:
                first = _read(client)
                with self._session() as session:
                    _transaction(client, session, first)
        with self._session() as session:
            while True:
                _transaction(client, session, _read(client))

    @contextmanager
    def _session(self) -> Iterator[socket.socket]:
        with self._freed:
            self._freed.wait_for(lambda: self._free)
            session = self._free.pop(self._next)
        try:
            yield session
        finally:
            with self._freed:
                self._free.append(session)
                self._freed.notify()


def _startup(client: socket.socket) -> tuple[int, bytes]:
    """The code of the first message of a connection, and what follows it."""
    (length, code) = struct.unpack("!II", _exactly(client, 8))
    return code, _exactly(client, length - 8)


def _transaction(client: socket.socket, session: socket.socket, first: tuple[bytes, bytes]) -> None:
    """Pass on a client's messages from the first to the end of its transaction."""
    kind, body = first
    while kind != b"X":
        session.sendall(_message(kind, body))
        if kind in {b"Q", b"S"} and _answer(session, client) == IDLE:
            return
        kind, body = _read(client)
    raise EOFError


def _answer(session: socket.socket, client: socket.socket) -> bytes:
    """Pass on what the server answers; returns whether it is in a transaction then."""
    while True:
        kind, body = _read(session)
        client.sendall(_message(kind, body))
        if kind == READY:
            return body


def _read(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(source, 1)
    (length,) = struct.unpack("!I", _exactly(source, 4))
    return kind, _exactly(source, length - 4)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _exactly(source: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = source.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data
