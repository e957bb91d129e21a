"""Pausing, resuming, rolling back and unpinning MachineConfigPools, on real servers and an API server."""

from typing import Any

import pytest

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS
from gpuledger.api.machine_config import ANNOTATION_PINNED
from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.cli import Run
from support.config_ledger import POOL, by, deciding, recorded
from support.kube_fleet import create
from support.machine_configs import config_file, machine_config

SPEC: dict[str, Any] = {"nodeSelector": {}, "machineConfigSelector": {}}


@pytest.fixture
async def pool(client: KubeClient) -> str:
    """A pool of the API server."""
    await create(
        client, MACHINE_CONFIG_POOLS, {"metadata": {"name": POOL, "annotations": {"mine": "stays"}}, "spec": SPEC}
    )
    return POOL


async def annotations(client: KubeClient) -> dict[str, str]:
    found: dict[str, str] = (await client.get(MACHINE_CONFIG_POOLS, POOL))["metadata"].get("annotations") or {}
    return found


async def is_paused(client: KubeClient) -> bool:
    return bool((await client.get(MACHINE_CONFIG_POOLS, POOL))["spec"].get("paused"))


async def test_a_pool_is_paused_and_goes_on(run: Run, client: KubeClient, pool: str) -> None:
    paused = await run("config", "pause", f"machineconfigpool/{pool}")
    assert (paused.code, "MachineConfigPool gpu is paused from now on" in paused.err) == (0, True)
    assert await is_paused(client)
    assert "was paused already" in (await run("config", "pause", pool)).err
    assert "is not paused any more" in (await run("config", "resume", pool)).err
    assert not await is_paused(client)
    assert "was not paused already" in (await run("config", "resume", pool)).err


async def test_a_pool_is_rolled_back_and_goes_to_the_newest_again(
    run: Run, client: KubeClient, pool: str, ledger: JetStreamLedger, migrated_url: str
) -> None:
    other = ("base", machine_config(config_file("/etc/motd", "other\n"), uid="base"))
    async with deciding(ledger, migrated_url) as record:
        await record(recorded())
        await record(by("/watchers/machineconfigs", system_clock(), other, first=2))
    newest, before = [row["name"] for row in (await run("config", "history", pool, "-o", "json")).json()]
    back = await run("config", "rollback", pool)
    assert (back.code, f"is pinned to {before}" in back.err) == (0, True), back.err
    assert await annotations(client) == {"mine": "stays", ANNOTATION_PINNED: before}
    assert "was pinned already" in (await run("config", "rollback", pool, "--to", before)).err
    revision = newest.rpartition("-")[2]
    assert f"is pinned to {newest}" in (await run("config", "rollback", pool, "--to", revision)).err
    assert (await annotations(client))[ANNOTATION_PINNED] == newest
    unknown = await run("config", "rollback", pool, "--to", "nothing")
    assert (unknown.code, "has no rendered configuration 'nothing'" in unknown.err) == (2, True)
    assert "is no longer pinned" in (await run("config", "unpin", pool)).err
    assert await annotations(client) == {"mine": "stays"}
    assert "was not pinned" in (await run("config", "unpin", pool)).err


@pytest.mark.parametrize("command", ["pause", "resume", "unpin"])
async def test_a_pool_that_is_not_there(run: Run, client: KubeClient, command: str) -> None:
    refused = await run("config", command, "nothing")
    assert (refused.code, "MachineConfigPool 'nothing' was not found" in refused.err) == (1, True)


async def test_without_an_api_server_nothing_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    refused = await run("config", "pause", POOL)
    assert refused.code in (2, 4)
    assert refused.err.startswith("Error: ")
