"""Auth callout services that are killed while agents log in: real processes of services, agents and NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest

from gpuledger.events.device import DeviceErrorsObserved
from gpuledger.events.node import NodeAgentStarted
from gpuledger.ledger.client import HUNG_UP
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.permissions import Role
from gpuledger.ledger.stream import stream_name
from gpuledger.runtime.settings import NATS_TOKEN_FILE
from support.agent_process import NODE, Place, a_place
from support.auth_callout import Callouts, callouts
from support.callout_processes import services
from support.ledgers import DEADLINE_S, make_ledger
from support.logins import edge, fact
from support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

AGENTS = 24
ADVICE = "It asks the auth callout service about our token; look whether that runs, and what its log says."


@pytest.fixture
async def here() -> AsyncIterator[Callouts]:
    async with callouts() as here:
        await make_ledger(here.nats.url)
        yield here


async def log_in_and_publish(here: Callouts, number: int) -> None:
    node = f"n{number}"
    async with edge(here, node, here.file(node, await here.token(node)), DEADLINE_S) as agent:
        await agent.publish(fact(node))


async def test_logins_go_on_while_one_of_two_services_is_killed(here: Callouts) -> None:
    async with services(here, 2) as (victim, survivor):
        coming = [asyncio.create_task(log_in_and_publish(here, number)) for number in range(AGENTS)]

        async def has_granted() -> bool:
            return victim.granted > 0

        await eventually(has_granted)
        await victim.kill()
        after = survivor.granted
        coming += [asyncio.create_task(log_in_and_publish(here, AGENTS + number)) for number in range(AGENTS)]
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*coming)
        assert survivor.granted >= after + AGENTS, "those that came later all came to it"
    async with here.nats.connected_as(Role.READER) as reader:
        assert (await reader.jetstream.stream_info(stream_name(1))).state.messages == 2 * AGENTS


async def test_a_connected_agent_goes_on_without_any_service(here: Callouts) -> None:
    async with AsyncExitStack() as stack:
        async with services(here, 1):
            here.file("agent", await here.token(NODE))
            place = await stack.enter_async_context(an_agent(here))
            await place.agent.start()
            await place.recorded_at_least(1, NodeAgentStarted)
        await place.agent.inject(f"xid:79@{place.agent.cards()[0]}")
        await place.recorded_at_least(1, DeviceErrorsObserved)
        with pytest.raises(LedgerUnavailableError, match=f"{HUNG_UP}. {ADVICE}"):
            async with edge(here, "w2", here.file("w2", await here.token("w2")), 5.0):
                pass


async def test_agents_whose_login_ends_wait_with_a_reason_and_come_back(here: Callouts) -> None:
    here.file("agent", await here.token(NODE))
    async with services(here, 1, is_fast=True) as (service,), an_agent(here) as place:
        await place.agent.start()
        await place.recorded_at_least(1, NodeAgentStarted)
        await service.kill()
        await place.agent.logs(
            "the server hung up before it let us in, as one does whose authentication takes too long"
        )
        await place.agent.inject(f"xid:79@{place.agent.cards()[0]}")

        async def waits() -> bool:
            _, document = await place.agent.health()
            return ADVICE in document["ledger"] and document["waiting"] > 0

        await eventually(waits)
        async with services(here, 1):
            await place.recorded_at_least(1, DeviceErrorsObserved)
            await place.nothing_is_lost()


async def test_a_service_outlives_its_server(here: Callouts) -> None:
    async with services(here, 1):
        here.nats.stop()
        here.nats.start()
        await log_in_and_publish(here, 1)


def an_agent(here: Callouts) -> AbstractAsyncContextManager[Place]:
    """An agent of its own process, which is not started yet; only a token logs it in."""
    environ = {NATS_TOKEN_FILE: str(here.folder / "agent.token")}
    return a_place(here.nats, url=f"nats://{here.nats.address}", environ=environ)
