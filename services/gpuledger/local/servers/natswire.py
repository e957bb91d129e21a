"""The few lines of the NATS protocol that tell whether a server serves.

Blocking and without an event loop, on purpose: it asks one question over one connection. It must never become a
client for the ledger's own traffic.
"""

import json
import socket
from io import BufferedRWPair
from typing import Any
from urllib.parse import unquote, urlsplit

TIMEOUT_S = 5.0
_INBOX = b"_INBOX.gpuledger"


class WireError(Exception):
    """The peer is not there, is no NATS server, or refused the question."""


def server_info(url: str, *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """What the server says of itself, once it has accepted us and answered a ping.

    Raises:
        WireError: it did not.
    """
    try:
        with _connection(url, timeout_s) as connection, connection.makefile("rwb") as stream:
            return _greet(stream, url)
    except (OSError, ValueError) as error:
        raise WireError(f"no NATS server answers: {error}") from error


def request(url: str, subject: str, payload: bytes = b"", *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The JSON object that somebody answers on a subject.

    Raises:
        WireError: nobody answered within `timeout_s`, or the answer is an error.
    """
    try:
        with _connection(url, timeout_s) as connection, connection.makefile("rwb") as stream:
            _greet(stream, url)
            _send(stream, b"SUB %b 1\r\nPUB %b %b %d\r\n" % (_INBOX, subject.encode(), _INBOX, len(payload)))
            _send(stream, payload + b"\r\n")
            answer: dict[str, Any] = json.loads(_next_message(stream))
    except (OSError, ValueError) as error:
        raise WireError(f"no answer on {subject}: {error}") from error
    if "error" in answer:
        raise WireError(f"{subject} was refused: {answer['error']}")
    return answer


def _connection(url: str, timeout_s: float) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port or 4222), timeout_s)


def _greet(stream: BufferedRWPair, url: str) -> dict[str, Any]:
    verb, _, text = stream.readline().partition(b" ")
    if verb != b"INFO":
        raise WireError(f"the peer greets with {verb[:20]!r}, not as a NATS server")
    info: dict[str, Any] = json.loads(text)
    _send(stream, b"CONNECT %b\r\nPING\r\n" % json.dumps(_introduction(url)).encode())
    _expect(stream, b"PONG")
    return info


def _introduction(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    basics = {"verbose": False, "pedantic": False, "lang": "python", "version": "1", "protocol": 1}
    if parts.username is None:
        return basics
    return basics | {"user": unquote(parts.username), "pass": unquote(parts.password or "")}


def _next_message(stream: BufferedRWPair) -> bytes:
    line = _expect(stream, b"MSG")
    return stream.read(int(line.split()[-1]))


def _expect(stream: BufferedRWPair, verb: bytes) -> bytes:
    """The next line with the verb; pings are answered on the way."""
    while line := stream.readline():
        if line.startswith(verb):
            return line
        if line.startswith(b"-ERR"):
            raise WireError(line.decode(errors="replace").strip())
        if line.startswith(b"PING"):
            _send(stream, b"PONG\r\n")
    raise WireError("the server closed the connection")


def _send(stream: BufferedRWPair, data: bytes) -> None:
    stream.write(data)
    stream.flush()
