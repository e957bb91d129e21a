"""NVSentinel's `PlatformConnector`, which health monitors report by, and how each refusal is answered and counted.

A request that is refused has no effect; its status and message say why, and what to do.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from gpuledger.healthreports.coalescing import ReportResult
from gpuledger.healthreports.errors import (
    CheckUnconfirmedError,
    HealthReportError,
    InvalidReportError,
    NotDurableError,
    RateExceededError,
    ReportDeniedError,
    SpoolFullError,
    UnauthenticatedError,
)
from gpuledger.healthreports.healthevents_pb2 import HealthEvents

SERVICE: Final = "datamodels.PlatformConnector"
METHOD: Final = "HealthEventOccurredV1"

REFUSALS: Final[Mapping[type[HealthReportError], tuple[str, grpc.StatusCode]]] = {
    InvalidReportError: ("invalid", grpc.StatusCode.INVALID_ARGUMENT),
    UnauthenticatedError: ("unauthenticated", grpc.StatusCode.UNAUTHENTICATED),
    ReportDeniedError: ("denied", grpc.StatusCode.PERMISSION_DENIED),
    SpoolFullError: ("spool-full", grpc.StatusCode.UNAVAILABLE),
    RateExceededError: ("rate", grpc.StatusCode.RESOURCE_EXHAUSTED),
    CheckUnconfirmedError: ("unconfirmed", grpc.StatusCode.UNAVAILABLE),
    NotDurableError: ("not-durable", grpc.StatusCode.UNAVAILABLE),
}
"""How a refusal is counted and answered.

NVSentinel's monitors send again what was `UNAVAILABLE`. On a socket they give up what was `RESOURCE_EXHAUSTED`, so that
answer is for preflight checks there, and for who comes over TCP, and waits and sends again after it.
"""

OVER_TCP: Final = frozenset({UnauthenticatedError})
"""Refusals that only who comes over TCP meets."""

Occurred = Callable[[HealthEvents, "grpc.aio.ServicerContext[HealthEvents, Empty]"], Awaitable[Empty]]

StreamedOccurred = Callable[
    [AsyncIterator[HealthEvents], "grpc.aio.ServicerContext[HealthEvents, Empty]"], Awaitable[Empty]
]


def results(refusals: Mapping[type[HealthReportError], tuple[str, grpc.StatusCode]]) -> Counter[str]:
    """What may become of a report, each counted zero times."""
    names = [*(one.value for one in ReportResult), *(name for name, _ in refusals.values())]
    return Counter(dict.fromkeys(names, 0))


def handlers(occurred: Occurred) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
    """The methods of the service, by name."""
    return {METHOD: grpc.unary_unary_rpc_method_handler(occurred, HealthEvents.FromString, _serialized)}


def streamed(occurred: StreamedOccurred) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
    """The same methods, where a call begins before its request is there: clients see no difference."""
    return {METHOD: grpc.stream_unary_rpc_method_handler(occurred, HealthEvents.FromString, _serialized)}


def _serialized(message: Empty) -> bytes:
    return message.SerializeToString()
