"""The client, the reflector and the shipped CRDs against a working API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import CRDS, GPU_DEVICES, GPU_NODE_STATES, NAMESPACES, NODE_FEATURE_RULES, NODE_FEATURES, NODES
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, Selection, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError, UnavailableError
from gpuledger.edge.kube.reflector import ChangeBatch, Interrupted, Listed, Reflector
from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.runtime.clock import system_clock
from support.kube_equipped import equip
from support.kube_proxy import KubeProxy
from support.kube_server import HOST, KubeServer, NewKube

DEADLINE_S = 60.0


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of an empty server."""
    async with open_client(kube.kubeconfig) as client:
        yield client


@pytest.fixture
async def equipped(kube: KubeServer, client: KubeClient) -> KubeClient:
    """A client of a server that has every CRD."""
    await equip(kube, client)
    return client


def device(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": status}


async def put(client: KubeClient, name: str, **status: Any) -> dict[str, Any]:
    await client.apply(GPU_DEVICES, {"metadata": {"name": name}, "spec": {}})
    return await client.apply(GPU_DEVICES, device(name, **status), subresource="status")


async def test_installing_twice_changes_nothing(client: KubeClient) -> None:
    assert {one.state for one in await crds.diff(client)} == {"missing"}
    assert {one.change for one in await crds.install(client)} == {"created"}
    assert {one.change for one in await crds.install(client)} == {"unchanged"}
    assert {one.state for one in await crds.diff(client)} == {"same"}


async def test_a_changed_crd_is_reported_and_repaired(client: KubeClient) -> None:
    await crds.install(client)
    path = "/spec/versions/0/additionalPrinterColumns/0/name"
    await client.json_patch(CRDS, GPU_DEVICES.full_name, [{"op": "replace", "path": path, "value": "Where"}])
    compared = {one.name: one for one in await crds.diff(client)}
    changed = compared.pop(GPU_DEVICES.full_name)
    assert (changed.state, {one.state for one in compared.values()}) == ("different", {"same"})
    assert [(one.path, one.shipped, one.live) for one in changed.differences] == [
        ("spec.versions[0].additionalPrinterColumns[0].name", "Node", "Where")
    ]
    mended = {one.name: one.change for one in await crds.install(client, force=True)}
    assert (mended.pop(GPU_DEVICES.full_name), set(mended.values())) == ("configured", {"unchanged"})
    assert {one.state for one in await crds.diff(client)} == {"same"}


async def test_the_shipped_rule_is_a_rule(equipped: KubeClient) -> None:
    kept = await equipped.apply(NODE_FEATURE_RULES, crds.node_feature_rule())
    assert kept["spec"] == crds.node_feature_rule()["spec"]


async def test_a_whole_status_is_kept(equipped: KubeClient) -> None:
    status = {
        "nodeName": "w1", "inventoryID": "w1-0000:17:00.0", "managed": True, "state": "Assigned", "autoAttach": True,
        "poolRef": {"name": "a100-full"},
        "hardware": {
            "uuid": "GPU-3d45", "product": "NVIDIA A100-PCIE-40GB", "memoryMiB": 40960,
            "pci": {"vendor": "10de", "device": "2203", "class": "0300", "address": "0000:17:00.0"},
            "computeCapability": {"major": 8, "minor": 0}, "precision": {"supported": ["fp32", "fp16", "bf16"]},
            "mig": {
                "capable": True, "strategy": "mixed", "profilesSupported": ["1g.5gb", "1g.5gb+me"],
                "types": [{"name": "1g.5gb", "count": 2}],
            },
        },
        "conditions": [{"type": "Configured", "status": "True"}],
    }  # fmt: skip
    assert (await put(equipped, "d0", **status))["status"] == status


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"state": "InUse"}, "status.state"),
        ({"hardware": {"pci": {"vendor": "0x10DE"}}}, "status.hardware.pci.vendor"),
        ({"hardware": {"memoryMiB": -1}}, "status.hardware.memoryMiB"),
    ],
)
async def test_a_status_that_makes_no_sense_is_refused(
    equipped: KubeClient, status: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidError) as raised:
        await put(equipped, "d0", **status)
    assert [cause.field for cause in raised.value.causes] == [field]


