"""The status writer's Events on real servers: only recent ones, repeated ones counted, and never in the way."""

from datetime import timedelta

import pytest

from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.node import NodeInventoryChanged
from gpuledger.runtime.clock import system_clock
from support.gpu_states import COMPLETE, INCOMPLETE
from support.inventory_decisions import (
    MANAGED,
    Decided,
    events,
    has_event,
    has_requests,
    names,
    own_events,
    settled,
    writing,
)
from support.kube_proxy import KubeProxy, only
from support.scripted_api import refuse
from support.statuswriting import QUICK, CountingClient, counting
from support.waiting import eventually


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (422, 1), (500, QUICK.events_tried_max)])
async def test_events_that_are_not_taken_hold_nothing_up(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, code: int, tries: int
) -> None:
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        proxy.fault = only("/events", refuse(code, "Trouble"))
        await decided.node("w1", 1)
        await eventually(lambda: has_requests(proxy, tries, "/events"))
        await settled(writer, decided)
        proxy.fault = None
        await decided.node("w2", 1)
        assert (await has_event(client, "GPUDeviceDetected"))["regarding"]["name"] == "w2-0"
        await settled(writer, decided)
        assert await names(client) == ["w1-0", "w2-0"]


async def test_old_and_imported_history_is_no_news(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("old", 2, at=system_clock() - timedelta(days=1))
    await decided.node("imported", 2, imported=True)
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await decided.record(("old", NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))))
        event = await has_event(client, "GPUInventoryConditionChanged")
        assert (event["type"], event["regarding"]["kind"]) == ("Warning", "GPUNodeState")
        assert await own_events(client) == [event]


async def test_the_same_news_again_is_a_series(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    incomplete = NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))
    complete = NodeInventoryChanged(present=True, conditions=(COMPLETE, MANAGED))
    await decided.node("w1", 1)
    await decided.record(("w1", incomplete), ("w1", complete), ("w1", incomplete), ("w1", complete))
    async with writing(decided, database_url, ours):

        async def counted() -> bool:
            found = await events(client, "GPUInventoryConditionChanged")
            return sorted(one.get("series", {}).get("count", 1) for one in found) == [2, 2]

        await eventually(counted)
