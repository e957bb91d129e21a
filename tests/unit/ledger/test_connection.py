"""What the connection to NATS says of errors: each once, however often it tries."""

import pytest

from gpuledger.ledger.connect import Connection
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
