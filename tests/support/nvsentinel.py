"""Requests as NVSentinel's own monitors encoded them: of its gpu-health-monitor, and of its preflight diagnosis.

They are what version 42672ae8 of August 2026 sent about a node n1 with two cards: the first poll, an error of a card, a
second one beside it, healthy again, DCGM away and back, and DCGM that hangs; then a test before a job that fails, and
that passes.
"""

from base64 import b64decode
from typing import Final, NamedTuple

import orjson

from gpuledger.healthreports.healthevents_pb2 import HealthEvent, HealthEvents
from support.paths import ROOT

FILE: Final = ROOT / "tests" / "vectors" / "nvsentinel-reports.json"


class RealRequest(NamedTuple):
    """A monitor, and the bytes that it sent."""

    monitor: str
    content: bytes

    def events(self) -> list[HealthEvent]:
        """What it reports."""
        return list(HealthEvents.FromString(self.content).events)


def real_requests() -> list[RealRequest]:
    """All of them, in order."""
    return [RealRequest(one["monitor"], b64decode(one["request"])) for one in orjson.loads(FILE.read_bytes())]
