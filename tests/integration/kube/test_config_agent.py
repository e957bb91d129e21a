"""The agent of machine configuration before an API server: what it reads and writes, and what it does without one."""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    OBSERVED_ANNOTATIONS,
)
from gpuledger.configagent.errors import ApiError, RenderedMissingError
from gpuledger.configagent.kube_access import KubeAccess, read_access
from gpuledger.configagent.kube_api import KubeNodeApi
from gpuledger.configagent.kube_http import KubeHttp
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.machine_config import NodeConfigReported
from support.config_agent import config, file, unit
from support.config_agent_process import ConfigAgentProcess, a_config_agent
from support.kube_equipped import equip, equipped_client
from support.kube_server import KubeServer, NewKube
from support.waiting import eventually

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

PLAIN = config([file("/etc/a", "1")], [unit("a.service", "restarted")])
REBOOTING = config([file("/etc/a", "2")], reboot=True, strategy="IfRequired")


def node_api(kube: KubeServer, name: str = "w1") -> KubeNodeApi:
    return KubeNodeApi(KubeHttp(read_access({"KUBECONFIG": str(kube.kubeconfig)})), name)


async def make(client: KubeClient, *configs: DesiredConfig) -> None:
    for name in ("w1", "w2"):
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    for one in configs:
        await client.create(RENDERED_MACHINE_CONFIGS, document_of(one))


async def annotate(client: KubeClient, annotations: Mapping[str, str | None], name: str = "w1") -> None:
    await client.merge_patch(NODES, name, {"metadata": {"annotations": annotations}})


async def shown(client: KubeClient, name: str = "w1") -> dict[str, str]:
    return dict((await client.get(NODES, name))["metadata"].get("annotations") or {})


async def until(client: KubeClient, **expected: str) -> None:
    async def holds() -> bool:
        found = await shown(client)
        return all(found.get(f"mco.in-cloud.io/{name.replace('_', '-')}") == value for name, value in expected.items())

    await eventually(holds)


async def test_the_own_node_alone_is_watched(kube: KubeServer, client: KubeClient) -> None:
    await make(client)
    async with aclosing(node_api(kube).node()) as stream:
        assert ANNOTATION_DESIRED not in await anext(stream)
        await annotate(client, {ANNOTATION_DESIRED: "of another"}, "w2")
        await annotate(client, {ANNOTATION_DESIRED: "ours"})
        while (found := await anext(stream)).get(ANNOTATION_DESIRED) is None:
            pass
        assert found[ANNOTATION_DESIRED] == "ours"


async def test_annotations_are_set_and_removed_and_others_stay(kube: KubeServer, client: KubeClient) -> None:
    await make(client)
    await annotate(client, {"x/y": "z"})
    api = node_api(kube)
    await api.patch({ANNOTATION_STATE: "error", ANNOTATION_LAST_ERROR: 'a "quoted" ünf\n'})
    assert await shown(client) == {"x/y": "z", ANNOTATION_STATE: "error", ANNOTATION_LAST_ERROR: 'a "quoted" ünf\n'}
    await api.patch({ANNOTATION_STATE: "done", ANNOTATION_LAST_ERROR: None})
    assert await shown(client) == {"x/y": "z", ANNOTATION_STATE: "done"}


async def test_a_configuration_is_read_whole_and_one_that_is_missing_is_named(
    kube: KubeServer, client: KubeClient
) -> None:
    large = config([file("/etc/large", "ünf <&>\n" * 60_000)])
    await make(client, large)
    api = node_api(kube)
    assert (await api.rendered(large.name))["spec"] == document_of(large)["spec"]
    with pytest.raises(RenderedMissingError, match="There is no RenderedMachineConfig rendered-worker-0"):
        await api.rendered("rendered-worker-0")
    with pytest.raises(ApiError, match="There is no Node w9"):
        await anext(node_api(kube, "w9").node())


async def test_a_server_that_goes_away_ends_the_stream_with_an_error(kube: KubeServer, client: KubeClient) -> None:
    await make(client)
    api = node_api(kube)
    async with aclosing(api.node()) as stream:
        await anext(stream)
        await kube.stop()
        # A server that stops may end the stream as well as break it; what is left of it comes first.
        with suppress(ApiError):
            async for _ in stream:
                pass
    with pytest.raises(ApiError, match="See the network and the API server"):
        await api.patch({ANNOTATION_STATE: "done"})


