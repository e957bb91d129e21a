"""`gpuledger device`, on an embedded API server."""

import pytest

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.api.labels import ANNOTATION_RETIRED
from gpuledger.edge.kube.client import KubeClient
from support.cli import Run
from support.kube_fleet import create_device

MISSING = {"type": "Missing", "status": "True", "reason": "NotObserved", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def annotation(client: KubeClient) -> str | None:
    value = ((await client.get(GPU_DEVICES, "w1-0"))["metadata"].get("annotations") or {}).get(ANNOTATION_RETIRED)
    return None if value is None else str(value)


@pytest.mark.parametrize("name", ["w1-0", "gpudevice.gpu.deckhouse.io/w1-0"])
async def test_a_device_whose_card_is_missing_is_retired_once(run: Run, client: KubeClient, name: str) -> None:
    await create_device(client, "w1-0", conditions=[MISSING])
    first = await run("device", "retire", name)
    assert (first.code, "GPUDevice w1-0 is retired" in first.err) == (0, True)
    assert await annotation(client) == "true"
    again = await run("device", "retire", name)
    assert (again.code, "was retired already" in again.err) == (0, True)


async def test_a_device_whose_card_is_there_or_that_there_is_not_is_refused(run: Run, client: KubeClient) -> None:
    await create_device(client, "w1-0", conditions=[{**MISSING, "status": "False", "reason": "Observed"}])
    refused = await run("device", "retire", "w1-0")
    assert (refused.code, "The card of GPUDevice 'w1-0' is not missing" in refused.err) == (1, True)
    assert await annotation(client) is None
    assert "GPUDevice 'nobody' was not found" in (await run("device", "retire", "nobody")).err
