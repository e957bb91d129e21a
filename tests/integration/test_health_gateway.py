"""Health monitors report to the gateway with a real client of gRPC, over its socket; the agent's disk is real."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from gpuledger.agent.gateway.decide import (
    CONNECTIONS_PER_PEER_MAX,
    DENIED,
)
from gpuledger.agent.gateway.stored import STATE_KEY
from gpuledger.agent.outbox.bounds import Sizes
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.store import DISK_RETRY_S
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceFailed
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from support.health_monitor import Answer, Monitor, a_monitor
from support.health_node import Node
from support.ledgers import DEADLINE_S
from support.nvsentinel import real_requests
from support.outbox import NODE, NOON
from support.servers import short_directory
from support.waiting import eventually

OK = Answer("OK")


async def _true(value: bool) -> bool:
    return value


@pytest.fixture
def node() -> Iterator[Node]:
    with short_directory() as root:
        yield Node(root)


def failure(number: int) -> AgentFact:
    return AgentFact("GPU-17", DeviceFailed(kind=f"XID {number}"), NOON)


def at(second: int) -> dict[str, Any]:
    """The time of a report."""
    return {"generatedTimestamp": {"seconds": int(NOON.timestamp()) - 100 + second}}


async def test_a_report_is_in_the_ledger(node: Node) -> None:
    async with node.monitored() as monitor:
        card = {"entityType": "PCI", "entityValue": "0000:17:00"}
        assert await monitor.report({"entitiesImpacted": [card], **at(0)}) == OK
        assert await monitor.report() == OK
        (data,) = await node.reported(1)
    assert (data.monitor, data.check, data.reporter) == ("syslog-health-monitor", "SysLogsXIDError", None)
    assert (data.devices, data.action, data.first_at) == (("GPU-17",), "RESTART_VM", NOON - timedelta(seconds=100))
    assert node.counts.by_result["recorded"] == 1


async def test_repeats_are_counted_and_what_is_sent_again_is_not(node: Node) -> None:
    async with node.monitored() as monitor:
        for second in (1, 2, 2, 3):
            assert await monitor.report(at(second)) == OK
        await node.reported(1)
        node.time.go(REPEAT_WINDOW_S)
        _, data = await node.reported(2)
    assert (data.count, data.first_at) == (2, NOON - timedelta(seconds=98))
    assert {name: count for name, count in node.counts.by_result.items() if count} == {
        "recorded": 1,
        "coalesced": 2,
        "repeated": 1,
    }


async def test_an_orderly_end_records_what_was_counted(node: Node) -> None:
    async with node.monitored() as monitor:
        for second in (1, 2, 3):
            await monitor.report(at(second))
    assert [data.count for data in await node.reported(2)] == [1, 2]
    assert not node.socket.exists()


async def test_a_pod_of_a_trusted_namespace_is_named(node: Node) -> None:
    node.is_of_pod("gpu-system")
    async with node.monitored() as monitor:
        assert await monitor.report({}) == OK
        (data,) = await node.reported(1)
    assert data.reporter == "gpu-system/monitor-x"


async def test_a_tenants_pod_may_report_nothing(node: Node) -> None:
    node.is_of_pod("team-b")
    async with node.monitored() as monitor:
        status, message = await monitor.report({})
    assert (status, message.partition(":")[0]) == (
        "PERMISSION_DENIED",
        "The pod team-b/monitor-x may not report health",
    )
    await node.reported(0)
    assert node.counts.by_result["denied"] == 1


async def test_nobody_reports_past_the_socket(node: Node) -> None:
    async with node.running() as part, a_monitor(f"unix-abstract:{part._server_name}") as monitor:
        status, message = await monitor.report({})
    assert (status, message) == (
        "PERMISSION_DENIED",
        "This connection has not come over the agent's socket; report there.",
    )


async def test_a_request_with_an_error_has_no_effect(node: Node) -> None:
    async with node.monitored() as monitor:
        answers = [await monitor.report({}, {"checkName": ""}), await monitor.report({}, {"nodeName": "w2"})]
    assert [status for status, _ in answers] == ["INVALID_ARGUMENT", "PERMISSION_DENIED"]
    assert answers[0].message.startswith("events[1].checkName: ")
    assert "'w2'" in answers[1].message
    await node.reported(0)
    assert (node.counts.by_result["invalid"], node.counts.by_result["denied"]) == (2, 2)


async def test_nothing_is_acknowledged_that_is_not_on_disk(node: Node) -> None:
    async with node.monitored() as monitor:
        node.disk.full = True
        for _ in range(2):
            assert (await monitor.report(at(1))).status == "UNAVAILABLE"
        node.disk.full = False
        node.time.go(DISK_RETRY_S)
        await eventually(lambda: _is_taken(node, monitor))
        (data,) = await node.reported(1)
    assert data.count == 1


@pytest.mark.parametrize("target", ["unix:{}", "unix://{}"])
async def test_what_nvsentinels_monitors_send_is_taken(node: Node, target: str) -> None:
    """Their bytes, by the addresses that they dial, with the token that they send to platform connectors."""
    requests = real_requests()
    async with node.running(), grpc.aio.insecure_channel(target.format(node.socket)) as channel:
        monitor = Monitor(channel)
        for one in requests:
            content = HealthEvents.FromString(one.content)
            for event in content.events:
                event.nodeName = NODE
            answer = await monitor.send_bytes(content.SerializeToString(), authorization="Bearer of-no-use-here")
            assert answer == OK, one
        found = await node.reported(sum(len(one.events()) for one in requests))
    assert {data.monitor for data in found} == {"gpu-health-monitor", "preflight-dcgm-diag"}


async def _is_taken(node: Node, monitor: Monitor) -> bool:
    node.waits.rounds.release()
    return await monitor.report(at(1)) == OK


async def test_a_full_spool_takes_no_more(node: Node) -> None:
    node.sizes = Sizes(QueueBounds(4, 1 << 20), QueueBounds(6, 1 << 20), QueueBounds(2, 1 << 20))
    node.log.away = True
    async with node.monitored() as monitor:
        answers = [await monitor.report({"message": str(number)}) for number in range(4)]
        assert [answer.status for answer in answers] == ["OK", "OK", "UNAVAILABLE", "UNAVAILABLE"]
        node.log.away = False
        node.waits.rounds.release()
        await node.reported(2)
        assert await monitor.report({"message": "2"}) == OK
    assert node.sums() == {"0": 1, "1": 1, "2": 1}


async def test_what_is_acknowledged_is_not_dropped_for_what_comes_later(node: Node) -> None:
    node.sizes = Sizes(QueueBounds(8, 1 << 20), QueueBounds(6, 1 << 20), QueueBounds(1, 1 << 20))
    node.log.away = True
    async with node.running() as part, a_monitor(node.socket) as monitor:
        assert await monitor.report({}) == OK
        await part._recorder._store.record([failure(number) for number in range(20)])  # type: ignore[attr-defined]
        node.log.away = False
        node.waits.rounds.release()
        await node.reported(1)


async def test_a_crash_loses_no_report_that_was_acknowledged_and_no_count(node: Node, tmp_path: Path) -> None:
    async with node.monitored() as monitor:
        for second in (1, 2, 3):
            assert await monitor.report(at(second)) == OK
        node.disk.crash(tmp_path / "state")
        before = list(node.log.messages)
    node.log.messages = before  # the process was killed, and has recorded nothing at its end
    async with node.monitored() as monitor:
        assert await monitor.report(at(3)) == OK
        await node.reported(2)
    assert node.sums() == {"NVRM: Xid 79": 3}


async def test_many_monitors_report_at_a_time(node: Node) -> None:
    async with node.running(), AsyncExitStack() as stack:
        monitors = [await stack.enter_async_context(a_monitor(node.socket)) for _ in range(8)]
        requests = [
            monitor.report(*[{"message": f"{number}.{one}"} for one in range(25)])
            for number, monitor in enumerate(monitors)
            for _ in range(2)
        ]
        assert set(await asyncio.gather(*requests)) == {OK}
    assert set(node.sums().values()) == {2}
    assert len(node.sums()) == 200


async def test_connections_are_bounded(node: Node) -> None:
    async with node.running() as part, AsyncExitStack() as stack:
        for _ in range(CONNECTIONS_PER_PEER_MAX):
            await stack.enter_async_context(a_monitor(node.socket))
        reader, writer = await asyncio.open_unix_connection(node.socket)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()
        assert part._relay.refused == 1
        assert len(part._relay.peers) == CONNECTIONS_PER_PEER_MAX
        await stack.aclose()
        await eventually(lambda: _true(not part._relay.peers))
        assert not part._relay._per_holder


async def test_those_that_may_report_nothing_share_their_connections(node: Node) -> None:
    async with node.running() as part, AsyncExitStack() as stack:
        for number in range(CONNECTIONS_PER_PEER_MAX):
            node.is_of_pod(f"team-{number % 2}")
            await stack.enter_async_context(a_monitor(node.socket))
        node.is_of_pod("gpu-system")
        monitor = await stack.enter_async_context(a_monitor(node.socket))
        assert await monitor.report({}) == OK
        assert part._relay._per_holder[DENIED] == CONNECTIONS_PER_PEER_MAX


async def test_a_socket_that_is_gone_is_made_anew(node: Node) -> None:
    async with node.running() as part:
        node.socket.unlink()
        await eventually(lambda: _true(node.socket.exists()))
        async with a_monitor(node.socket) as monitor:
            assert await monitor.report({}) == OK
        assert part.trouble is None


async def test_a_socket_that_a_killed_agent_left_is_replaced(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(node.socket))
    async with node.monitored() as monitor:
        assert await monitor.report({}) == OK
    assert not node.socket.exists()


async def test_what_is_not_the_agents_is_never_removed(node: Node) -> None:
    node.socket.write_text("mine")
    async with node.running() as part:
        assert "is there and no socket of this agent's; remove it" in (part.trouble or "")
        node.socket.unlink()
        await eventually(lambda: _true(part.trouble is None))
    node.socket.write_text("mine")
    async with node.running():
        pass
    assert node.socket.read_text() == "mine"


async def test_another_that_listens_is_left_alone(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(node.socket))
        other.listen()
        async with node.running() as part:
            assert "Another process listens on" in (part.trouble or "")
        assert node.socket.exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [("away/health.sock", "Is its folder mounted and writable?"), ("x" * 99, "is longer than the 99")],
)
async def test_a_path_that_takes_no_socket_is_a_trouble(node: Node, name: str, words: str) -> None:
    node.socket = node.root / name
    async with node.running() as part:
        assert words in (part.trouble or "")


async def test_a_stored_state_of_another_build_is_passed_over(node: Node) -> None:
    async with node._outbox() as outbox:
        await outbox.put(STATE_KEY, b"{}")
    async with node.monitored() as monitor:
        assert await monitor.report({}) == OK
    await node.reported(1)
