"""Serves `/metrics` (Prometheus) and `/healthz` (JSON) from the event loop that does the work.

That loop answers, and no thread beside it: while it is stuck nothing answers, and a supervisor notices. It must never
read a request's body, nor show anything that is not for everybody who reaches the port.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

REQUEST_BYTES_MAX = 16 * 1024
REQUEST_TIMEOUT_S = 5.0
PORT_MAX = 65_535


class ListenError(Exception):
    """The address cannot be listened on; the message says what to do."""


class Health(NamedTuple):
    """Whether all is well, and details as JSON values."""

    ok: bool
    document: Mapping[str, object]


class HttpAnswer(NamedTuple):
    """A response."""

    status: HTTPStatus
    content_type: str
    body: bytes


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9100`, `[::1]:9100` or `:9100` (this machine alone); port 0 is any free one.

    Raises:
        ListenError: it is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ListenError(f"{text!r} is not an address to listen on. Write HOST:PORT, such as 127.0.0.1:9100.")
    return host.strip("[]") or "127.0.0.1", int(port)


@asynccontextmanager
async def serving(address: str, health: Callable[[], Health]) -> AsyncIterator[str]:
    """Serve for the length of the block; gives the URL, without a path.

    Raises:
        ListenError: the address cannot be listened on.
    """
    host, port = parse_address(address)

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await _converse(reader, writer, health)
        writer.close()

    try:
        server = await asyncio.start_server(on_client, host, port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise ListenError(f"Cannot listen on {address}: {error.strerror}. Choose another address.") from error
    async with server:
        yield _url(*server.sockets[0].getsockname()[:2])


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, health: Callable[[], Health]) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *headers = request.split("\r\n")
    method, _, rest = line.partition(" ")
    accept = next((h.partition(":")[2].strip() for h in headers if h.lower().startswith("accept:")), "")
    answer = _answer(method, rest.split(" ")[0].partition("?")[0], accept, health)
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + (b"" if method == "HEAD" else answer.body))
    await writer.drain()


def _answer(method: str, path: str, accept: str, health: Callable[[], Health]) -> HttpAnswer:
    if method not in {"GET", "HEAD"}:
        return _text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are served.\n")
    if path == "/metrics":
        encode, content_type = choose_encoder(accept)
        return HttpAnswer(HTTPStatus.OK, content_type, encode(REGISTRY))
    if path == "/healthz":
        found = health()
        status = HTTPStatus.OK if found.ok else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpAnswer(status, "application/json", json.dumps(found.document, indent=2).encode() + b"\n")
    return _text(HTTPStatus.NOT_FOUND, "There are /metrics and /healthz.\n")


def _text(status: HTTPStatus, text: str) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", text.encode())
