"""Restarts embedded servers that died, on their ports, so that clients find them.

It gives up on a server that keeps dying, which ends the process that needs it. It must never start a server that is
being stopped.
"""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import structlog

from gpuledger.local.servers.errors import EmbeddedError, ServerStartError
from gpuledger.local.servers.server import EmbeddedServer

log = structlog.get_logger("gpuledger.local")

CHECK_INTERVAL_S = 0.25
RESTARTS_MAX = 5
"""The most restarts of a server in a row."""

STEADY_AFTER_S = 60.0
"""After a server has run for so long, its restarts count from 0 again."""


async def keep_running(server: EmbeddedServer, threads: ThreadPoolExecutor) -> None:
    """Restart a server whenever it has died, until cancelled.

    `threads` must outlive the server (see `ServerProcess`): enter them before it.

    Raises:
        EmbeddedError: it died too often, or did not come back.
    """
    clock = asyncio.get_running_loop().time
    restarts, started = 0, clock()
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        if server.running:
            continue
        restarts = 1 if clock() - started > STEADY_AFTER_S else restarts + 1
        if restarts > RESTARTS_MAX:
            raise ServerStartError(
                f"{server.name} died {restarts} times in a row. Read its log {server.log_path}, then start again."
            )
        log.warning("server.died", server=server.name, restart=restarts, of=RESTARTS_MAX)
        await _restart(server, threads, last=restarts == RESTARTS_MAX)
        started = clock()


async def _restart(server: EmbeddedServer, threads: ThreadPoolExecutor, *, last: bool) -> None:
    abort = threading.Event()
    starting: Future[None] = threads.submit(server.start, abort)
    try:
        await asyncio.wrap_future(starting)
        log.info("server.restarted", server=server.name, port=server.port)
    except EmbeddedError as error:
        log.error("server.not_restarted", server=server.name, reason=str(error))
        if last:
            raise
    finally:
        abort.set()
        wait([starting])
