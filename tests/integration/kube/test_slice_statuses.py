"""ResourceSliceStatuses on real servers: what the ledger knows of slices and claims stands there, and nothing else."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.clock import system_clock
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.device import DeviceDetected, Hardware
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slice import SliceWithdrawn
from gpuledger.kube.client import KubeClient, Object
from gpuledger.kube.crds import foreign, install, shipped
from gpuledger.kube.errors import NotFoundError, RefusedError
from gpuledger.kube.names import CRDS, EVENTS, GPU_DEVICES, MODULE_CONFIG, RESOURCE_SLICE_STATUSES, RESOURCE_SLICES
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.statuswriter.main import StatusWriter, compare
from gpuledger.watchers import slices
from support.dra_facts import DRIVER, allocated
from support.events import outgoing
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.ledgers import eventually
from support.projections import all_projections
from support.statuswriting import QUICK, CountingClient, all_written, counting, status_writer

PATH = RESOURCE_SLICE_STATUSES.path()
OFF = SettingsChanged(dra_availability=False)


class Driver:
    """Publishes slices, and records what watchers record of them and of claims."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient) -> None:
        self.ledger = ledger
        self.client = client
        self._numbers: dict[str, int] = {}

    async def record(self, *said: tuple[str, Payload]) -> None:
        await self.ledger.publish_many([outgoing(self._event(subject, data)) for subject, data in said])

    def _event(self, subject: str, data: Payload) -> Decoded:
        is_watched = not isinstance(data, DeviceDetected)
        source = f"/watchers/{data.AGGREGATE}" if is_watched else "/services/inventory"
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return Event(f"{source}#{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)

    async def publish(self, name: str, *devices: str, pool: str = "p", memory: str | None = None) -> str:
        """A slice comes; returns its UID."""
        made = await self.client.create(RESOURCE_SLICES, slice_object(name, devices, pool, memory))
        part = slices.read(made)
        await self.record((name, slices.combine([part.said])))
        return uid_of(made)

    async def withdraw(self, name: str) -> None:
        """A slice goes."""
        await self.client.delete(RESOURCE_SLICES, name)
        await self.record((name, SliceWithdrawn()))


def slice_object(name: str, devices: tuple[str, ...], pool: str, memory: str | None) -> Object:
    shared = {} if memory is None else {"allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device, **shared} for device in devices],
        },
    }


def uid_of(obj: Object) -> str:
    uid: str = obj["metadata"]["uid"]
    return uid


@pytest.fixture
def driver(ledger: JetStreamLedger, client: KubeClient) -> Driver:
    return Driver(ledger, client)


@pytest.fixture
async def ours(kube: KubeServer, client: KubeClient) -> AsyncIterator[CountingClient]:
    async with counting(kube.kubeconfig) as ours:
        yield ours


@pytest.fixture
async def writer(ledger: JetStreamLedger, database_url: str, ours: CountingClient) -> AsyncIterator[StatusWriter]:
    async with status_writer(ledger, database_url, ours) as writer:
        yield writer


def written(ours: CountingClient) -> list[str]:
    return [one for one in ours.written if PATH in one]


async def states(client: KubeClient, name: str) -> dict[str, str]:
    status = (await client.get(RESOURCE_SLICE_STATUSES, name))["status"]
    return {one["name"]: one["state"] for one in status["devices"]}


async def names(client: KubeClient) -> list[str]:
    return [one["metadata"]["name"] for one in (await client.list(RESOURCE_SLICE_STATUSES)).items]


async def is_right(client: KubeClient, ledger: JetStreamLedger) -> bool:
    return (await compare(client, ledger)).differences == 0


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
    await driver.record(("team-a/train", allocated(("p", "gpu-1", None))))
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


