"""Requests to an API server, by HTTP/1.1 and one connection each, as small as one node's agent needs it.

An agent reads one object now and then and holds one stream, for which a client library would take a quarter of its
memory. Every wait and every size has a bound, and whatever fails is an `ApiError`.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from gpuledger.configagent.errors import ApiError
from gpuledger.configagent.kube_access import KubeAccess

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A server that vanished without a word is noticed after a minute of silence."""

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest event of a watch; etcd takes objects of 1.5 MiB."""

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
HEADERS_MAX: Final = 100
MESSAGE_CHARS_MAX: Final = 500
JSON: Final = "application/json"
_BROKEN: Final = (OSError, ssl.SSLError, EOFError, ValueError, asyncio.LimitOverrunError)


class Request(NamedTuple):
    """A request: its method, path and query, and its body as JSON, of a type."""

    method: str
    target: str
    body: object = None
    content_type: str = JSON
    accept: str = JSON


class _Head(NamedTuple):
    status: int
    headers: Mapping[str, str]


class KubeHttp:
    """Requests to one API server."""

    def __init__(self, access: KubeAccess) -> None:
        self._access = access
        self.url = access.server.rstrip("/")

    async def send(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        """The answer to a request, as JSON.

        Raises:
            ApiError: the server does not answer, or refuses.
        """
        with_body = self._exchange(request, ANSWER_TIMEOUT_S)
        async with with_body as (head, body):
            raw = bytearray()
            async for chunk in body:
                raw += chunk
                if len(raw) > BODY_BYTES_MAX:
                    raise ValueError(f"more than {BODY_BYTES_MAX} bytes")
            self._check(request, head, bytes(raw))
            return orjson.loads(raw)

    async def lines(self, request: Request, timeout_s: float) -> AsyncGenerator[Any]:
        """The lines of an answer as they come, each as JSON, until it ends; `timeout_s` bounds the whole.

        Raises:
            ApiError: the server does not answer, or refuses; or the stream broke off.
        """
        async with self._exchange(request, timeout_s) as (head, body):
            pending = bytearray()
            if head.status != HTTPStatus.OK:
                self._check(request, head, b"".join([chunk async for chunk in body])[:BODY_BYTES_MAX])
            async for chunk in body:
                pending += chunk
                *whole, rest = pending.split(b"\n")
                pending = rest
                if len(pending) > LINE_BYTES_MAX:
                    raise ValueError(f"an event of more than {LINE_BYTES_MAX} bytes")
                for line in whole:
                    if line.strip():
                        yield orjson.loads(line)

    @asynccontextmanager
    async def _exchange(self, request: Request, timeout_s: float) -> AsyncIterator[tuple[_Head, AsyncGenerator[bytes]]]:
        """The head of the answer and its body, of a connection that lasts for the block."""
        what = f"{request.method} {self.url}{urlsplit(request.target).path}"
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connect()
                writer.write(self._request(request))
                await writer.drain()
                head = await _head(reader)
                yield head, _body(reader, head.headers)
        except TimeoutError as error:
            raise ApiError(f"{what}: no answer within {timeout_s:g} s. See the network and the API server.") from error
        except _BROKEN as error:
            raise ApiError(f"{what}: {error or type(error).__name__}. See the network and the API server.") from error
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts, tls = urlsplit(self.url), self._access.tls()
        port = parts.port or (443 if tls else 80)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
        connection = writer.get_extra_info("socket")
        for level, option, value in KEEP_ALIVE:
            connection.setsockopt(level, option, value)
        return reader, writer

    def _request(self, request: Request) -> bytes:
        parts = urlsplit(self.url)
        body = b"" if request.body is None else orjson.dumps(request.body)
        headers = {
            "Host": parts.netloc,
            "Accept": request.accept,
            "User-Agent": "gpuledger-config-agent",
            "Connection": "close",
            **self._access.authorization(),
        }
        if request.body is not None:
            headers |= {"Content-Type": request.content_type, "Content-Length": str(len(body))}
        lines = [f"{request.method} {parts.path}{request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _check(self, request: Request, head: _Head, raw: bytes) -> None:
        if head.status in (HTTPStatus.OK, HTTPStatus.CREATED):
            return
        try:
            message = str(orjson.loads(raw).get("message"))
        except (ValueError, AttributeError):
            message = raw[:MESSAGE_CHARS_MAX].decode(errors="replace")
        raise ApiError(
            f"{request.method} {self.url}{urlsplit(request.target).path}: {head.status} {message[:MESSAGE_CHARS_MAX]}",
            head.status,
        )


async def _head(reader: asyncio.StreamReader) -> _Head:
    """The status and the headers, by names in lower case."""
    version, status, *_ = (await reader.readuntil(b"\r\n")).decode("latin-1").split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError(f"it speaks {version!r}, not HTTP/1.1")
    headers: dict[str, str] = {}
    for _ in range(HEADERS_MAX):
        line = (await reader.readuntil(b"\r\n")).decode("latin-1").strip()
        if not line:
            return _Head(int(status), headers)
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError(f"more than {HEADERS_MAX} headers")


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """The body in the pieces in which it comes, by length, by chunks or up to the end of the connection."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield await _exactly(reader, size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        if size := int(headers["content-length"]):
            yield await _exactly(reader, size)
    else:
        while piece := await reader.read(LINE_BYTES_MAX):
            yield piece


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a piece of more than {BODY_BYTES_MAX} bytes")
    return await reader.readexactly(size)
