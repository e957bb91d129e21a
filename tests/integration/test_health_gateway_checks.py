"""Preflight checks in pods of tenants report over the agent's socket, and leave monitors their share."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuledger.agent.gateway.decide import (
    CHECKS,
    CONNECTIONS_OF_CHECKS_MAX,
    CONNECTIONS_PER_CHECKED_POD_MAX,
)
from support.health_monitor import Answer, a_monitor
from support.health_node import Node
from support.ledgers import DEADLINE_S
from support.servers import short_directory

OK = Answer("OK")
CHECK = "preflight-dcgm-diag"
RESULT: dict[str, Any] = {
    "agent": "gpuledger-preflight",
    "checkName": CHECK,
    "entitiesImpacted": [{"entityType": "GPU_UUID", "entityValue": "GPU-17"}],
}


@pytest.fixture
def node() -> Iterator[Node]:
    with short_directory() as root:
        yield Node(root)


async def test_a_preflight_check_reports_its_own_result(node: Node) -> None:
    node.is_container(CHECK)
    async with node.monitored() as monitor:
        assert await monitor.report(RESULT) == OK
        wrong: list[dict[str, Any]] = [{"checkName": "preflight-other"}, {"nodeName": "w2"}, {"entitiesImpacted": []}]
        for fields in wrong:
            assert (await monitor.report(RESULT | fields)).status == "PERMISSION_DENIED", fields
        assert (await monitor.report({})).status == "PERMISSION_DENIED"
        assert (await monitor.report(*[RESULT] * 65)).status == "INVALID_ARGUMENT"
        (data,) = await node.reported(1)
    assert (data.monitor, data.check, data.reporter) == ("gpuledger-preflight", CHECK, "team-a/monitor-x")
    assert data.devices == ("GPU-17",)


async def test_no_other_container_of_a_tenants_pod_reports(node: Node) -> None:
    node.is_container("main")
    async with node.monitored() as monitor:
        status, message = await monitor.report(RESULT)
    assert status == "PERMISSION_DENIED"
    assert message.startswith("The container main of the pod team-a/monitor-x may not report health")
    await node.reported(0)


async def test_without_the_kubelets_links_nobody_can_tell_a_check(node: Node) -> None:
    node.is_container(CHECK)
    (link,) = (node.root / "containers").iterdir()
    link.unlink()
    link.parent.rmdir()
    async with node.monitored() as monitor:
        status, message = await monitor.report(RESULT)
        assert status == "PERMISSION_DENIED"
        assert "Mount the kubelet's links to logs, /var/log/containers" in message
        link.parent.mkdir()
        status, message = await monitor.report(RESULT)
        assert (status, message) == (
            "UNAVAILABLE",
            "The kubelet does not show yet which container of team-a/monitor-x reports; send it again.",
        )
        link.touch()
        assert await monitor.report(RESULT) == OK
    assert node.counts.by_result["unconfirmed"] == 1


async def test_tenants_leave_health_monitors_their_connections(node: Node) -> None:
    pods = CONNECTIONS_OF_CHECKS_MAX // CONNECTIONS_PER_CHECKED_POD_MAX
    async with node.running() as part, AsyncExitStack() as stack:
        for pod in range(pods):
            node.is_container(CHECK, f"train-{pod}")
            for _ in range(CONNECTIONS_PER_CHECKED_POD_MAX):
                await stack.enter_async_context(a_monitor(node.socket))
            assert await is_closed_at_once(node.socket), "the pod has its share"
        node.is_container(CHECK, "train-more")
        assert await is_closed_at_once(node.socket), "all have theirs"
        assert part._relay._per_holder[CHECKS] == CONNECTIONS_OF_CHECKS_MAX
        node.is_of_pod("gpu-system")
        monitor = await stack.enter_async_context(a_monitor(node.socket))
        assert await monitor.report({}) == OK


async def test_a_check_that_reports_again_and_again_leaves_room_for_others(node: Node) -> None:
    node.is_container(CHECK)
    async with node.monitored() as monitor:
        answers = [await monitor.report(*[RESULT | {"message": str(number)}] * 64) for number in range(3)]
        assert [one.status for one in answers] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
        node.is_of_pod("gpu-system")
        async with a_monitor(node.socket) as other:
            assert await other.report({}) == OK


async def is_closed_at_once(path: Path) -> bool:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read() == b""
    finally:
        writer.close()
