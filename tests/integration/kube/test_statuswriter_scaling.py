"""The services scale their own Deployments as `highAvailability` says: on real servers, by the scale alone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gpuledger.api.conditions import ConditionStatus
from gpuledger.api.kinds import DEPLOYMENTS, EVENTS, MODULE_CONFIG, MODULE_CONFIGS, Resource
from gpuledger.api.labels import ANNOTATION_REPLICAS
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.settings import OwnDeployment
from support.gpu_states import FactRecorder
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.statuswriting import QUICK, CountingClient, all_written, counting, status_writer
from support.waiting import eventually

SERVER = OwnDeployment("default", "gpuledger")
SCALE = f"PATCH /apis/apps/v1/namespaces/{SERVER.namespace}/deployments/{SERVER.name}/scale"
TEMPLATE = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def facts(ledger: JetStreamLedger) -> FactRecorder:
    return FactRecorder(ledger)


@asynccontextmanager
async def standing_by(
    facts: FactRecorder, database_url: str, client: KubeClient, **more: Any
) -> AsyncIterator[StatusWriter]:
    """A status writer that may have to wait for another one to end."""
    settings = replace(QUICK, deployments=(SERVER,), scale_check_s=0.05, **more)
    async with status_writer(facts.ledger, database_url, client, settings) as writer:
        yield writer


@asynccontextmanager
async def scaling(
    facts: FactRecorder, database_url: str, client: KubeClient, **more: Any
) -> AsyncIterator[StatusWriter]:
    async with standing_by(facts, database_url, client, **more) as writer:
        await all_written(writer, facts.ledger)
        yield writer


async def deploy(client: KubeClient, replicas: int) -> None:
    """As the chart does."""
    metadata = {"name": SERVER.name, "namespace": SERVER.namespace, "annotations": {ANNOTATION_REPLICAS: str(replicas)}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "s"}}, "template": TEMPLATE}
    await create(client, DEPLOYMENTS, {"metadata": metadata, "spec": spec})


async def available(facts: FactRecorder, value: bool | None, **more: Any) -> None:
    """The setting from now on."""
    await facts.record((MODULE_CONFIG, SettingsChanged(high_availability=value, **more)))


async def has(client: KubeClient, replicas: int) -> bool:
    return bool((await client.get(DEPLOYMENTS, SERVER.name, SERVER.namespace))["spec"]["replicas"] == replicas)


async def comes_to(client: KubeClient, replicas: int) -> None:
    await eventually(partial(has, client, replicas))


async def set_replicas(client: KubeClient, replicas: int) -> None:
    await client.merge_patch(DEPLOYMENTS, SERVER.name, {"spec": {"replicas": replicas}}, SERVER.namespace)


async def test_the_number_of_pods_follows_the_setting_and_nothing_else_changes(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await deploy(client, 3)
    before = (await client.get(DEPLOYMENTS, SERVER.name, SERVER.namespace))["spec"]
    async with scaling(facts, database_url, ours):
        await available(facts, False)
        await comes_to(client, 1)
        await available(facts, True)
        await comes_to(client, 3)
        await available(facts, False)
        await comes_to(client, 1)
        await available(facts, None)
        await comes_to(client, 3)
    assert (await client.get(DEPLOYMENTS, SERVER.name, SERVER.namespace))["spec"] == before
    assert {one for one in ours.written if "deployments" in one} == {SCALE}


async def test_what_a_release_resets_is_set_again_until_somebody_keeps_changing_it(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await deploy(client, 2)
    config = {"metadata": {"name": MODULE_CONFIG}, "spec": {"enabled": True}}
    await create(client, MODULE_CONFIGS, config)
    async with scaling(facts, database_url, ours, corrections_per_hour_max=2):
        await available(facts, False, generation=1)
        await comes_to(client, 1)
        await eventually(partial(is_configured, client, ConditionStatus.TRUE))
        await set_replicas(client, 2)
        await comes_to(client, 1)
        await set_replicas(client, 2)
        await eventually(partial(is_configured, client, ConditionStatus.FALSE, "somebody keeps changing"))
        assert ours.written.count(SCALE) == 2
        assert await has(client, 2)
        await available(facts, True, generation=2)
        await eventually(partial(is_configured, client, ConditionStatus.TRUE))
        await available(facts, False, generation=3)
        await comes_to(client, 1)


async def test_what_people_stopped_or_nobody_set_stays(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await deploy(client, 2)
    async with scaling(facts, database_url, ours) as writer:
        await set_replicas(client, 5)
        await available(facts, None)
        await all_written(writer, facts.ledger)
        assert await has(client, 5)
        await set_replicas(client, 0)
        await available(facts, True)
        await available(facts, False)
        await all_written(writer, facts.ledger)
        await eventually(partial(_has_asked, ours))
    assert SCALE not in ours.written
    assert not (await client.get(DEPLOYMENTS, SERVER.name, SERVER.namespace))["spec"]["replicas"]


async def _has_asked(ours: CountingClient) -> bool:
    """Whether the scaler has looked twice since people stopped the services."""
    return ours.asked.count("get deployments.apps") >= 2


class StoppedMeanwhile(CountingClient):
    """People stop the services right after they were read, once."""

    is_stopped = False

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        found = await super().get(resource, name, namespace)
        if resource is DEPLOYMENTS and not self.is_stopped:
            self.is_stopped = True
            await set_replicas(self, 0)
        return found


async def test_what_people_stop_meanwhile_is_not_started(
    facts: FactRecorder, database_url: str, client: KubeClient, kube: KubeServer
) -> None:
    await deploy(client, 1)
    await available(facts, True)
    async with counting(kube.kubeconfig, StoppedMeanwhile) as ours:
        async with scaling(facts, database_url, ours):
            await eventually(partial(_has_asked, ours))
        assert SCALE in ours.written
    assert not (await client.get(DEPLOYMENTS, SERVER.name, SERVER.namespace))["spec"]["replicas"]


async def test_the_leader_may_be_the_pod_that_ends(
    facts: FactRecorder, database_url: str, client: KubeClient, kube: KubeServer, ours: CountingClient
) -> None:
    await deploy(client, 2)
    async with counting(kube.kubeconfig) as second, AsyncExitStack() as first:
        await first.enter_async_context(scaling(facts, database_url, ours))
        async with standing_by(facts, database_url, second) as other:
            await available(facts, False)
            await comes_to(client, 1)
            assert (other.health().state, second.written) == ("standing-by", [])
            await first.aclose()
            await eventually(partial(_has_asked, second))
            assert other.health().state == "writing"
        assert SCALE not in second.written
    assert ours.written.count(SCALE) == 1
    assert await has(client, 1)


async def test_what_the_cluster_refuses_is_a_condition_and_one_warning_until_it_is_mended(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await create(client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": {"enabled": True}})
    async with scaling(facts, database_url, ours):
        await available(facts, True, generation=1)
        refused = "highAvailability is true, but Deployment default/gpuledger cannot be scaled:"
        await eventually(partial(is_configured, client, ConditionStatus.FALSE, refused))
        await eventually(partial(_warnings, client, 1))
        await deploy(client, 1)
        await comes_to(client, 2)
        await eventually(partial(is_configured, client, ConditionStatus.TRUE))
        await eventually(partial(_warnings, client, 1))


async def is_configured(client: KubeClient, status: ConditionStatus, words: str = "") -> bool:
    conditions = ((await client.get(MODULE_CONFIGS, MODULE_CONFIG)).get("status") or {}).get("conditions") or ()
    found = [one for one in conditions if one["type"] == "Configured"]
    return bool(found) and found[0]["status"] == status and words in found[0]["message"]


async def _warnings(client: KubeClient, number: int) -> bool:
    notes = [one["note"] for one in (await client.list(EVENTS)).items if one["type"] == "Warning"]
    return len([one for one in notes if "cannot be scaled" in one]) == number
