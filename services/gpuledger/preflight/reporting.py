"""Reports a result to the node's agent over its socket, or to the health gateway over TCP with TLS and a token.

What a server may take later is sent again until a bound; a report that it refuses is given up at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import structlog
from google.protobuf.empty_pb2 import Empty

from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.protocol import METHOD, SERVICE
from gpuledger.preflight.errors import NotReportedError
from gpuledger.preflight.settings import ReportSettings
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter

ATTEMPT_MAX_S: Final = 10.0
"""How long one attempt may take."""

PAUSES: Final = Backoff(first_s=0.5, max_s=10.0)

PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
"""Statuses that may pass: the agent restarts, there is no room for a while, or a token that ran out is replaced."""

_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
_log = structlog.get_logger()


async def send_report(
    settings: ReportSettings,
    request: HealthEvents,
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Send a report until it is taken, for `settings.timeout_s` at most.

    Raises:
        NotReportedError: it was refused, or nobody took it in time.
    """
    ends_s = monotonic() + settings.timeout_s
    retries = Retries(PAUSES, system_jitter)
    while True:
        problem, passing = await _attempt(settings, request, min(ATTEMPT_MAX_S, max(0.1, ends_s - monotonic())))
        if problem is None:
            return
        pause_s = retries.pause_s()
        if not passing or monotonic() + pause_s >= ends_s:
            raise NotReportedError(_words(settings, problem, retries.failures))
        _log.warning("the report was not taken yet", problem=problem, again_in_s=round(pause_s, 2))
        await sleep(pause_s)


async def _attempt(settings: ReportSettings, request: HealthEvents, timeout_s: float) -> tuple[str | None, bool]:
    """Why nobody took the report, None if somebody did; and whether that may pass."""
    try:
        async with _channel(settings) as channel:
            send: grpc.aio.UnaryUnaryMultiCallable[HealthEvents, Empty] = channel.unary_unary(
                f"/{SERVICE}/{METHOD}",
                request_serializer=HealthEvents.SerializeToString,
                response_deserializer=Empty.FromString,
            )
            await send(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details() or 'no details'}", error.code() in PASSING
    except OSError as error:
        return f"{error.filename}: {error.strerror}", True
    return None, True


@asynccontextmanager
async def _channel(settings: ReportSettings) -> AsyncIterator[grpc.aio.Channel]:
    if settings.socket is not None:
        async with grpc.aio.insecure_channel(f"unix:{settings.socket}", options=_OPTIONS) as channel:
            yield channel
        return
    credentials = grpc.ssl_channel_credentials(_bytes(settings.authority))
    token = _bytes(settings.token)
    if token is not None:
        call = grpc.access_token_call_credentials(token.decode("ascii", "replace").strip())
        credentials = grpc.composite_channel_credentials(credentials, call)
    async with grpc.aio.secure_channel(settings.target or "", credentials, options=_OPTIONS[:1]) as channel:
        yield channel


def _bytes(path: Path | None) -> bytes | None:
    """A file's content; read at every attempt, because Kubernetes replaces tokens."""
    return None if path is None else path.read_bytes()


def _words(settings: ReportSettings, problem: str, attempts: int) -> str:
    place = settings.socket or settings.target
    return (
        f"The result could not be reported to {place} ({attempts} attempts): {problem}. Look whether the node's "
        "agent or the health gateway runs, and takes reports of this pod's namespace."
    )
