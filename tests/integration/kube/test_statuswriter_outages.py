"""The status writer while servers, kinds, an event or another writer is in its way: it waits, and then goes on."""

import pytest

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.position import number_of
from gpuledger.events.source import SourcePositionSkipped
from support.events import event, outgoing
from support.inventory_decisions import Decided, has_requests, names, settled, writing
from support.kube_equipped import equip, equipped_client
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer, NewKube
from support.projections import execute
from support.scripted_api import refuse
from support.statuswriting import CountingClient, counting
from support.waiting import eventually


async def test_a_server_that_comes_back_empty_is_filled_again(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, new_kube: NewKube
) -> None:
    await decided.node("w1", 4)
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await proxy.away()
        await decided.node("w2", 4)
        another = await new_kube()
        await proxy.lead_to(another)
        async with equipped_client(another) as others:

            async def is_filled() -> bool:
                return len(await names(others)) == 8 and (await compare(others, decided.ledger)).differences == 0

            await eventually(is_filled)
            await settled(writer, decided)


async def test_a_server_that_was_away_gets_only_what_is_new(
    decided: Decided, database_url: str, kube: KubeServer, client: KubeClient, proxy: KubeProxy
) -> None:
    await decided.node("w1", 4)
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await kube.stop()
        await decided.node("w2", 1)
        proxy.requests.clear()
        await kube.start()
        await eventually(lambda: has_names(ours, 5))
        await settled(writer, decided)
        assert (await compare(ours, decided.ledger)).differences == 0
        devices = [one for one in proxy.written if one.path.startswith(GPU_DEVICES.path())]
        assert {one.path.removeprefix(GPU_DEVICES.path()) for one in devices} == {"/w2-0", "/w2-0/status"}


async def has_names(client: KubeClient, number: int) -> bool:
    return len(await names(client)) == number


@pytest.mark.parametrize("code", [429, 500])
async def test_a_failing_server_is_not_stormed(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, code: int
) -> None:
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        proxy.fault = refuse(code, "Trouble", headers={"Retry-After": "1"} if code == 429 else None)
        proxy.requests.clear()
        for index in range(10):
            await decided.node(f"w{index}", 4)
        await eventually(lambda: has_requests(proxy, 4))
        assert len(proxy.requests) < 40
        proxy.fault = None
        await settled(writer, decided)
        assert len(await names(ours)) == 40
        assert (await compare(ours, decided.ledger)).differences == 0


async def test_a_second_writer_waits_until_the_first_is_gone(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(decided, database_url, ours) as second:
        await settled(second, decided)
        async with writing(decided, database_url, ours) as first:
            await decided.node("w1")
            await settled(second, decided)
            assert first.health().state == "standing-by"
            execute(
                database_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s",
                "gpuledger statuswriter%",
            )  # fmt: skip

            async def is_one() -> bool:
                return {first.health().state, second.health().state} == {"writing", "standing-by"}

            await eventually(is_one)


async def test_without_its_kinds_it_waits(decided: Decided, database_url: str, kube: KubeServer) -> None:
    await decided.node("w1")
    async with counting(kube.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await eventually(lambda: is_writing(writer))
        assert "GPUDevice" in writer.health().unlisted
        await equip(kube, ours)
        await settled(writer, decided)
        assert await names(ours) == ["w1-0", "w1-1"]


async def is_writing(writer: StatusWriter) -> bool:
    return writer.health().state == "writing"


async def test_an_event_that_does_not_fold_stops_it_until_it_is_skipped(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        bad = outgoing(decided.event("w1-0", DeviceWithdrawn()))
        receipt = await decided.ledger.publish(bad._replace(data=bad.data.replace(b'"data":{', b'"data":7,"x":{')))
        await decided.node("w2")
        await eventually(lambda: is_stopped(writer))
        assert len(await names(client)) == 2
        skip = SourcePositionSkipped(generation=1, sequence=number_of(receipt.sequence), reason="it was ours")
        await decided.ledger.publish(outgoing(event(skip, "log", source="/operators/eva")))
        await settled(writer, decided)
        assert await names(client) == ["w1-0", "w1-1", "w2-0", "w2-1"]


async def is_stopped(writer: StatusWriter) -> bool:
    return bool(writer.health().reason)
