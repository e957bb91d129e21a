"""ResourceSliceStatuses while settings change: a closed feature gate, a disabled module, redacted claims."""

from gpuledger.api.kinds import GPU_DEVICES, MODULE_CONFIG, RESOURCE_SLICE_STATUSES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.objects import Kind
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.device import DeviceDetected, Hardware
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slice import SliceWithdrawn
from support.dra_facts import allocated
from support.slice_statuses import NAMING, Driver, is_right, names, states, written
from support.statuswriting import CountingClient, all_written

OFF = SettingsChanged(dra_availability=False)


async def test_while_the_feature_gate_is_closed_the_last_status_stays(
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
    assert Kind.SLICE in (await compare(client, driver.ledger)).left_out
    await driver.record((MODULE_CONFIG, SettingsChanged()))
    await all_written(writer, driver.ledger)
    assert Kind.SLICE not in (await compare(client, driver.ledger)).left_out
    assert await states(client, "s1") == {"gpu-0": "Allocated"}
    assert await names(client) == ["s1"]


async def test_a_stale_status_that_a_person_deletes_is_made_anew_when_the_gate_opens(
    driver: Driver, client: KubeClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await all_written(writer, driver.ledger)
    await driver.record((MODULE_CONFIG, OFF))
    await all_written(writer, driver.ledger)
    await client.delete(RESOURCE_SLICE_STATUSES, "s1")
    await driver.record(("a/c", allocated(("p", "gpu-0", None))))
    await all_written(writer, driver.ledger)
    assert await names(client) == []
    await driver.record((MODULE_CONFIG, SettingsChanged()))
    await all_written(writer, driver.ledger)
    assert await states(client, "s1") == {"gpu-0": "Allocated"}


async def test_slices_that_contradict_each_other_are_errors_in_the_status_and_its_condition_is_false(
    driver: Driver, client: KubeClient, writer: StatusWriter
) -> None:
    await driver.publish("s1", "gpu-0")
    await driver.publish("s2", "gpu-0")
    await driver.publish("other", "gpu-0", pool="q")
    await all_written(writer, driver.ledger)
    pool = (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"]["poolStatus"]
    errors = [
        "2 slices of generation 1 are there, and no more than 1 announced",
        "device gpu-0 appears in both s1 and s2",
    ]
    assert pool["validationErrors"] == errors
    assert [one["status"] for one in pool["conditions"]] == ["False", "False"]
    other = (await client.get(RESOURCE_SLICE_STATUSES, "other"))["status"]["poolStatus"]
    assert [one["status"] for one in other["conditions"]] == ["True", "True"]
    assert await is_right(client, driver.ledger)


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


async def test_references_are_redacted_and_shown_again_without_a_restart(
    driver: Driver, client: KubeClient, ours: CountingClient, writer: StatusWriter
) -> None:
    await driver.record(NAMING)
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
    await driver.record(NAMING)
    await all_written(writer, driver.ledger)
    assert (await client.get(RESOURCE_SLICE_STATUSES, "s1"))["status"] == full["status"]
