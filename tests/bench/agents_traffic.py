"""The agents of many nodes at work, as a program: `agents_traffic.py NATS_URL AGENTS EVENTS CONNECTIONS`.

Each agent tells something every ten seconds, by itself and under its own name, as the outbox of a real one does when
nothing else waits. Open loop: what is due is published whatever became of the events before. It prints the sequence of
each event, when it was due, and when it was acknowledged, as JSON.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from gpuledger.events.device import DeviceErrorsObserved, DeviceHealthChanged
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.events.payload import Payload
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import connect_ledger

EVENTS_PER_AGENT_S = 0.1
FIRST_AFTER_S = 1.0
CARDS = 8
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def recorded(agents: int, events: int) -> Iterator[Outgoing]:
    """What the agents tell, in turn; of ten events four are errors, four allocations, one monitoring, one health."""
    for index in range(events):
        node, number = f"node-{index % agents:05}", index // agents + 1
        uuid = f"GPU-{index % agents:08}-0000-0000-0000-{number % CARDS:012}"
        subject, data = _fact(node, uuid, (index + number) % 10, number)
        source = f"/nodes/{node}/agent"
        event_id = derived_id(f"{source}#bench#{number}", data.TYPE, subject)
        event = Event(event_id, source, data.TYPE, subject, NOW, data, "bench", number)
        yield Outgoing(nats_subject_of(event), event_id, encode(event))


def _fact(node: str, uuid: str, kind: int, number: int) -> tuple[str, Payload]:
    if kind < 4:
        return uuid, DeviceErrorsObserved(kind="XID 31", cause="application", count=number, first_at=NOW)
    if kind < 8:
        pod, held = f"job-{number}", AllocatedDevices(resource="gpu.deckhouse.io/training", devices=(uuid,))
        seen = AllocationObserved(node=node, namespace="team", pod=pod, container="main", resources=(held,))
        return f"{node}/team/{pod}/main", seen
    if kind == 8:
        return node, NodeMonitoringObserved(fresh=True, updated_at=NOW)
    return uuid, DeviceHealthChanged(healthy=number % 2 == 0, kind="XID 95" if number % 2 else None)


async def main(nats_url: str, agents: int, events: int, connections: int) -> None:
    """Publish at the agents' rate, and print."""
    messages, rate_per_s = list(recorded(agents, events)), agents * EVENTS_PER_AGENT_S
    gc.disable()
    async with AsyncExitStack() as stack:
        ledgers = [
            await stack.enter_async_context(connect_ledger(nats_url, name=f"agents {n}")) for n in range(connections)
        ]
        began = perf_counter() + FIRST_AFTER_S

        async def publish(number: int) -> tuple[int, float, float]:
            receipt = await ledgers[number % connections].publish(messages[number])
            return number_of(receipt.sequence), began + number / rate_per_s, perf_counter()

        async with asyncio.TaskGroup() as publishing:
            tasks = []
            for number in range(events):
                await asyncio.sleep(max(began + number / rate_per_s - perf_counter(), 0))
                tasks.append(publishing.create_task(publish(number)))
    print(json.dumps([task.result() for task in tasks]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
