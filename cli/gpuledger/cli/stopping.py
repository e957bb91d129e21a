"""How a command that serves ends: in an orderly way, on SIGINT and SIGTERM, whatever it is just doing."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from gpuledger.cli.render import message

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work fails or a signal says to stop; the end is an orderly one either way."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        say("Stopping ...")
    try:
        await working
    except asyncio.CancelledError:
        say("Stopped.")


def say(text: str) -> None:
    """Tell something. Whoever listened to stderr may be gone; that must not keep the servers from being stopped."""
    with suppress(OSError):
        message(text)
