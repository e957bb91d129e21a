"""A health monitor: a client of NVSentinel's `PlatformConnector` on a unix socket.

As a program it waits for a line, sends one report to the socket that its argument names, with the fields in the line
as JSON, and prints the answer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from support.ledgers import DEADLINE_S

METHOD: Final = "/datamodels.PlatformConnector/HealthEventOccurredV1"
XID: Final[dict[str, Any]] = {
    "agent": "syslog-health-monitor",
    "componentClass": "GPU",
    "checkName": "SysLogsXIDError",
    "isFatal": True,
    "message": "NVRM: Xid 79",
    "recommendedAction": 15,
    "errorCode": ["79"],
}
"""A report as a monitor sends it."""


class Answer(NamedTuple):
    """The status of an answer, and its message."""

    status: str
    message: str = ""


class Monitor:
    """A monitor with a connection that it keeps."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._send = channel.unary_unary(
            METHOD, request_serializer=HealthEvents.SerializeToString, response_deserializer=Empty.FromString
        )

    async def report(self, *events: dict[str, Any]) -> Answer:
        """Send a request with these events, each with the fields of `XID` that it lacks."""
        return await self.send(HealthEvents(version=1, events=[XID | event for event in events]))

    async def send(self, request: HealthEvents) -> Answer:
        """Send a request as it is."""
        try:
            await self._send(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name, error.details() or "")
        return Answer("OK")

    async def send_bytes(self, request: bytes, **metadata: str) -> Answer:
        """Send the bytes of a request, as another program encoded them, with metadata."""
        send: grpc.aio.UnaryUnaryMultiCallable[bytes, Empty] = self._channel.unary_unary(
            METHOD, response_deserializer=Empty.FromString
        )
        try:
            await send(request, timeout=DEADLINE_S, metadata=tuple(metadata.items()))
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name, error.details() or "")
        return Answer("OK")

    async def begin(self) -> Answer:
        """Begin a call, send nothing, and wait for what the server makes of that."""
        call = self._channel.stream_unary(
            METHOD, request_serializer=HealthEvents.SerializeToString, response_deserializer=Empty.FromString
        )(timeout=DEADLINE_S)
        return Answer((await call.code()).name, await call.details())


@asynccontextmanager
async def a_monitor(address: Path | str) -> AsyncIterator[Monitor]:
    """A monitor that reports to a socket, or an address."""
    target = address if isinstance(address, str) else f"unix:{address}"
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        async with asyncio.timeout(DEADLINE_S):
            await channel.channel_ready()
        yield Monitor(channel)


async def _report_once(path: Path, fields: dict[str, Any]) -> None:
    async with a_monitor(path) as monitor:
        print(*await monitor.report(fields))


if __name__ == "__main__":
    asyncio.run(_report_once(Path(sys.argv[1]), json.loads(sys.stdin.readline())))
