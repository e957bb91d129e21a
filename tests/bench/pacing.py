"""A process that publishes at a steady rate, started by `bench.latency`; prints what became of each event as JSON.

Open loop: what is due is published whatever became of the events before, each event by itself, as live sources do.
Given a subject it publishes there with nats-py alone and prints how long each acknowledgement took; otherwise it
publishes events to the ledger and prints their sequences, the moments when they were due and their ids. The garbage
collector is off: a pause of this process is none of what is measured, and it ends soon.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench import fleet, raw
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import connect_ledger

FIRST_AFTER_S = 0.2

Publish = Callable[[list[Outgoing]], Coroutine[Any, Any, list[tuple[int, float]]]]
"""Publishes, and answers with sequence and moment of acknowledgement of each."""


async def main(nats_url: str, events: int, rate_per_s: int, subject: str = "") -> None:
    """Publish, and print."""
    messages = list(fleet.published(fleet.history(events), fleet.epoch("paced")))
    gc.disable()
    if subject:
        async with raw.client(nats_url) as client:
            jetstream = client.jetstream()

            async def publish_raw(due: list[Outgoing]) -> list[tuple[int, float]]:
                futures = [
                    await jetstream.publish_async(subject, message.data, headers={"Nats-Msg-Id": message.id})
                    for message in due
                ]
                return [((await future).seq, perf_counter()) for future in futures]

            began, stored = await paced(publish_raw, messages, rate_per_s)
            print(json.dumps([(seq, at - began - n / rate_per_s) for n, (seq, at) in enumerate(stored)]))
        return
    async with connect_ledger(nats_url, name="bench pacing") as ledger:

        async def publish(due: list[Outgoing]) -> list[tuple[int, float]]:
            receipts = await asyncio.gather(*(ledger.publish(message) for message in due))
            return [(number_of(receipt.sequence), 0.0) for receipt in receipts]

        began, stored = await paced(publish, messages, rate_per_s)
        due_at = (began + n / rate_per_s for n in range(events))
        print(json.dumps([(seq, at, one.id) for (seq, _), at, one in zip(stored, due_at, messages, strict=True)]))


async def paced(publish: Publish, messages: list[Outgoing], rate_per_s: int) -> tuple[float, list[tuple[int, float]]]:
    """Publish every message when it is due; when the first was due, and the answers in order."""
    began, sent = perf_counter() + FIRST_AFTER_S, 0
    tasks: list[asyncio.Task[list[tuple[int, float]]]] = []
    async with asyncio.TaskGroup() as publishing:
        while sent < len(messages):
            due = min(int((perf_counter() - began) * rate_per_s) + 1, len(messages))
            if due > sent:
                tasks.append(publishing.create_task(publish(messages[sent:due])))
                sent = due
            await asyncio.sleep(max(began + sent / rate_per_s - perf_counter(), 0))
    return began, [answer for task in tasks for answer in task.result()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
