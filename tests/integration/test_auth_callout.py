"""Agents log in by the token of their service account: a real NATS server, the service, and the embedded API server."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gpuledger.api.kinds import PODS
from gpuledger.edge.authcallout import decide, service
from gpuledger.edge.authcallout.decide import Denied, Granted, Reason
from gpuledger.edge.kube.transport import KubeRequest
from gpuledger.events.node import NodeAgentStarted
from gpuledger.ledger.client import is_refusal
from gpuledger.ledger.connect import connected
from gpuledger.ledger.edge import EdgeLedger
from gpuledger.ledger.errors import PermissionDeniedError
from gpuledger.ledger.permissions import Role, desired_devices_subject
from gpuledger.ledger.stream import stream_name
from support.agent_process import NODE, a_place
from support.auth_callout import NAMESPACE, Callouts, callouts
from support.ledgers import DEADLINE_S, make_ledger
from support.logins import edge, fact, logins, not_let_in, refused
from support.nkeys import USER, Key
from support.waiting import eventually


@pytest.fixture
async def here() -> AsyncIterator[Callouts]:
    async with callouts() as here:
        await make_ledger(here.nats.url)
        yield here


@pytest.mark.one_stream("counts the messages of the stream")
@pytest.mark.parametrize("node", ["w1", "gpu-01.example.com"])
async def test_an_agent_is_confined_to_the_node_of_its_token(here: Callouts, node: str) -> None:
    subject = desired_devices_subject(node)
    async with here.serving():
        async with connected(here.nats.url_of(Role.SERVICES), name="pools") as pools:
            await pools.jetstream.publish(subject, b"a list")
        async with edge(here, node, here.file("agent", await here.token(node))) as agent:
            await agent.publish(fact(node))
            newest = await agent.newest(subject)
            assert newest is not None
            assert newest.data == b"a list"
            with pytest.raises(PermissionDeniedError):
                await agent.publish(fact("other"))


async def test_a_token_serves_no_other_node(here: Callouts) -> None:
    async with here.serving():
        with pytest.raises(PermissionDeniedError):
            async with edge(here, "w2", here.file("agent", await here.token("w1"))):
                pass


async def test_tokens_of_others_are_refused(here: Callouts, caplog: pytest.LogCaptureFixture) -> None:
    async with here.serving():
        genuine = await here.token("w1")
        for token, reason in (
            (await here.token("w2", audience="somebody"), Reason.NOT_AUTHENTICATED),
            (await here.token("w1", account="other"), Reason.OTHER_ACCOUNT),
            (await here.token(None), Reason.NO_NODE),
            ("garbage", Reason.NOT_AUTHENTICATED),
            (f"{genuine[:-4]}AAAA", Reason.NOT_AUTHENTICATED),
        ):
            await refused(here, token, reason)
        log = here.nats.log_path.read_text()
        assert "OtherAccount: it is system:serviceaccount:gpu:other" in log
        assert genuine[:40] not in log + caplog.text


async def test_who_comes_without_a_token_or_with_a_wrong_password_is_refused(here: Callouts) -> None:
    async with here.serving():
        before = logins(Reason.NO_TOKEN)
        for login in ("", "nobody:p@"):
            await not_let_in(here, login=login)
        assert logins(Reason.NO_TOKEN) == before + 2


async def test_a_deleted_pod_takes_its_token_along(here: Callouts) -> None:
    async with here.serving():
        token = await here.token("w1")
        path = f"{PODS.path(NAMESPACE)}/agent-w1"
        await here.admin.send(KubeRequest("delete a pod", "DELETE", path, {"gracePeriodSeconds": "0"}))
        await refused(here, token, Reason.NOT_AUTHENTICATED)


@pytest.mark.one_stream("counts the messages of the stream")
async def test_a_login_that_ends_is_renewed_and_nothing_is_lost(
    here: Callouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_logins(monkeypatch)
    async with here.serving(), edge(here, "w1", here.file("agent", await here.token("w1"))) as agent:
        await publishes_until_logged_in_again(here, agent, 2)


@pytest.mark.one_stream("counts the messages of the stream")
async def test_a_renewed_token_is_read_at_the_next_login(here: Callouts, monkeypatch: pytest.MonkeyPatch) -> None:
    short_logins(monkeypatch)
    tokens: list[str] = []

    def decided(token: str, *more: Any) -> Granted | Denied:
        tokens.append(token)
        return decide.decide(token, *more)

    monkeypatch.setattr(service, "decide", decided)
    async with here.serving(), edge(here, "w1", here.file("agent", first := await here.token("w1"))) as agent:
        here.file("agent", second := await here.token("w1"))
        await publishes_until_logged_in_again(here, agent, 1)
    assert {first, second} == set(tokens)


@pytest.mark.one_stream("counts the messages of the stream")
async def test_without_the_service_logins_wait_and_connections_live_on(
    here: Callouts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpuledger.ledger")
    async with AsyncExitStack() as stack:
        async with here.serving():
            old = await stack.enter_async_context(edge(here, "w1", here.file("w1", await here.token("w1"))))
        await old.publish(fact("w1"))
        coming = asyncio.create_task(
            stack.enter_async_context(edge(here, "w2", here.file("w2", await here.token("w2"))))
        )
        # The server gives a login up that nobody answers, and the agent comes again.
        await eventually(lambda: timed_out(caplog))
        assert not coming.done()
        async with here.serving():
            new = await coming
            await new.publish(fact("w2"))
            await old.publish(fact("w1", 2))
    assert await recorded(here) == 3


async def test_of_two_services_one_may_end(here: Callouts) -> None:
    async with here.serving():
        async with here.serving():
            await refused(here, "garbage", Reason.NOT_AUTHENTICATED)
        async with edge(here, "w1", here.file("agent", await here.token("w1"))) as agent:
            await agent.publish(fact("w1"))


async def test_without_the_api_server_nobody_is_let_in_until_it_is_back(here: Callouts) -> None:
    async with here.serving():
        file = here.file("agent", await here.token("w1"))
        await here.kube.stop()
        before = logins(Reason.REVIEW_FAILED)
        async with AsyncExitStack() as stack:
            coming = asyncio.create_task(stack.enter_async_context(edge(here, "w1", file)))
            await eventually(lambda: has_failed(before + 2))
            await here.kube.start()
            here.file("agent", await here.token("w1"))  # the server that came back has another key
            await (await coming).publish(fact("w1"))


async def test_what_is_no_request_of_a_server_is_not_answered(here: Callouts) -> None:
    key = Key(USER)
    for data in (b"", b"a.b.c", b"\xff", key.claim(key.public, "x", {"type": "authorization_request"}).encode()):
        assert isinstance(service._request_of(data), Denied)


@pytest.mark.long
async def test_an_agent_that_meets_no_service_loses_nothing(here: Callouts) -> None:
    environ = {"GPULEDGER_NATS_TOKEN_FILE": str(here.file("agent", await here.token(NODE)))}
    async with a_place(here.nats, url=f"nats://{here.nats.address}", environ=environ) as place:
        await place.agent.start()
        await place.agent.logs("no answer in time")
        async with here.serving():
            await place.recorded_at_least(1, NodeAgentStarted)
            await place.nothing_is_lost()


async def publishes_until_logged_in_again(here: Callouts, agent: EdgeLedger, times: int) -> None:
    """Publish one fact after the other while logins end, and find them all in the log."""
    before, number = logins(), 0
    async with asyncio.timeout(DEADLINE_S):
        while logins() < before + times:
            number += 1
            await agent.publish(fact("w1", number))
    assert await recorded(here) == number


async def recorded(here: Callouts) -> int:
    """How many events the ledger holds."""
    async with connected(here.nats.url_of(Role.READER), name="reader") as reader:
        info = await reader.jetstream.stream_info(stream_name(1))
    return info.state.messages


async def timed_out(caplog: pytest.LogCaptureFixture) -> bool:
    return is_refusal(caplog.text)


async def has_failed(count: float) -> bool:
    return logins(Reason.REVIEW_FAILED) >= count


def short_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "LOGIN_LIFE_MAX_S", 2)
    monkeypatch.setattr(decide, "LOGIN_LIFE_MIN_S", 0)
    monkeypatch.setattr(decide, "SPREAD_S", 1)
