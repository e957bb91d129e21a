"""`gpuledger why pod` about preflight checks with a kubeconfig and no ledger."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuledger.api.kinds import CONFIG_MAPS
from gpuledger.api.preflight import gang_config_map
from gpuledger.edge.kube.client import KubeClient, open_client
from support.cli import Run
from support.kube import kube_api
from support.kube_fleet import create
from support.preflight_pods import STARTED, create_checked
from support.present import create_namespace, laptop, present


@pytest.fixture
async def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    """An administrator of a cluster with the namespace `ml`."""
    async with kube_api(tmp_path) as api, open_client(api.kubeconfig) as admin:
        await create_namespace(admin, "ml")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield admin


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line without any server but that of a kubeconfig."""
    return laptop(str(tmp_path / "home"), monkeypatch, capsys)


async def test_the_pod_and_the_config_map_of_its_gang_say_what_it_waits_for(run: Run, admin: KubeClient) -> None:
    await create_checked(admin, "w-0", state={"running": {"startedAt": STARTED}})
    alone = (await present(run, "why", "pod", "ml/w-0", "-o", "json")).json()
    assert alone["answer"].endswith("gpuledger's service preflight has not written its ConfigMap")
    config_map = {"metadata": {"name": gang_config_map("g"), "namespace": "ml"}}
    await create(admin, CONFIG_MAPS, config_map | {"data": {"expected_count": "2", "peers": "w-0:10.0.0.1\n"}})
    answer = (await present(run, "why", "pod", "ml/w-0", "-o", "json")).json()["answer"]
    assert answer == (
        f"its preflight check nccl-allreduce waits for its gang ml/g on node n1 since {STARTED} and gives up at "
        "2026-03-01T03:10:00+00:00: 1 of 2 pods are there"
    )


async def test_a_check_that_failed(run: Run, admin: KubeClient) -> None:
    ended = {"exitCode": 2, "reason": "Error", "startedAt": STARTED, "finishedAt": STARTED, "message": "no JSON"}
    await create_checked(admin, "w-0", state={"terminated": ended})
    found = (await present(run, "why", "pod", "ml/w-0", "-o", "json")).json()
    assert found["answer"].startswith(
        "a setting of its preflight check nccl-allreduce is wrong on node n1 (exit code 2)"
    )
    assert found["preflight"]["reason"] == "CheckMisconfigured"