async def test_capacity_of_shared_devices_is_told(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0", memory="16Gi")
    share = allocated(("p", "gpu-0", "s-1"), consumed={"memory": "4Gi"})
    await driver.record(("a/one", share), ("a/two", share), ("b/one", share))
    await all_written(writer, driver.ledger)
    status = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]
    (device,) = status["devices"]
    assert (device["state"], device["availableCapacity"]) == ("PartiallyAllocated", {"memory": "4Gi"})
    held = [(one["claimNamespace"], one["claimName"], one["capacity"]) for one in device["allocations"]]
    assert held == [("a", "one", {"memory": "4Gi"}), ("a", "two", {"memory": "4Gi"}), ("b", "one", {"memory": "4Gi"})]
    assert status["summary"]["allocatedCapacity"] == {"memory": "12Gi"}


async def test_a_restart_and_a_replay_write_nothing(
    driver: Driver, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    for number in range(5):
        await driver.publish(f"s{number}", "gpu-0", "gpu-1", pool=f"p{number}")
        await driver.record((f"a/c{number}", allocated((f"p{number}", "gpu-0", None))))
    async with status_writer(driver.ledger, migrated_url, ours) as writer:
        await all_written(writer, driver.ledger)
        assert sorted(written(ours)) == sorted(f"PATCH {PATH}/s{number}{sub}" for number in range(5) for sub in SUBS)
    ours.written.clear()
    async with status_writer(driver.ledger, migrated_url, ours) as writer:
        await all_written(writer, driver.ledger)
        for projection in all_projections():
            await rebuild(projection, driver.ledger, migrated_url)
        await all_written(writer, driver.ledger)
    assert ours.written == []
    assert await is_right(client, driver.ledger)


SUBS = ("", "/status")


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

    async def is_told() -> bool:
        return any(one["reason"] == "GPUStatusRestored" for one in (await client.list(EVENTS)).items)

    await eventually(is_told)
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


async def test_while_the_gate_is_closed_the_last_status_stays(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await driver.publish("s2", "gpu-0", pool="q")
    await all_written(writer, driver.ledger)
    await driver.record((MODULE_CONFIG, OFF))
    await all_written(writer, driver.ledger)
    ours.written.clear()
    await driver.record(("a/c", allocated(("p", "gpu-0", None))), ("s2", SliceWithdrawn()))
    await driver.record(("n1-0", DeviceDetected(hardware=Hardware(uuid="GPU-1"), managed=True, node="n1", card="c")))
    await all_written(writer, driver.ledger)
    assert await states(client, "s1") == {"gpu-0": "Available"}
    assert await names(client) == ["s1", "s2"]
    assert written(ours) == []
    assert [one["metadata"]["name"] for one in (await client.list(GPU_DEVICES)).items] == ["n1-0"]
    assert await is_right(client, driver.ledger)
    await driver.record((MODULE_CONFIG, SettingsChanged()))
    await all_written(writer, driver.ledger)
    assert await states(client, "s1") == {"gpu-0": "Allocated"}
    assert await names(client) == ["s1"]


async def test_a_disabled_module_writes_no_status(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
    await driver.publish("s1", "gpu-0")
    await all_written(writer, driver.ledger)
    assert written(ours) == []
    await driver.record((MODULE_CONFIG, SettingsChanged()))
    await all_written(writer, driver.ledger)
    assert await states(client, "s1") == {"gpu-0": "Available"}


async def test_references_are_redacted_and_told_again_without_a_restart(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await driver.record(("secret/claim", allocated(("p", "gpu-0", None), ("p", "gone", None))))
    await all_written(writer, driver.ledger)
    full = await client.get(RESOURCE_SLICE_STATUSES, "s1")
    assert "secret" in str(full["status"])
    await driver.record((MODULE_CONFIG, SettingsChanged(claim_references="Redacted")))
    await all_written(writer, driver.ledger)
    redacted = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]
    assert "secret" not in str(redacted)
    assert redacted["devices"][0]["allocations"] == [{"claimNamespace": "", "claimName": "", "claimUID": ""}]
    assert len(redacted["poolStatus"]["validationErrors"]) == 1
    assert redacted["summary"] == full["status"]["summary"]
    await driver.record((MODULE_CONFIG, SettingsChanged()))
    await all_written(writer, driver.ledger)
    assert (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"] == full["status"]


async def test_a_burst_is_few_writes(
    driver: Driver, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    """The first change is written at once; the others wait for the pause, which here does not end."""
    patient = replace(QUICK, slice_status_pause_s=3600.0)
    for number in range(3):
        await driver.publish(f"s{number}", "gpu-0", "gpu-1", pool=f"p{number}")
    async with status_writer(driver.ledger, database_url, ours) as writer:
        await all_written(writer, driver.ledger)
    ours.written.clear()
    async with status_writer(driver.ledger, database_url, ours, patient) as writer:
        await all_written(writer, driver.ledger)
        for turn in range(20):
            for number in range(3):
                held = allocated((f"p{number}", f"gpu-{turn % 2}", None))
                await driver.record((f"a/c{number}", held))
        head = await driver.ledger.head()

        async def are_paused() -> bool:
            health = writer.health()
            return health.position >= head and health.waiting == 3

        await eventually(are_paused)
        assert sorted(written(ours)) == [f"PATCH {PATH}/s{number}/status" for number in range(3)]
    async with status_writer(driver.ledger, database_url, ours) as writer:
        await all_written(writer, driver.ledger)
        assert await is_right(client, driver.ledger)


async def test_after_the_pause_the_last_change_is_written(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0", "gpu-1")
    await all_written(writer, driver.ledger)
    ours.written.clear()
    changes = 50
    for turn in range(changes):
        await driver.record(("a/c", allocated(("p", f"gpu-{turn % 2}", None))))
    await all_written(writer, driver.ledger)
    assert 1 <= len(written(ours)) < changes
    assert await states(client, "s1") == {"gpu-0": "Available", "gpu-1": "Allocated"}
    assert await is_right(client, driver.ledger)


async def test_a_server_that_was_away_gets_what_is_new(
    driver: Driver, database_url: str, kube: KubeServer, client: KubeClient, proxy: KubeProxy
) -> None:
    await driver.publish("s1", "gpu-0")
    await driver.publish("s2", "gpu-0", pool="q")
    async with (
        counting(proxy.kubeconfig) as ours,
        status_writer(driver.ledger, database_url, ours) as writer,
    ):
        await all_written(writer, driver.ledger)
        await proxy.away()
        await driver.record(("a/c", allocated(("p", "gpu-0", None))))
        proxy.asked.clear()
        await proxy.back()

        async def is_shown() -> bool:
            return await states(client, "s1") == {"gpu-0": "Allocated"}

        await eventually(is_shown)
        await all_written(writer, driver.ledger)
        assert {one.path for one in proxy.written} == {f"{PATH}/s1/status"}


async def test_without_the_kind_the_others_are_written(
    ledger: JetStreamLedger, database_url: str, kube: KubeServer
) -> None:
    theirs = [crd for crd in shipped() + foreign() if crd["spec"]["names"]["kind"] != "ResourceSliceStatus"]
    async with counting(kube.kubeconfig) as ours:
        await install(ours, theirs)
        driver = Driver(ledger, ours)
        await driver.publish("s1", "gpu-0")
        await driver.record(("n-0", DeviceDetected(hardware=Hardware(uuid="GPU-1"), managed=True, node="n", card="c")))
        async with status_writer(ledger, database_url, ours) as writer:

            async def is_shown() -> bool:
                return [one["metadata"]["name"] for one in (await ours.list(GPU_DEVICES)).items] == ["n-0"]

            await eventually(is_shown)
            assert writer.health().unlisted == ("ResourceSliceStatus",)
            (missing,) = (await compare(ours, ledger)).first
            assert (missing.key.name, missing.found) == ("s1", None)
            await install(ours)
            await all_written(writer, ledger)
            assert await is_right(ours, ledger)
            await ours.delete(CRDS, "resourceslicestatuses.resource.gpuledger.io")
            await driver.record(
                ("n-1", DeviceDetected(hardware=Hardware(uuid="GPU-2"), managed=True, node="n", card="d"))
            )

            async def are_shown() -> bool:
                return len((await ours.list(GPU_DEVICES)).items) == 2

            await eventually(are_shown)