async def test_a_node_state_keeps_its_node(equipped: KubeClient) -> None:
    await equipped.apply(GPU_NODE_STATES, {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}})
    with pytest.raises(InvalidError, match="immutable"):
        await equipped.merge_patch(GPU_NODE_STATES, "w1", {"spec": {"nodeName": "w2"}})
    with pytest.raises(InvalidError):
        await equipped.apply(GPU_NODE_STATES, {"metadata": {"name": "w2"}, "spec": {}})


async def test_devices_are_selected_by_node_state_and_pool(equipped: KubeClient) -> None:
    await put(equipped, "d0", nodeName="w1", state="Ready")
    await put(equipped, "d1", nodeName="w1", state="Assigned", poolRef={"name": "a"})
    await put(equipped, "d2", nodeName="w2", state="Ready")

    async def found(fields: str) -> list[str]:
        return [one["metadata"]["name"] for one in (await equipped.list(GPU_DEVICES, Selection(fields=fields))).items]

    assert await found("status.nodeName=w1") == ["d0", "d1"]
    assert await found("status.nodeName=w1,status.state=Ready") == ["d0"]
    assert await found("status.poolRef.name=a") == ["d1"]


async def test_a_field_of_somebody_else_is_a_conflict(equipped: KubeClient) -> None:
    await equipped.apply(GPU_DEVICES, {"metadata": {"name": "d0"}, "spec": {}})
    hand = device("d0", state="Faulted")
    await equipped.apply(GPU_DEVICES, hand, subresource="status", field_manager="by-hand")
    with pytest.raises(ConflictError) as raised:
        await equipped.apply(GPU_DEVICES, device("d0", state="Ready"), subresource="status")
    (cause,) = raised.value.causes
    assert (cause.field, "by-hand" in cause.message) == (".status.state", True)
    taken = await equipped.apply(GPU_DEVICES, device("d0", state="Ready"), subresource="status", force=True)
    assert taken["status"]["state"] == "Ready"


async def test_life_of_an_object(client: KubeClient) -> None:
    made = await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}})
    with pytest.raises(AlreadyExistsError):
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}})
    await client.merge_patch(NODES, "w1", {"metadata": {"labels": {"a": "1"}}})
    with pytest.raises(ConflictError):
        await client.replace(NODES, made)
    with pytest.raises(ConflictError):
        await client.delete(NODES, "w1", uid="another")
    await client.delete(NODES, "w1", uid=made["metadata"]["uid"])
    with pytest.raises(NotFoundError):
        await client.get(NODES, "w1")


async def test_pages_of_a_real_list(client: KubeClient) -> None:
    for index in range(7):
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"w{index}"}})
    listing = await client.list(NODES, page=3)
    assert [one["metadata"]["name"] for one in listing.items] == [f"w{index}" for index in range(7)]


async def test_tls_is_checked_against_the_kubeconfigs_authority(new_kube: NewKube, tmp_path: Path) -> None:
    server = await new_kube(secure=True)
    others = certificates(tmp_path / "others", HOST, system_clock())
    bad = tmp_path / "bad"
    write_kubeconfig(bad, kubeconfig(server.url, others.ca.read_bytes(), server.token))
    async with open_client(server.kubeconfig) as client:
        assert (await client.get(NAMESPACES, "default"))["kind"] == "Namespace"
    async with open_client(bad) as client:
        with pytest.raises(UnavailableError, match="certificate"):
            await client.get(NAMESPACES, "default")


