"""Health monitors report to a real agent's process, which is killed, and the ledger has each report once."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from gpuledger.agent.settings import CONTAINER_LOGS, HEALTH_NAMESPACES, HEALTH_SOCKET, POD_LOGS, PREFLIGHT_NAMESPACES
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.local.servers.nats import NatsServer
from support.agent_process import NODE, TESTS, Place, a_place
from support.edges import LAYOUTS, confined_server
from support.health_monitor import Answer, a_monitor
from support.ledgers import DEADLINE_S
from support.pod_cgroups import hierarchy, pod_cgroup

OK = Answer("OK")
POD_UID = "5f3a3c0e-6b0a-4d5e-9f6a-0a1b2c3d4e5f"
CHECK, MAIN = "c" * 64, "d" * 64
KILLS = 3
REPORTS = 30


@asynccontextmanager
async def reporting(nats: NatsServer, *, url: str | None = None) -> AsyncIterator[Place]:
    """A node whose agent has a socket for health monitors."""
    async with a_place(nats, url=url) as place:
        place.agent.environ[HEALTH_SOCKET] = str(place.root / "health.sock")
        yield place


async def counts(place: Place) -> dict[str, int]:
    """How many reports of each message the ledger has."""
    sums: Counter[str] = Counter()
    for data in await place.recorded(NodeHealthReported):
        sums[data.message] += data.count
    return dict(sums)


def fan(number: int, seconds: int) -> dict[str, Any]:
    """A report about a fan, at a time."""
    fans = [{"entityType": "FAN", "entityValue": str(number)}]
    return {"message": f"fan {number}", "generatedTimestamp": {"seconds": seconds}, "entitiesImpacted": fans}


async def test_a_report_is_in_the_ledger_about_the_cards_that_it_names(fresh_nats: NatsServer) -> None:
    async with reporting(fresh_nats) as place:
        await place.agent.start()
        await place.recorded_at_least(1, NodeDevicesObserved)
        card = {"entityType": "GPU_UUID", "entityValue": place.agent.cards()[1]}
        async with a_monitor(place.root / "health.sock") as monitor:
            assert await monitor.report({"nodeName": NODE, "entitiesImpacted": [card]}) == OK
            status, message = await monitor.report({"nodeName": "w2"})
        (data,) = await place.recorded_at_least(1, NodeHealthReported)
        assert (data.devices, data.reporter) == ((card["entityValue"],), None)
        assert (status, "'w1'" in message) == ("PERMISSION_DENIED", True)
        await place.nothing_is_lost()


@pytest.mark.long
async def test_what_was_acknowledged_survives_kills_and_counts_once(fresh_nats: NatsServer) -> None:
    async with reporting(fresh_nats) as place:
        sent: Counter[str] = Counter()
        seconds = count(1_700_000_000)
        for _ in range(KILLS):
            await place.agent.start()
            async with a_monitor(place.root / "health.sock") as monitor:
                for number in range(REPORTS):
                    event = fan(number % 3, next(seconds))
                    assert await monitor.report(event) == OK
                    sent[event["message"]] += 1
                await place.agent.kill()
            await place.agent.start()
            async with a_monitor(place.root / "health.sock") as monitor:
                assert await monitor.report(event) == OK
            await place.agent.kill()
        await place.agent.start()
        await place.nothing_is_lost()
        assert await counts(place) == sent


async def test_an_agent_without_a_ledger_takes_reports_and_keeps_them(fresh_nats: NatsServer) -> None:
    async with reporting(fresh_nats, url="nats://127.0.0.1:9") as place:
        await place.agent.start()
        async with a_monitor(place.root / "health.sock") as monitor:
            assert await monitor.report({}) == OK
        assert await place.agent.stop() == 0
        assert not (place.root / "health.sock").exists()
        place.agent.environ["NATS_URL"] = fresh_nats.url
        await place.agent.start()
        await place.recorded_at_least(1, NodeHealthReported)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_agents_rights_in_the_ledger_suffice(layout: str) -> None:
    with confined_server(layout, [NODE]) as server:
        async with reporting(server, url=server.agent_url(NODE)) as place:
            await place.agent.start()
            async with a_monitor(place.root / "health.sock") as monitor:
                assert await monitor.report({}) == OK
            await place.recorded_at_least(1, NodeHealthReported)
            await place.nothing_is_lost()


async def answer_of_pod(place: Place, fields: dict[str, Any] | None = None, container: str = "container") -> str:
    """What a process in the cgroup of a container of a pod has as its answer to a report."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "support.health_monitor", str(place.root / "health.sock"))
    with pod_cgroup(POD_UID, container) as members:
        process = await asyncio.create_subprocess_exec(*command, cwd=TESTS, stdin=pipe, stdout=pipe)
        members.write_text(str(process.pid))
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await process.communicate(json.dumps(fields or {}).encode() + b"\n")
        return output.decode()


@pytest.mark.skipif(hierarchy() is None, reason="this machine lets us make no cgroups")
async def test_the_kernel_says_which_pod_reports(fresh_nats: NatsServer) -> None:
    async with reporting(fresh_nats) as place:
        logs = place.root / "pods"
        (logs / f"monitoring_fans-x7v2p_{POD_UID}").mkdir(parents=True)
        place.agent.environ |= {POD_LOGS: str(logs)}
        await place.agent.start()
        assert (await answer_of_pod(place)).startswith("PERMISSION_DENIED The pod monitoring/fans-x7v2p may not report")
        await place.agent.stop()
        place.agent.environ |= {HEALTH_NAMESPACES: "gpu-system,monitoring"}
        await place.agent.start()
        assert (await answer_of_pod(place)).strip() == "OK"
        (data,) = await place.recorded_at_least(1, NodeHealthReported)
        assert data.reporter == "monitoring/fans-x7v2p"


@pytest.mark.skipif(hierarchy() is None, reason="this machine lets us make no cgroups")
async def test_the_kernel_says_which_container_of_a_tenants_pod_reports(fresh_nats: NatsServer) -> None:
    async with reporting(fresh_nats) as place:
        pods, links = place.root / "pods", place.root / "containers"
        (pods / f"team-a_train-0_{POD_UID}").mkdir(parents=True)
        links.mkdir()
        for container, name in ((CHECK, "preflight-dcgm-diag"), (MAIN, "main")):
            (links / f"train-0_team-a_{name}-{container}.log").symlink_to(pods / "nowhere")
        place.agent.environ |= {POD_LOGS: str(pods), CONTAINER_LOGS: str(links), PREFLIGHT_NAMESPACES: "team-a"}
        await place.agent.start()
        await place.recorded_at_least(1, NodeDevicesObserved)
        card = {"entityType": "GPU_UUID", "entityValue": place.agent.cards()[0]}
        result = {"agent": "gpuledger-preflight", "checkName": "preflight-dcgm-diag", "entitiesImpacted": [card]}
        assert (await answer_of_pod(place, result, CHECK)).strip() == "OK"
        words = "PERMISSION_DENIED The container main of the pod team-a/train-0 may not report"
        assert (await answer_of_pod(place, result, MAIN)).startswith(words)
        (data,) = await place.recorded_at_least(1, NodeHealthReported)
        assert (data.reporter, data.devices) == ("team-a/train-0", (card["entityValue"],))
