"""What people and others do to the status writer's objects is put right on real servers, and nobody is fought."""

from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES, NODE_FEATURE_RULE, NODE_FEATURE_RULES
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.statuswriter.reconcile.verify import compare
from support.inventory_decisions import Decided, has_event, names, settled, writing
from support.statuswriting import CountingClient
from support.waiting import eventually


async def test_what_is_deleted_by_hand_comes_back_and_labels_of_people_stay(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        theirs = {"labels": {"team": "a"}, "annotations": {"gpu.deckhouse.io/assignment": "pool"}}
        await client.merge_patch(GPU_DEVICES, "w1-0", {"metadata": theirs})
        await client.merge_patch(
            GPU_DEVICES,
            "w1-0",
            {"metadata": {"labels": {"gpu.deckhouse.io/product": "x", "gpu.deckhouse.io/vendor": None}}},
        )
        await client.delete(GPU_DEVICES, "w1-1")

        async def is_back() -> bool:
            labels = (await client.get(GPU_DEVICES, "w1-0"))["metadata"]["labels"]
            return (
                labels["gpu.deckhouse.io/product"] == "a100"
                and labels.get("gpu.deckhouse.io/vendor") == "nvidia"
                and await names(client) == ["w1-0", "w1-1"]
            )

        await eventually(is_back)
        await settled(writer, decided)
        metadata = (await client.get(GPU_DEVICES, "w1-0"))["metadata"]
        assert metadata["labels"]["team"] == "a"
        assert metadata["annotations"] == theirs["annotations"]
        assert (await compare(client, decided.ledger)).differences == 0


@pytest.mark.parametrize(
    "change",
    [
        {"state": "Faulted"},
        {"poolRef": {"name": "mine"}},
        {"hardware": None},
        {"conditions": [{"type": "Mine", "status": "True"}]},
    ],
)
async def test_a_status_changed_by_hand_is_restored_once(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient, change: dict[str, Any]
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        right = (await client.get(GPU_DEVICES, "w1-0"))["status"]
        ours.written.clear()
        await client.merge_patch(GPU_DEVICES, "w1-0", {"status": change}, subresource="status")
        event = await has_event(client, "GPUStatusRestored")
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "w1-0")
        await settled(writer, decided)
        assert (await client.get(GPU_DEVICES, "w1-0"))["status"] == right
        assert len(ours.objects_written()) <= 3
        assert writer.health().left == 0


async def test_nobody_is_fought_in_a_loop(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1", 1)
    theirs = {"metadata": {"name": "w1-0"}, "status": {"state": "Faulted"}}
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        ours.written.clear()

        async def is_left() -> bool:
            await client.apply(GPU_DEVICES, theirs, subresource="status", force=True, field_manager="other")
            return writer.health().left == 1

        await eventually(is_left)
        await has_event(client, "GPUFieldConflict")
        ours.written.clear()
        for _ in range(5):
            await client.apply(GPU_DEVICES, theirs, subresource="status", force=True, field_manager="other")
        await settled(writer, decided)
        assert ours.objects_written() == []
        assert (await client.get(GPU_DEVICES, "w1-0"))["status"]["state"] == "Faulted"
        verification = await compare(client, decided.ledger)
        assert [(one.key.name, one.path, one.expected, one.found) for one in verification.first] == [
            ("w1-0", "status.state", "Discovered", "Faulted")
        ]


async def test_the_rule_is_kept_in_place(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        spec = crds.node_feature_rule()["spec"]
        await client.merge_patch(NODE_FEATURE_RULES, NODE_FEATURE_RULE, {"spec": {"rules": []}})

        async def is_back() -> bool:
            return bool((await client.get(NODE_FEATURE_RULES, NODE_FEATURE_RULE))["spec"] == spec)

        await eventually(is_back)
        await settled(writer, decided)
        assert len(ours.objects_written()) == 2
        await client.delete(NODE_FEATURE_RULES, NODE_FEATURE_RULE)

        async def is_there() -> bool:
            try:
                return await is_back()
            except NotFoundError:
                return False

        await eventually(is_there)
