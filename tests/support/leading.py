"""A process that leads while it holds a lock: `python -m support.leading DATABASE_URL LOCK`.

It prints `leads N` and `ended N`, N being seconds of the machine's steady clock, which all processes share.
"""

import asyncio
import sys
import time

from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.db.locks import LockCheck, while_locked

PAUSE_S = 0.2


async def lead(database_url: str, lock: str) -> None:
    """Lead, or stand by, until killed."""
    while True:
        try:
            await while_locked(database_url, lock, _work, application_name="leading", check=LockCheck())
        except DatabaseUnavailableError as error:
            print(error, file=sys.stderr, flush=True)
        await asyncio.sleep(PAUSE_S)


async def _work() -> None:
    _print("leads")
    try:
        await asyncio.Event().wait()
    finally:
        _print("ended")


def _print(what: str) -> None:
    print(what, time.monotonic(), flush=True)


if __name__ == "__main__":
    asyncio.run(lead(*sys.argv[1:]))
