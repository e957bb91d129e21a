"""Logins that a server refuses: each in a row makes the next attempt later, and who hangs up has not let us in."""

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from gpuledger.ledger.client import HUNG_UP, REFUSED, LedgerClient


def answering(monkeypatch: pytest.MonkeyPatch, error: str | None, *, status: int) -> None:
    async def answer(client: Client) -> None:
        client._status = status
        if error is not None:
            raise NatsError(error)

    monkeypatch.setattr(Client, "_process_connect_init", answer)


async def test_refusals_in_a_row_make_the_next_login_later_until_one_is_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, pauses = LedgerClient(), []
    client._refused.jitter = lambda: 1.0
    answering(monkeypatch, "nats: 'Authorization Violation'", status=Client.CONNECTING)
    for _ in range(10):
        with pytest.raises(NatsError, match="Violation"):
            await client._process_connect_init()
        pauses.append(client._pause_s)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (REFUSED.first_s, REFUSED.max_s)

    answering(monkeypatch, None, status=Client.CONNECTED)
    await client._process_connect_init()
    assert client._pause_s == 0


async def test_another_error_does_not_delay_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LedgerClient()
    answering(monkeypatch, "nats: empty response from server", status=Client.CONNECTING)
    with pytest.raises(NatsError):
        await client._process_connect_init()
    assert client._pause_s == 0


async def test_a_server_that_hangs_up_has_not_let_us_in(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LedgerClient()
    answering(monkeypatch, None, status=Client.CONNECTING)
    with pytest.raises(NatsError, match=HUNG_UP):
        await client._process_connect_init()
    assert client._pause_s > 0
