"""Runs a command that serves until a signal stops it, and tells the user so."""

from contextlib import suppress

from gpuledger.cli.render import message
from gpuledger.runtime.tasks import Work, run_until_stopped


async def until_stopped(work: Work) -> None:
    """Run until the work fails or a signal stops it; the end is an orderly one either way."""
    await run_until_stopped(work, say)


def say(text: str) -> None:
    """Write a line to stderr. Its reader may be gone; that must not keep the servers from being stopped."""
    with suppress(OSError):
        message(text)
