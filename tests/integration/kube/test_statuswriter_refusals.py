"""Objects that the API server does not let us write are their own affair: all others are written meanwhile."""

from dataclasses import replace

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from gpuledger.kube.client import KubeClient
from gpuledger.kube.names import GPU_DEVICES, GPU_NODE_STATES, Resource
from gpuledger.kube.watch import Backoff
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.statuswriter.main import compare
from support.gpu_states import Teller, found
from support.kube_proxy import Fault, KubeProxy
from support.ledgers import eventually
from support.scripted_api import refuse
from support.statuswriting import QUICK, WRITING, CountingClient, all_written, counting, status_writer

FORBIDDEN = refuse(403, "Forbidden", "no such right")
NEVER = Backoff(first_s=600.0, max_s=600.0)
"""Longer than any test."""

SOON, ONCE = replace(QUICK, backoff=NEVER), replace(QUICK, backoff=NEVER, refused_backoff=NEVER)
"""Trouble of the server would end all writing; what is refused is tried again soon, or not in this test."""


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


def asked(ours: CountingClient, path: str) -> int:
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
    teller, proxy.fault = Teller(ledger), unwritable(path)
    async with counting(proxy.kubeconfig) as ours, status_writer(ledger, database_url, ours, SOON) as writer:
        await teller.say(*found("w1-0", "w1-1", "w1-2"))
        await has(client, *states, devices=devices)
        assert writer.health().failing == 1
        proxy.fault = None
        await all_written(writer, ledger)
        assert (await compare(client, ledger)).differences == 0


async def test_it_is_counted_and_not_asked_again_at_once(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, proxy: KubeProxy
) -> None:
    teller, path = Teller(ledger), f"{GPU_DEVICES.path()}/w1-0"
    proxy.fault = unwritable(path)
    writes = {"kind": "GPUDevice", "action": "create", "outcome": "ForbiddenError"}
    before = counted("gpuledger_statuswriter_writes_total", **writes)
    errors = counted("gpu_inventory_handler_errors_total", handler="gpudevices")
    async with counting(proxy.kubeconfig) as ours, status_writer(ledger, database_url, ours, ONCE) as writer:
        await teller.say(*found("w1-0", "w1-1"))
        await has(client, "w1", devices=("w1-1",))
        await teller.say(*found("w1-0", "w1-1", "w1-2"))
        await has(client, "w1", devices=("w1-1", "w1-2"))
        assert (asked(ours, path), writer.health().failing) == (1, 1)
    assert counted("gpuledger_statuswriter_writes_total", **writes) == before + 1
    assert counted("gpu_inventory_handler_errors_total", handler="gpudevices") == errors + 1
