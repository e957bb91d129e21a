"""A socket by which faults are injected into the simulated hardware of a running agent. Real hardware has none.

One line asks, one line of JSON answers; whoever may write to the agent's folder may ask.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import orjson
import structlog

from gpuledger.agent.errors import ControlError

SOCKET: Final = "control.sock"
LINE_BYTES_MAX: Final = 4096
ANSWER_TIMEOUT_S: Final = 10.0

log = structlog.get_logger("gpuledger.agent")

Inject = Callable[[str], str]
"""Takes a fault's text and tells what was done; raises ValueError where that is no fault, or not for this hardware."""

OnClient = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def controlled(state_dir: Path, inject: Inject) -> AsyncIterator[None]:
    """Listen in the agent's folder for the length of the block; where nobody can listen there, nobody does."""
    path = state_dir / SOCKET

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                line = await reader.readline()
                writer.write(_answer(line, inject))
                await writer.drain()
        writer.close()

    server = await _server(path, on_client)
    try:
        yield
    finally:
        if server is not None:
            server.close()
            path.unlink(missing_ok=True)


async def _server(path: Path, on_client: OnClient) -> asyncio.Server | None:
    """A server that its owner alone may ask; None where the folder has none, which must not end the agent."""
    try:
        return await asyncio.start_unix_server(on_client, sock=_bound(path), limit=LINE_BYTES_MAX)
    except OSError as error:
        log.warning("faults cannot be injected", socket=str(path), reason=str(error))
        return None


def _bound(path: Path) -> socket.socket:
    """A socket at the path, whatever an agent that was killed left there."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    return bound


async def ask(state_dir: Path, fault: str) -> str:
    """Have the agent that keeps this folder inject a fault; returns what it did.

    Raises:
        ControlError: no agent listens there, or it does not do that.
    """
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(state_dir / SOCKET)
            try:
                writer.write(fault.encode() + b"\n")
                answer = orjson.loads(await reader.readline())
            finally:
                writer.close()
    except (FileNotFoundError, ConnectionError) as error:
        raise ControlError(
            f"No agent with simulated hardware runs on {state_dir}. Start one with `gpuledger agent run --hardware "
            "simulated:8xH100`, and name its --state-dir; faults are injected into simulated hardware only."
        ) from error
    except PermissionError as error:
        raise ControlError(f"The agent on {state_dir} is another user's; run this as that user, or as root.") from error
    except (OSError, TimeoutError, ValueError) as error:
        raise ControlError(f"The agent on {state_dir} did not answer: {error or 'no answer in time'}.") from error
    if not answer["ok"]:
        raise ControlError(answer["said"])
    return str(answer["said"])


def _answer(line: bytes, inject: Inject) -> bytes:
    try:
        said, ok = inject(line.decode(errors="replace").strip()), True
    except ValueError as error:
        said, ok = str(error), False
    return orjson.dumps({"ok": ok, "said": said}) + b"\n"
