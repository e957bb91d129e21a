"""`timeline` shows uses of the break-glass group, on real servers: those of a device, of a node, and of its devices."""

import asyncio

import pytest

from gpuledger.edge.admission.recorder import SOURCE
from gpuledger.events.device import DeviceBreakGlassUsed
from gpuledger.events.node import NodeBreakGlassUsed
from support import servers
from support.cli import Cli
from support.events import RecordedFact
from support.kube_fleet import FACTS, NAME, SERIAL, UUID, publish

USES = [
    RecordedFact(SOURCE, NAME, 5, DeviceBreakGlassUsed(user="eva", operation="UPDATE", changed=("status.state",))),
    RecordedFact(SOURCE, "w1", 6, NodeBreakGlassUsed(user="eva", operation="DELETE")),
]


async def test_timelines_show_who_broke_the_glass(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    monkeypatch.setenv("DATABASE_URL", database_url)
    with servers.nats_server() as nats:
        monkeypatch.setenv("NATS_URL", nats.url)
        await publish(nats.url, [*FACTS, *USES])
        assert (await asyncio.to_thread(cli, "migrate")).code == 0

        async def used(kind: str, name: str) -> list[tuple[str, dict[str, object]]]:
            """About what, and what the use was."""
            rows = (await asyncio.to_thread(cli, "timeline", kind, name, "--no-kube", "-o", "json")).json()
            return [(row["about"], row["detail"]) for row in rows if row["event"] == "break-glass-used"]

        of_device = (f"device/{NAME}", {"user": "eva", "operation": "UPDATE", "changed": ["status.state"]})
        for name in (NAME, UUID, SERIAL):
            assert await used("device", name) == [of_device]
        assert await used("node", "w1") == [
            of_device,
            ("node/w1", {"user": "eva", "operation": "DELETE", "changed": []}),
        ]
