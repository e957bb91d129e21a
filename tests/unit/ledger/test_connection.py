"""What the connection to NATS says of errors: each once, however often it tries."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from nats.js.errors import APIError, BadRequestError, NotFoundError, ServerError

from gpuledger.ledger.connect import REFUSALS, Connection
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.runtime.telemetry import configure_logging

AWAY = OSError("nobody listens")


async def test_an_error_is_logged_once_until_the_server_is_back_or_another_takes_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging()
    connection = Connection("nats://a")
    for error in (AWAY, AWAY, ValueError("refused"), AWAY, AWAY):
        await connection._on_error(error)
    await connection._on_reconnected()
    await connection._on_error(AWAY)
    events = [line.split('"event": "')[1].split('"')[0] for line in capsys.readouterr().err.splitlines()]
    away, refused = "NATS at nats://a: nobody listens", "NATS at nats://a: refused"
    assert events == [away, refused, away, "NATS at nats://a is back", away]


async def test_connecting_ends_in_time_even_if_the_client_swallows_a_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled = 0

    async def connect(*_args: Any, **_named: Any) -> None:
        nonlocal cancelled
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancelled += 1
        await asyncio.Event().wait()

    connection = Connection("nats://a")
    monkeypatch.setattr(connection.client, "connect", connect)
    with pytest.raises(LedgerUnavailableError, match="Cannot reach NATS at nats://a"):
        await connection.open(["nats://127.0.0.1:4"], "test", 0.01)
    assert cancelled == 1


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_trouble_of_the_server_is_waited_out_within_a_bound(code: int) -> None:
    connection, asked = Connection("nats://a"), []

    async def ask() -> str:
        asked.append(code)
        if len(asked) < 3:
            APIError.from_error({"code": code, "err_code": 10118, "description": "stream is offline"})
        return "answer"

    assert await connection.request(ask) == "answer"
    asked.clear()
    with pytest.raises(LedgerUnavailableError, match="stream is offline"):
        await connection.request(ask, 0.01)


@pytest.mark.parametrize(
    ("code", "refusals", "raised"),
    [(404, REFUSALS, NotFoundError), (400, REFUSALS, BadRequestError), (500, (ServerError,), ServerError)],
)
async def test_what_trying_again_does_not_change_is_raised_at_once(
    code: int, refusals: tuple[type[APIError], ...], raised: type[APIError]
) -> None:
    async def ask() -> None:
        APIError.from_error({"code": code, "err_code": 1, "description": "no"})

    with pytest.raises(raised):
        await Connection("nats://a").request(ask, refusals=refusals)
