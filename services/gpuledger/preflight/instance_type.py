"""The node's instance type, which chooses a topology file: what the gateway has, else what the machine calls itself.

It must never fail a check, nor hold one up for longer than a named bound: whatever goes wrong, the type is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import grpc.aio
import structlog

from gpuledger.healthreports import node_information
from gpuledger.preflight.errors import ConfigurationError
from gpuledger.preflight.machine import machine_instance_type
from gpuledger.preflight.reporting import PASSING, channel_to
from gpuledger.preflight.settings import ReportSettings, read_report
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter

ANSWER_MAX_S: Final = 10.0
"""How long a gateway is waited for. The kubelet shows an agent only after a moment which container asks."""

ATTEMPT_MAX_S: Final = 4.0
"""How long one attempt may take; a gateway gives up its own question to the ledger sooner."""

PAUSES: Final = Backoff(first_s=0.3, max_s=2.0)

_log = structlog.get_logger()


async def node_instance_type(
    environ: Mapping[str, str],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    answer_max_s: float = ANSWER_MAX_S,
    machine: Callable[[], Awaitable[str | None]] = machine_instance_type,
) -> str | None:
    """The instance type of the node of this environment's pod; None: nobody can tell it."""
    found = await _of_gateway(environ, sleep, answer_max_s)
    return found or await machine()


async def _of_gateway(
    environ: Mapping[str, str], sleep: Callable[[float], Awaitable[None]], answer_max_s: float
) -> str | None:
    try:
        target = read_report(environ)
        async with asyncio.timeout(answer_max_s):
            return await _answer(target, sleep)
    except TimeoutError:
        problem = f"no answer within {answer_max_s:g} s"
    except ConfigurationError as error:
        problem = str(error)
    except grpc.aio.AioRpcError as error:
        problem = f"{error.code().name}: {error.details() or 'no details'}"
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    _log.warning("the gateway does not tell the instance type of the node", problem=problem)
    return None


async def _answer(target: ReportSettings, sleep: Callable[[float], Awaitable[None]]) -> str:
    """Ask until the gateway answers, or refuses for good."""
    retries = Retries(PAUSES, system_jitter)
    while True:
        try:
            async with channel_to(target) as channel:
                return await node_information.instance_type(channel, ATTEMPT_MAX_S)
        except grpc.aio.AioRpcError as error:
            if error.code() not in PASSING:
                raise
        await sleep(retries.pause_s())
