"""How an export logs in to its endpoint: a token that is renewed, TLS, a certificate of its own, and no redirect."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpuledger.ledger.jetstream import JetStreamLedger
from support.exporting import accepts, dead_letters, exporter_of, exporting, ids_of, is_caught_up, is_in_state, reports
from support.projections import publish
from support.receiver import Reply, receiving, tls_files


def read(path: Path) -> str:
    return path.read_text()


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


async def test_a_token_that_was_renewed_counts_with_the_next_request(
    ledger: JetStreamLedger, url: str, token: Path
) -> None:
    await publish(ledger, events := reports([1, 2]))
    async with receiving() as receiver:
        receiver.decide = lambda one: Reply(204 if one.authorization == "Bearer first" else 401)
        async with exporting(exporter := exporter_of(ledger, url, receiver, token=token)):
            await is_caught_up(exporter)
            write(token, "second\n")
            await publish(ledger, later := reports([3]))
            await is_in_state(exporter, "retrying")
            assert exporter.health().reason == f"{receiver.url.removesuffix('/events')} answered 401."
            receiver.decide = lambda one: Reply(204 if one.authorization == "Bearer second" else 401)
            await is_caught_up(exporter)
        assert receiver.ids == ids_of([*events, *later])


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "no ascii \N{EN DASH}"])
async def test_a_file_without_a_token_is_waited_for(
    ledger: JetStreamLedger, url: str, token: Path, content: str
) -> None:
    await publish(ledger, reports([1]))
    write(token, content)
    async with receiving() as receiver, exporting(exporter := exporter_of(ledger, url, receiver, token=token)):
        await is_in_state(exporter, "retrying")
        assert str(token) in (exporter.health().reason or "")
        write(token, "good")
        await is_caught_up(exporter)
    assert [one.authorization for one in receiver.requests] == ["Bearer good"]


async def test_a_redirect_gets_no_token(ledger: JetStreamLedger, url: str, token: Path) -> None:
    await publish(ledger, reports([1]))
    async with receiving() as other, receiving() as receiver:
        receiver.decide = lambda _: Reply(307, {"Location": other.url})
        async with exporting(exporter := exporter_of(ledger, url, receiver, token=token)):
            await is_in_state(exporter, "retrying")
            assert "answered 307" in (exporter.health().reason or "")
        assert other.requests == []


async def test_the_authorities_of_the_settings_are_trusted_and_no_others(
    ledger: JetStreamLedger, url: str, tmp_path: Path, token: Path
) -> None:
    files, others = tls_files(tmp_path), tls_files(tmp_path, "others")
    await publish(ledger, events := reports([1]))
    async with receiving(files.server()) as receiver:
        async with exporting(exporter := exporter_of(ledger, url, receiver, ca=others.ca, token=token)):
            await is_in_state(exporter, "retrying")
            assert "certificate" in (exporter.health().reason or "").lower()
            write(others.ca, read(files.ca))
            await is_caught_up(exporter)
        assert receiver.ids == ids_of(events)


async def test_an_endpoint_can_ask_for_a_certificate(ledger: JetStreamLedger, url: str, tmp_path: Path) -> None:
    files = tls_files(tmp_path)
    await publish(ledger, events := reports([1]))
    async with receiving(files.server(asks_clients=True)) as receiver:
        async with exporting(exporter := exporter_of(ledger, url, receiver, ca=files.ca)):
            await is_in_state(exporter, "retrying")
        certified = exporter_of(ledger, url, receiver, ca=files.ca, certificate=files.certificate, key=files.key)
        async with exporting(certified):
            await accepts(receiver, 1)
        assert receiver.ids == ids_of(events)


async def test_an_endpoint_that_repeats_the_token_puts_it_nowhere(
    ledger: JetStreamLedger, url: str, token: Path
) -> None:
    write(token, "a-secret-token")
    await publish(ledger, reports([1]))
    async with receiving() as receiver:
        receiver.decide = lambda one: Reply(400, text=f"no event: {one.authorization}")
        with capture_logs() as logged:
            async with exporting(exporter := exporter_of(ledger, url, receiver, token=token)):
                await is_caught_up(exporter)
    ((_, _, reason),) = dead_letters(url)
    assert reason.endswith("answered 400 (no event: Bearer ***).")
    assert "a-secret-token" not in str(logged)
