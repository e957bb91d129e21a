"""Objects that the API server does not let us write are their own affair: all others are written meanwhile."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from gpuledger.api.conditions import PREREQUISITE_NOT_MET
from gpuledger.api.kinds import CRDS, GPU_DEVICES, GPU_NODE_STATES, MODULE_CONFIG, MODULE_CONFIGS, Resource
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import APPLY_PATCH, KubeClient, KubeRequest
from gpuledger.edge.kube.errors import InvalidError, SchemaError, WebhookAwayError
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.webhooks.configuration import VALIDATING
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.backoff import Backoff
from support.gpu_states import FactRecorder, found
from support.inventory_decisions import own_events
from support.kube_proxy import Fault, KubeProxy
from support.scripted_api import refuse
from support.statuswriting import QUICK, WRITING, CountingClient, all_written, counting, status_writer
from support.waiting import eventually

FORBIDDEN = refuse(403, "Forbidden", "no such right")
NEVER = Backoff(first_s=600.0, max_s=600.0)
"""Longer than any test."""

SOON, ONCE = replace(QUICK, backoff=NEVER), replace(QUICK, backoff=NEVER, refused_backoff=NEVER)
"""Trouble of the server would end all writing; a refused write is retried soon, or not in this test."""


def unwritable(path: str) -> Fault:
    """What has this in its path cannot be written."""

    async def answer(request: web.Request) -> web.StreamResponse | None:
        is_meant = request.method in WRITING and path in request.path
        return await FORBIDDEN(request) if is_meant else None

    return answer


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def names(client: KubeClient, resource: Resource) -> set[str]:
    return {one["metadata"]["name"] for one in (await client.list(resource)).items}


async def has(client: KubeClient, *states: str, devices: tuple[str, ...]) -> None:
    async def there() -> bool:
        return (await names(client, GPU_DEVICES), await names(client, GPU_NODE_STATES)) == (set(devices), set(states))

    await eventually(there)


def count_of_writes(ours: CountingClient, path: str) -> int:
    return sum(path in one for one in ours.written)


@pytest.mark.parametrize(
    ("path", "states", "devices"),
    [
        (f"{GPU_DEVICES.path()}/w1-0", ("w1",), ("w1-1", "w1-2")),
        (GPU_NODE_STATES.path(), (), ("w1-0", "w1-1", "w1-2")),
    ],
)
async def test_others_are_written_and_it_is_made_up_for_once_it_may_be(
    ledger: JetStreamLedger,
    database_url: str,
    client: KubeClient,
    proxy: KubeProxy,
    path: str,
    states: tuple[str, ...],
    devices: tuple[str, ...],
) -> None:
    facts, proxy.fault = FactRecorder(ledger), unwritable(path)
    async with counting(proxy.kubeconfig) as ours, status_writer(ledger, database_url, ours, SOON) as writer:
        await facts.record(*found("w1-0", "w1-1", "w1-2"))
        await has(client, *states, devices=devices)
        assert writer.health().failing == 1
        proxy.fault = None
        await all_written(writer, ledger)
        assert (await compare(client, ledger)).differences == 0


async def test_a_refusal_is_counted_and_not_repeated_at_once(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, proxy: KubeProxy
) -> None:
    facts, path = FactRecorder(ledger), f"{GPU_DEVICES.path()}/w1-0"
    proxy.fault = unwritable(path)
    writes = {"kind": "GPUDevice", "action": "create", "outcome": "ForbiddenError"}
    before = counted("gpuledger_statuswriter_writes_total", **writes)
    errors = counted("gpu_inventory_handler_errors_total", handler="gpudevices")
    async with counting(proxy.kubeconfig) as ours, status_writer(ledger, database_url, ours, ONCE) as writer:
        await facts.record(*found("w1-0", "w1-1"))
        await has(client, "w1", devices=("w1-1",))
        await facts.record(*found("w1-0", "w1-1", "w1-2"))
        await has(client, "w1", devices=("w1-1", "w1-2"))
        assert (count_of_writes(ours, path), writer.health().failing) == (1, 1)
    assert counted("gpuledger_statuswriter_writes_total", **writes) == before + 1
    assert counted("gpu_inventory_handler_errors_total", handler="gpudevices") == errors + 1


async def knows_only(client: KubeClient, resource: Resource, *fields: str) -> None:
    """The server's CRD has these fields in the status and no others."""
    (crd,) = (
        deepcopy(one) for one in (*crds.shipped(), *crds.foreign()) if one["metadata"]["name"] == resource.full_name
    )
    allowed: dict[str, Any] = {name: {"type": "string"} for name in fields}
    (version,) = crd["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = {"type": "object", "properties": allowed}
    version["additionalPrinterColumns"] = []
    await client.apply(CRDS, crd, force=True)
    await eventually(lambda: has_no_conditions(client, resource))


async def dry_run(client: KubeClient, resource: Resource, parts: dict[str, Any]) -> None:
    """Apply an object that there is not, and do not keep it."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "probe"}} | parts
    query = {"fieldManager": "probe", "dryRun": "All"}
    await client.send(KubeRequest("probe", "PATCH", f"{resource.path()}/probe", query, body, APPLY_PATCH))


async def has_no_conditions(client: KubeClient, resource: Resource) -> bool:
    """Whether the server goes by the changed CRD; a real one does so a moment later."""
    try:
        await dry_run(client, resource, {"spec": {}, "status": {"conditions": []}})
    except SchemaError:
        return True
    except InvalidError:
        return False
    return False


async def test_a_crd_of_another_version_holds_up_its_own_kind_alone(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await knows_only(client, GPU_NODE_STATES, "phase")
    facts, path = FactRecorder(ledger), f"{GPU_NODE_STATES.path()}/w1/status"
    await facts.record(*found("w1-0", "w1-1"))
    async with status_writer(ledger, database_url, ours, ONCE) as writer:
        await eventually(lambda: is_failing(writer))
        await facts.record(*found("w1-2"))
        await eventually(lambda: are_shown(client, GPU_DEVICES, 3))
        assert (count_of_writes(ours, path), writer.health().failing) == (1, 1)


NOBODY = "https://127.0.0.1:1/"


async def test_a_webhook_that_is_away_holds_up_its_own_kind_alone(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    rule = {"apiGroups": [GPU_NODE_STATES.group], "apiVersions": ["*"], "operations": ["CREATE"]}
    hook = {
        "name": "away.example.com", "rules": [rule | {"resources": [GPU_NODE_STATES.plural]}],
        "clientConfig": {"url": NOBODY}, "admissionReviewVersions": ["v1"], "sideEffects": "None",
    }  # fmt: skip
    await client.apply(VALIDATING, {"metadata": {"name": "away"}, "webhooks": [hook]})
    await eventually(lambda: needs_the_webhook(client))
    facts, path = FactRecorder(ledger), GPU_NODE_STATES.path()
    (device, node), (other, _) = found("w1-0"), found("w1-1")
    async with status_writer(ledger, database_url, ours, ONCE) as writer:
        await facts.record(device)
        await eventually(lambda: are_shown(client, GPU_DEVICES, 1))
        await facts.record(node)
        await eventually(lambda: is_failing(writer))
        await facts.record(other)
        await eventually(lambda: are_shown(client, GPU_DEVICES, 2))
        assert (count_of_writes(ours, path), writer.health().failing) == (1, 1)


async def needs_the_webhook(client: KubeClient) -> bool:
    """Whether the server calls it; a real one does so a moment later."""
    try:
        await dry_run(client, GPU_NODE_STATES, {"spec": {"nodeName": "probe"}})
    except WebhookAwayError:
        return True
    return False


async def is_failing(writer: StatusWriter) -> bool:
    return writer.health().failing > 0


async def are_shown(client: KubeClient, resource: Resource, number: int) -> bool:
    return sum("status" in one for one in (await client.list(resource)).items) == number


async def test_a_module_config_as_deckhouse_has_it_shows_no_conditions_and_holds_up_nothing(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await knows_only(client, MODULE_CONFIGS, "version", "message")
    config = {"apiVersion": MODULE_CONFIGS.api_version, "kind": MODULE_CONFIGS.kind, "spec": {"enabled": True}}
    await client.create(MODULE_CONFIGS, config | {"metadata": {"name": MODULE_CONFIG}})
    facts = FactRecorder(ledger)
    missing = ModulePrerequisiteChanged(met=False, reason="NodeFeatureDiscoveryMissing", message="Enable it.")
    await facts.record((MODULE_CONFIG, missing))
    async with status_writer(ledger, database_url, ours, ONCE) as writer:
        await all_written(writer, ledger)
        await facts.record(*found("w1-0"))
        await all_written(writer, ledger)
        await eventually(lambda: is_reported(client))
        assert count_of_writes(ours, MODULE_CONFIGS.path()) == 1
        await facts.record((MODULE_CONFIG, ModulePrerequisiteChanged(met=True, reason="NodeFeatureDiscoveryRuns")))
        await all_written(writer, ledger)
    assert count_of_writes(ours, MODULE_CONFIGS.path()) == 2
    assert await names(client, GPU_DEVICES) == {"w1-0"}
    assert "status" not in await client.get(MODULE_CONFIGS, MODULE_CONFIG)


async def is_reported(client: KubeClient) -> bool:
    notes = [event["note"] for event in await own_events(client)]
    return any(PREREQUISITE_NOT_MET in note for note in notes)
