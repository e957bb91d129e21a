"""A process that publishes at a steady rate, started by `bench.latency`; prints each event's sequence and moment.

Open loop: what is due is published whatever became of the events before. What is due at one moment goes out together.
"""

import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter

CONNECTED_S = 0.2
"""How long after the connection is made the first event is due."""


async def main(nats_url: str, events: int, rate_per_s: int) -> None:
    """Publish, and print what became of it as JSON."""
    from bench import fleet
    from gpuledger.ledger.jetstream import connect_ledger

    messages = list(fleet.published(fleet.history(events), fleet.epoch("paced")))
    async with connect_ledger(nats_url, name="bench pacing") as ledger, asyncio.TaskGroup() as publishing:
        began, sent, tasks = perf_counter() + CONNECTED_S, 0, []
        while sent < len(messages):
            due = min(int((perf_counter() - began) * rate_per_s) + 1, len(messages))
            if due > sent:
                tasks.append(publishing.create_task(ledger.publish_many(messages[sent:due])))
                sent = due
            await asyncio.sleep(max(began + sent / rate_per_s - perf_counter(), 0))
    receipts = [receipt for task in tasks for receipt in task.result()]
    print(json.dumps([(receipt.sequence, began + at / rate_per_s) for at, receipt in enumerate(receipts)]))


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
