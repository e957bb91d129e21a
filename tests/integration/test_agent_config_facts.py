"""What a node's agent of machine configuration leaves reaches the ledger through the node's agent, once each."""

import asyncio

from gpuledger.events.machine_config import ConfigChange, NodeConfigReported
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.clock import random_id, system_clock
from gpuledger.runtimefacts.folder import FactsFolder
from gpuledger.runtimefacts.stored import StoredFacts
from support.agent_process import a_place
from support.servers import short_directory
from support.waiting import eventually

CHANGE = ConfigChange(subject="/etc/a", action="write", outcome="changed")


async def test_reports_wait_for_the_agent_and_are_recorded_in_order(fresh_nats: NatsServer) -> None:
    with short_directory() as root:
        folder = FactsFolder(root / "reports")
        facts = StoredFacts(folder, clock=system_clock, new_id=random_id)
        applying = NodeConfigReported(state="applying", revision="rendered-a-1", boot="b1")
        done = NodeConfigReported(
            state="done", revision="rendered-a-1", current_revision="rendered-a-1", changes=(CHANGE,), change_count=1
        )
        await facts.record(applying)
        await facts.record(done)
        async with a_place(fresh_nats, environ={"GPULEDGER_CONFIG_FACTS_DIR": str(root / "reports")}) as place:
            await place.agent.start()
            assert await place.recorded_at_least(2, NodeConfigReported) == [applying, done]
            await place.agent.kill()
            await facts.record(applying)
            await place.agent.start()
            assert len(await place.recorded_at_least(3, NodeConfigReported)) == 3
            await place.nothing_is_lost()

            async def is_empty() -> bool:
                return await asyncio.to_thread(folder.names) == []

            await eventually(is_empty)
