"""The control socket of an agent with simulated hardware, through which `gpuledger agent inject` injects faults.

A request is one line and a response one line of JSON. The socket belongs to the agent's own user, and an agent with
real hardware never opens one.
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
RESPONSE_TIMEOUT_S: Final = 10.0

log = structlog.get_logger("gpuledger.agent")

Inject = Callable[[str], str]
"""Injects the fault that a text names and returns what happened; raises ValueError where the hardware has no such
fault."""

OnClient = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def control_socket(state_dir: Path, inject: Inject) -> AsyncIterator[None]:
    """Serve the socket in the agent's folder for the length of the block; without one the agent runs all the same."""
    path = state_dir / SOCKET

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                line = await reader.readline()
                writer.write(_response(line, inject))
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
    """Listen for the agent's own user alone; None where the folder takes no socket, which must not end the agent."""
    try:
        return await asyncio.start_unix_server(on_client, sock=_bound(path), limit=LINE_BYTES_MAX)
    except OSError as error:
        log.warning("faults cannot be injected", socket=str(path), reason=str(error))
        return None


def _bound(path: Path) -> socket.socket:
    """Bind a socket at the path, in place of one that a killed agent left there."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    return bound


async def request_fault(state_dir: Path, fault: str) -> str:
    """Ask the agent that runs on this folder to inject a fault; returns what happened.

    Raises:
        ControlError: no agent listens there, or its hardware has no such fault.
    """
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(state_dir / SOCKET)
            try:
                writer.write(fault.encode() + b"\n")
                response = orjson.loads(await reader.readline())
            finally:
                writer.close()
    except (FileNotFoundError, ConnectionError) as error:
        raise ControlError(
            f"No agent with simulated hardware runs on {state_dir}. Start one with `gpuledger agent run --hardware "
            "simulated:8xH100`, and name its --state-dir; only simulated hardware takes faults."
        ) from error
    except PermissionError as error:
        raise ControlError(
            f"The agent on {state_dir} belongs to another user; run this as that user, or as root."
        ) from error
    except (OSError, TimeoutError, ValueError) as error:
        raise ControlError(f"The agent on {state_dir} did not respond: {error or 'no response in time'}.") from error
    if not response["ok"]:
        raise ControlError(response["message"])
    return str(response["message"])


def _response(line: bytes, inject: Inject) -> bytes:
    try:
        message, ok = inject(line.decode(errors="replace").strip()), True
    except ValueError as error:
        message, ok = str(error), False
    return orjson.dumps({"ok": ok, "message": message}) + b"\n"
