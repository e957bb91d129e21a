"""An auth callout service with a wrong login or wrong keys says what is wrong, where, and what to do."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpuledger.cli.commands.nats_setup import nats_keys
from gpuledger.compose.auth_callout import CalloutProcess
from gpuledger.edge.authcallout.decide import Reason
from gpuledger.edge.authcallout.repeats import REPEATS
from gpuledger.runtime.settings import CALLOUT_SEED, CALLOUT_XKEY, NatsIdentity
from support.auth_callout import Callouts, by_configuration, by_operator, callouts
from support.ledgers import make_ledger
from support.logins import edge, logins, not_let_in, refused
from support.nats_logins import written_server
from support.waiting import eventually


@pytest.fixture
async def here() -> AsyncIterator[Callouts]:
    async with callouts() as here:
        await make_ledger(here.nats.url)
        yield here


def other_keys(here: Callouts) -> Path:
    """A folder with keys that the server does not have."""
    nats_keys(here.folder / "other", xkey=True)
    return here.folder / "other"


async def trouble(process: CalloutProcess, *parts: str) -> str:
    """What its health says, once that has all of this."""

    async def has_all() -> bool:
        health = process.health()
        return not health.ok and all(part in str(health.document["trouble"]) for part in parts)

    await eventually(has_all)
    return str(process.health().document["trouble"])


async def is_ready(process: CalloutProcess) -> bool:
    return process.health().ok


async def test_a_wrong_password_is_told_with_its_user_and_its_file(here: Callouts) -> None:
    file = here.folder / "wrong.login"
    file.write_text("user: gpuledger-callout\npassword: a-wrong-one\n")
    settings = replace(here.settings, nats_identity=NatsIdentity(file))
    with capture_logs() as logs:
        async with here.running(settings) as process:
            text = await trouble(process, f"gpuledger-callout by {file}", "auth_users", "account AUTH")
            assert "a-wrong-one" not in text
            assert not any(" is up" in line for line in here.output)
            file.write_text(here.settings.nats_identity.credentials.read_text())  # type: ignore[union-attr]
            await eventually(partial(is_ready, process))
            assert any(" is up" in line for line in here.output)
    away = [one["error"] for one in logs if one["event"] == "callout.away"]
    assert len(away) == len(set(away)), "each trouble is logged once"


async def test_a_user_whom_the_server_does_not_know_is_told_though_it_only_hangs_up(here: Callouts) -> None:
    url = here.settings.nats_url.replace("://", "://gpuledger-calout:a-wrong-one@")
    async with here.running(replace(here.settings, nats_url=url, nats_identity=NatsIdentity())) as process:
        text = await trouble(process, "gpuledger-calout by NATS_URL", "auth_users")
        assert "a-wrong-one" not in text


async def test_a_server_that_asks_nobody_is_noticed(here: Callouts, tmp_path: Path) -> None:
    with written_server("") as server, capture_logs() as logs:
        async with here.running(replace(here.settings, nats_url=f"nats://u:p@{server.address}")):

            async def has_warned() -> bool:
                return any(one["event"] == "callout.open" for one in logs)

            await eventually(has_warned)


async def test_the_trial_of_a_start_counts_as_nobodys_login(here: Callouts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = logins(Reason.NO_TOKEN)
    async with here.serving(), here.serving():
        pass
    assert logins(Reason.NO_TOKEN) == before
    assert "Violation" not in caplog.text, "a start that went well looks like it"
    assert "NoToken" in here.nats.log_path.read_text(), "the server asked about it"


async def test_a_server_that_is_not_there_is_told_as_that(here: Callouts) -> None:
    here.nats.stop()
    async with here.running(here.settings) as process:
        text = await trouble(process, "Cannot reach NATS")
        assert "does not let" not in text


async def test_another_issuer_than_the_servers_is_told_with_both(here: Callouts) -> None:
    keys = other_keys(here)
    async with here.running(replace(here.settings, seed=keys / "seed")) as process:
        await trouble(process, CALLOUT_SEED)  # no agent has come yet
        await refused(here, await here.token("w1"), Reason.OTHER_ISSUER)
        ours, servers = (keys / "issuer").read_text().strip(), here.nats.setup.options["issuer"]
        await trouble(process, f"signs as {ours}", f"issuer {servers} alone", CALLOUT_SEED)
        assert "signing key is unknown" in here.nats.log_path.read_text(), "as docs/agent-credentials.md has it"
    async with here.serving(), edge(here, "w1", here.file("agent", await here.token("w1"))):
        pass


@pytest.mark.parametrize("key", [None, "xkey"])
async def test_questions_that_cannot_be_opened_are_told_with_what_to_set(key: str | None) -> None:
    async with callouts(partial(by_configuration, xkey=True)) as here:
        xkey = None if key is None else other_keys(here) / key
        async with here.running(replace(here.settings, xkey=xkey)) as process:
            text = await trouble(process, CALLOUT_XKEY)  # no agent has come yet
            await refused(here, await here.token("w1"), Reason.INVALID_REQUEST)
            assert ("encrypts" if key is None else (here.folder / "other" / "xkey.pub").read_text().strip()) in text


async def test_a_service_with_an_xkey_answers_a_server_that_does_not_encrypt(here: Callouts) -> None:
    settings = replace(here.settings, xkey=other_keys(here) / "xkey")
    async with here.running(settings) as process:
        await eventually(partial(is_ready, process))
        async with edge(here, "w1", here.file("agent", await here.token("w1"))):
            pass


async def test_logins_that_the_server_does_not_accept_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """In operator mode only the server knows which keys sign users of the agents' account."""
    caplog.set_level(logging.INFO)
    async with callouts(by_operator) as here:
        settings = replace(here.settings, account_seed=other_keys(here) / "seed")
        with capture_logs() as logs:
            async with here.running(settings) as process:
                await eventually(partial(is_ready, process))
                identity = NatsIdentity(token=here.file("agent", await here.token("w1")))
                for _ in range(REPEATS):
                    await not_let_in(here, identity=identity)
        (repeated,) = [one for one in logs if one["event"] == "callout.repeated"]
        assert repeated["node"] == "w1"
        assert (here.folder / "other" / "issuer").read_text().strip() in repeated["message"]
        assert "is not known" in here.nats.log_path.read_text()
