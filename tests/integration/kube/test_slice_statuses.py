"""ResourceSliceStatuses on real servers: they show exactly what the ledger has of slices and claims."""

from typing import Any

import pytest

from gpuledger.api.kinds import RESOURCE_SLICE_STATUSES, RESOURCE_SLICES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError, RefusedError
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.slice import SliceWithdrawn
from support.dra_facts import DRIVER, allocated
from support.inventory_decisions import events
from support.slice_statuses import NAMING, PATH, Driver, is_right, names, states, uid_of, written
from support.statuswriting import CountingClient, all_written, status_writer
from support.waiting import eventually


async def test_a_slice_has_a_status_that_follows_its_claims(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    uid = await driver.publish("s1", "gpu-0", "gpu-1")
    await all_written(writer, driver.ledger)
    found = await client.get(RESOURCE_SLICE_STATUSES, "s1")
    assert found["spec"] == {"sliceName": "s1", "sliceUID": uid, "driver": DRIVER, "pool": "p", "nodeName": "n1"}
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "name": "s1", "uid": uid}
    ]
    assert found["status"]["summary"] == {
        "totalDevices": 2, "allocatedDevices": 0, "availableDevices": 2, "partiallyAllocatedDevices": 0,
    }  # fmt: skip
    assert [one["type"] for one in found["status"]["poolStatus"]["conditions"]] == ["Complete", "Valid"]
    assert written(ours) == [f"PATCH {PATH}/s1", f"PATCH {PATH}/s1/status"]
    await driver.record(NAMING, ("team-a/train", allocated(("p", "gpu-1", None))))
    await all_written(writer, driver.ledger)
    (device,) = (
        one for one in (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]["devices"] if one["name"] == "gpu-1"
    )
    assert device == {
        "name": "gpu-1", "state": "Allocated",
        "allocations": [{"claimNamespace": "team-a", "claimName": "train", "claimUID": "u", "request": "r0"}],
    }  # fmt: skip
    await driver.record(("team-a/train", ClaimReleased()))
    await all_written(writer, driver.ledger)
    assert await states(client, "s1") == {"gpu-0": "Available", "gpu-1": "Available"}
    assert await is_right(client, driver.ledger)


async def test_capacity_of_shared_devices_is_shown(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0", memory="16Gi")
    share = allocated(("p", "gpu-0", "s-1"), consumed={"memory": "4Gi"})
    await driver.record(NAMING, ("a/one", share), ("a/two", share), ("b/one", share))
    await all_written(writer, driver.ledger)
    status = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]
    (device,) = status["devices"]
    assert (device["state"], device["availableCapacity"]) == ("PartiallyAllocated", {"memory": "4Gi"})
    held = [(one["claimNamespace"], one["claimName"], one["capacity"]) for one in device["allocations"]]
    assert held == [("a", "one", {"memory": "4Gi"}), ("a", "two", {"memory": "4Gi"}), ("b", "one", {"memory": "4Gi"})]
    assert status["summary"]["allocatedCapacity"] == {"memory": "12Gi"}


@pytest.mark.parametrize(
    "change",
    [
        {"devices": []},
        {"summary": {"allocatedDevices": 7}},
        {"poolStatus": {"validationErrors": ["mine"]}},
        {"observedGeneration": None},
    ],
)
async def test_a_status_changed_by_hand_is_put_right(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter, change: dict[str, Any]
) -> None:
    await driver.publish("s1", "gpu-0", "gpu-1")
    await driver.record(("a/c", allocated(("p", "gpu-0", None))))
    await all_written(writer, driver.ledger)
    right = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]
    await client.merge_patch(RESOURCE_SLICE_STATUSES, "s1", {"status": change}, subresource="status")

    async def is_recorded() -> bool:
        return bool(await events(client, "GPUStatusRestored"))

    await eventually(is_recorded)
    await all_written(writer, driver.ledger)
    assert (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"] == right


async def test_what_is_deleted_by_hand_comes_back_and_who_it_is_about_cannot_be_changed(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await all_written(writer, driver.ledger)
    with pytest.raises(RefusedError, match="immutable"):
        await client.merge_patch(RESOURCE_SLICE_STATUSES, "s1", {"spec": {"sliceUID": "other"}})
    before = uid_of(await client.get(RESOURCE_SLICE_STATUSES, "s1"))
    await client.delete(RESOURCE_SLICE_STATUSES, "s1")

    async def is_back() -> bool:
        try:
            found = await client.get(RESOURCE_SLICE_STATUSES, "s1")
        except NotFoundError:
            return False
        return uid_of(found) != before and "status" in found

    await eventually(is_back)
    await all_written(writer, driver.ledger)
    assert await is_right(client, driver.ledger)


async def test_a_slice_that_goes_takes_its_status_along(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await driver.publish("s2", "gpu-0", pool="q")
    await all_written(writer, driver.ledger)
    await driver.withdraw("s1")
    await all_written(writer, driver.ledger)
    assert await names(client) == ["s2"]
    assert await is_right(client, driver.ledger)


@pytest.mark.parametrize("is_heard_of", [True, False])
async def test_another_slice_of_the_same_name_has_a_status_of_its_own(
    driver: Driver, database_url: str, client: KubeClient, ours: CountingClient, is_heard_of: bool
) -> None:
    """Whether the withdrawal was recorded, or only that there is another slice now; restarts in between."""
    first = await driver.publish("s1", "gpu-0", "gpu-1")
    await driver.record(("a/c", allocated(("p", "gpu-0", None))))
    async with status_writer(driver.ledger, database_url, ours) as writer:
        await all_written(writer, driver.ledger)
    await client.delete(RESOURCE_SLICES, "s1")
    if is_heard_of:
        await driver.record(("s1", SliceWithdrawn()))
    async with status_writer(driver.ledger, database_url, ours) as writer:
        second = await driver.publish("s1", "gpu-7")
        assert first != second

        async def is_another() -> bool:
            try:
                found = await client.get(RESOURCE_SLICE_STATUSES, "s1")
            except NotFoundError:
                return False
            return found["spec"]["sliceUID"] == second and "status" in found

        await eventually(is_another)
        await all_written(writer, driver.ledger)
        assert await states(client, "s1") == {"gpu-7": "Available"}
        (owner,) = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["metadata"]["ownerReferences"]
        assert owner["uid"] == second
        assert await is_right(client, driver.ledger)
    assert await names(client) == ["s1"]
