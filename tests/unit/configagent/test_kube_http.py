"""Answers as servers and proxies give them: in pieces, by length or by chunks, cut, too large, or none at all."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from gpuledger.configagent import kube_http
from gpuledger.configagent.errors import ApiError
from gpuledger.configagent.kube_access import KubeAccess
from gpuledger.configagent.kube_http import KubeHttp, Request

GET = Request("GET", "/x?a=b")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def answering(*pieces: bytes, stays: bool = False) -> AsyncIterator[tuple[KubeHttp, list[bytes]]]:
    """A server that sends these pieces, and what it was asked."""
    asked: list[bytes] = []
    ended = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if stays:
                await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.release()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield KubeHttp(KubeAccess(f"http://{host}:{port}/base", token="t")), asked
        await asyncio.wait_for(ended.acquire(), 10)


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b'Content-Length: 7\r\n\r\n{"a":1}',),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\n", b'{"a\r\n4;x=y\r\n":1}\r\n0\r\n\r\n'),
        (HEAD + b"\r\n", b'{"a"', b":1}"),
    ],
    ids=["length", "chunks", "end"],
)
async def test_a_body_is_read_as_it_is_sent(pieces: tuple[bytes, ...]) -> None:
    async with answering(*pieces) as (http, asked):
        assert await http.send(GET) == {"a": 1}
        assert asked[0].startswith(b"GET /base/x?a=b HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer t\r\n" in asked[0]


async def test_the_events_of_a_stream_come_as_they_are_complete() -> None:
    chunks = (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b'8\r\n{"a":1}\n\r\n', b'3\r\n{"a\r\n', b'5\r\n":2}\n\r\n')
    async with answering(*chunks, stays=True) as (http, _), aclosing(http.lines(GET, 20)) as lines:
        assert [await anext(lines), await anext(lines)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((b"HTTP/1.1 403 Forbidden\r\nContent-Length: 16\r\n\r\n" + b'{"message":"no"}',), "403 no$"),
        ((b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>",), "502 <html>"),
        ((HEAD + b"Content-Length: 9\r\n\r\n{",), "See the network"),
        ((HEAD + b"Content-Length: 2\r\n\r\n{\n",), "See the network"),
        ((HEAD + b"Content-Length: 999999999\r\n\r\n",), "a piece of more than"),
        ((b"SSH-2.0-x\r\n\r\n",), "not"),
        ((HEAD + b"a: b\r\n" * 200,), "more than 100 headers"),
        ((b"",), "See the network"),
    ],
)
async def test_what_is_no_answer_is_an_error_that_says_so(pieces: tuple[bytes, ...], message: str) -> None:
    for ask in (_send, _stream):
        async with answering(*pieces) as (http, _):
            with pytest.raises(ApiError, match=message):
                await ask(http)


async def _send(http: KubeHttp) -> Any:
    return await http.send(GET)


async def _stream(http: KubeHttp) -> Any:
    return [line async for line in http.lines(GET, 20)]


async def test_waits_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_http, "ANSWER_TIMEOUT_S", 0.05)
    async with answering(stays=True) as (http, _):
        with pytest.raises(ApiError, match=r"no answer within 0\.05 s"):
            await http.send(GET)
    async with answering(HEAD + b"\r\n", stays=True) as (http, _):
        with pytest.raises(ApiError, match=r"no answer within 0\.1 s"):
            _ = [line async for line in http.lines(GET, 0.1)]


async def test_events_and_bodies_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_http, "LINE_BYTES_MAX", 10)
    monkeypatch.setattr(kube_http, "BODY_BYTES_MAX", 100)
    endless: Callable[[int], tuple[bytes, ...]] = lambda size: (HEAD + b"\r\n", b"x" * size)  # noqa: E731
    async with answering(*endless(50)) as (http, _):
        with pytest.raises(ApiError, match="an event of more than 10 bytes"):
            await _stream(http)
    async with answering(*endless(500)) as (http, _):
        with pytest.raises(ApiError, match="more than 100 bytes"):
            await _send(http)