async def test_nodes_come_change_and_go(client: KubeClient) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}})
    seen: list[str] = []
    reflector = Reflector(client, NODES, lambda obj: str(obj["metadata"]["name"]))
    async with asyncio.timeout(DEADLINE_S), aclosing(reflector.run()) as run:
        async for one in run:
            match one:
                case Listed(objects):
                    seen.append(f"={','.join(objects)}")
                    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w2"}})
                    await client.merge_patch(NODES, "w1", {"metadata": {"labels": {"a": "1"}}})
                    await client.delete(NODES, "w2")
                case ChangeBatch(changes):
                    seen += [f"{change.type}:{change.object}" for change in changes]
                case Interrupted(error):
                    raise error
            if seen[-1] == "DELETED:w2":
                break
    assert seen == ["=w1", "ADDED:w2", "MODIFIED:w1", "DELETED:w2"]


async def test_a_server_that_goes_and_comes_back_is_listed_anew(kube: KubeServer) -> None:
    seen: list[str] = []
    ready, down = asyncio.Event(), asyncio.Event()
    follower = asyncio.create_task(_follow_through(kube.kubeconfig, seen, ready, down))
    await asyncio.wait_for(ready.wait(), DEADLINE_S)
    await kube.stop()
    await asyncio.wait_for(down.wait(), DEADLINE_S)
    await kube.start()
    await _create_later(kube)
    await asyncio.wait_for(follower, DEADLINE_S)
    assert seen[0] == "="
    assert seen[-1] in {"=later", "ADDED:later"}


async def test_a_stream_that_breaks_off_goes_on_where_it_was(kube: KubeServer, proxy: KubeProxy) -> None:
    seen: list[str] = []
    ready, down = asyncio.Event(), asyncio.Event()
    follower = asyncio.create_task(_follow_through(proxy.kubeconfig, seen, ready, down))
    await asyncio.wait_for(ready.wait(), DEADLINE_S)
    await proxy.away()
    await asyncio.wait_for(down.wait(), DEADLINE_S)
    await _create_later(kube)
    await proxy.back()
    await asyncio.wait_for(follower, DEADLINE_S)
    assert seen == ["=", "ADDED:later"]


async def test_who_waited_too_long_lists_anew(kube: KubeServer, proxy: KubeProxy) -> None:
    seen: list[str] = []
    ready, down = asyncio.Event(), asyncio.Event()
    follower = asyncio.create_task(_follow_through(proxy.kubeconfig, seen, ready, down))
    await asyncio.wait_for(ready.wait(), DEADLINE_S)
    await proxy.away()
    await asyncio.wait_for(down.wait(), DEADLINE_S)
    await _create_later(kube)
    await kube.forget_history()
    await proxy.back()
    await asyncio.wait_for(follower, DEADLINE_S)
    assert seen == ["=", "=later"]


async def _create_later(kube: KubeServer) -> None:
    async with open_client(kube.kubeconfig) as client:
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "later"}})


async def _follow_through(kubeconfig: Path, seen: list[str], ready: asyncio.Event, down: asyncio.Event) -> None:
    async with open_client(kubeconfig) as client:
        reflector = Reflector(client, NODES, lambda obj: str(obj["metadata"]["name"]))
        async with aclosing(reflector.run()) as run:
            async for one in run:
                match one:
                    case Listed(objects):
                        seen.append(f"={','.join(objects)}")
                        ready.set()
                    case ChangeBatch(changes):
                        seen += [f"{change.type}:{change.object}" for change in changes]
                    case Interrupted():
                        down.set()
                if seen and "later" in seen[-1]:
                    return


async def test_node_features_are_kept_whole(equipped: KubeClient) -> None:
    spec = {
        "labels": {"a": "b"},
        "features": {
            "flags": {"kernel.loadedmodule": {"elements": {"nvidia": {}}}},
            "attributes": {"kernel.version": {"elements": {"major": "6"}}},
            "instances": {"pci.device": {"elements": [{"attributes": {"vendor": "10de", "class": "0302"}}]}},
        },
    }
    metadata = {"name": "w1", "namespace": "default", "labels": {"nfd.node.kubernetes.io/node-name": "w1"}}
    kept = await equipped.apply(NODE_FEATURES, {"metadata": metadata, "spec": spec})
    assert kept["spec"] == spec