@pytest.mark.embedded_only("it is to speak TLS with an authority of its own")
async def test_a_server_is_believed_by_its_authority_alone(new_kube: NewKube, tmp_path: Path) -> None:
    kube = await new_kube(secure=True)
    async with equipped_client(kube) as client:
        await make(client)
        token, ca = tmp_path / "token", tmp_path / "ca.crt"
        token.write_text("t1")
        assert kube.ca is not None
        ca.write_bytes(kube.ca.read_bytes())
        trusting = KubeNodeApi(KubeHttp(KubeAccess(kube.url, ca=ca, token=token)), "w1")
        assert await anext(trusting.node()) is not None
        token.unlink()
        with pytest.raises(ApiError, match="cannot be read"):
            await anext(trusting.node())
        doubting = KubeNodeApi(KubeHttp(KubeAccess(kube.url)), "w1")
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            await anext(doubting.node())
        assert await anext(node_api(kube).node()) is not None


@as_root
async def test_a_process_applies_reports_and_ends_in_an_orderly_way(
    kube: KubeServer, client: KubeClient, tmp_path: Path
) -> None:
    await make(client, PLAIN)
    async with a_config_agent(tmp_path, kube.kubeconfig) as agent:
        await until(client, agent_state="idle")
        await annotate(client, {ANNOTATION_DESIRED: PLAIN.name})
        await until(client, agent_state="done", current_revision=PLAIN.name, reboot_pending="false")
        assert agent.machine.path("/etc/a").read_text() == "1"
        assert agent.calls.read_text().splitlines()[-1] == "--no-pager --no-ask-password restart -- a.service"
        facts = [agent.facts.read(name) for name in agent.facts.names()]
        assert [fact.data["state"] for fact in facts] == ["idle", "applying", "done"]
        assert {fact.type for fact in facts} == {NodeConfigReported.TYPE}
        metrics = await agent.read("/metrics")
        assert "gpuledger_config_agent_applies_total 1.0" in metrics
        assert 'gpuledger_config_agent_state{state="done"} 1.0' in metrics
        health = json.loads(await agent.read("/healthz"))
        assert (health["state"], health["current"], health["troubles"]) == ("done", PLAIN.name, {})
        assert await agent.end() == 0
    assert set(await shown(client)) == {ANNOTATION_DESIRED, *OBSERVED_ANNOTATIONS} - {ANNOTATION_LAST_ERROR}


@as_root
async def test_a_process_outlives_an_outage_of_the_server(kube: KubeServer, client: KubeClient, tmp_path: Path) -> None:
    await make(client, PLAIN)
    await annotate(client, {ANNOTATION_DESIRED: PLAIN.name})
    async with a_config_agent(tmp_path, kube.kubeconfig) as agent:
        await until(client, agent_state="done")
        await kube.stop()

        async def is_in_trouble() -> bool:
            return "watch" in json.loads(await agent.read("/healthz"))["troubles"]

        await eventually(is_in_trouble)
        await kube.start()
        await equip(kube, client)
        await annotate(client, {ANNOTATION_DESIRED: None})
        await until(client, agent_state="idle", current_revision=PLAIN.name)


@as_root
async def test_a_process_asks_for_a_reboot_after_its_report(
    kube: KubeServer, client: KubeClient, tmp_path: Path
) -> None:
    await make(client, REBOOTING)
    await annotate(client, {ANNOTATION_DESIRED: REBOOTING.name})
    async with a_config_agent(tmp_path, kube.kubeconfig) as agent:

        async def is_asked() -> bool:
            return agent.calls.exists() and "reboot" in agent.calls.read_text()

        await eventually(is_asked)
        found = await shown(client)
        assert (found[ANNOTATION_STATE], found[ANNOTATION_REBOOT_PENDING]) == ("rebooting", "true")
        assert ANNOTATION_CURRENT not in found


async def test_a_process_without_a_server_says_so(tmp_path: Path) -> None:
    agent = ConfigAgentProcess(tmp_path, tmp_path / "none")
    assert "The kubeconfig" in await agent.start()
    assert agent.process is not None
    assert await agent.process.wait() == 2


@as_root
async def test_a_host_has_one_agent(kube: KubeServer, client: KubeClient, tmp_path: Path) -> None:
    await make(client)
    async with a_config_agent(tmp_path, kube.kubeconfig) as agent:
        second = ConfigAgentProcess(tmp_path, kube.kubeconfig)
        assert "Another agent has" in await second.start()
        assert second.process is not None
        assert await second.process.wait() == 5
        await agent.end(signal.SIGKILL)
        assert "is up" in await agent.start()
