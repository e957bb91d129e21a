"""A process that only listens, started by `bench.cluster`: a bare subscriber of nats-py, the peer of a committed event.

It prints a line when it listens. When its stdin ends, it prints as JSON when each message first came, by its id and the
clock that processes share. The garbage collector is off, as in `bench.pacing`.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path
from time import perf_counter

import nats
from nats.aio.msg import Msg

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from gpuledger.events.subjects import ALL
from gpuledger.ledger.connect import RECONNECT_WAIT_S

MESSAGE_ID = "Nats-Msg-Id"


async def main(nats_url: str) -> None:
    """Listen, and print."""
    gc.disable()
    came: dict[str, float] = {}

    async def on_message(message: Msg) -> None:
        if message.headers and MESSAGE_ID in message.headers:
            came.setdefault(message.headers[MESSAGE_ID], perf_counter())

    client = await nats.connect(
        nats_url.split(","),
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_WAIT_S,
    )
    await client.subscribe(ALL, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(came))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
