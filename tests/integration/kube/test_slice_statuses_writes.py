"""How often ResourceSliceStatuses are written: not again, not at every change, and not where they cannot be."""

from dataclasses import replace

from gpuledger.api.kinds import CRDS, GPU_DEVICES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import foreign, install, shipped
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.events.device import DeviceDetected, Hardware
from gpuledger.events.position import is_at_or_after
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.tools.queries.backend import all_projections
from support.dra_facts import allocated
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.slice_statuses import PATH, Driver, is_right, states, written
from support.statuswriting import QUICK, CountingClient, all_written, counting, status_writer
from support.waiting import eventually

SUBS = ("", "/status")


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


async def test_a_burst_is_few_writes(
    driver: Driver, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    """The first change is written at once; the others wait for the pause, which here does not end."""
    patient = replace(QUICK, slice_status_pause_s=3600.0, slice_writes_burst=1)
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
            return is_at_or_after(health.position, head) and health.waiting == len(written(ours)) == 3

        await eventually(are_paused)
        assert sorted(written(ours)) == [f"PATCH {PATH}/s{number}/status" for number in range(3)]
    async with status_writer(driver.ledger, database_url, ours) as writer:
        await all_written(writer, driver.ledger)
        assert await is_right(client, driver.ledger)


async def test_after_the_pause_the_last_change_is_written(
    driver: Driver, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    """A burst of one write is always used up, so that the pause has its full length."""
    async with status_writer(driver.ledger, database_url, ours, replace(QUICK, slice_writes_burst=1)) as writer:
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
        proxy.requests.clear()
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

            async def lacks_one_kind() -> bool:
                return writer.health().unlisted == ("ResourceSliceStatus",)

            await eventually(lacks_one_kind)
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
