"""Commands that read Kubernetes beside the ledger, on real servers and an embedded API server."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES, NODE_FEATURE_RULES, NODE_FEATURES, NODES
from gpuledger.api.labels import device_label
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.crds import foreign, install, node_feature_rule, shipped
from gpuledger.events.device import DeviceFailed, DeviceInserted
from support import servers
from support.cli import Cli, Result
from support.events import RecordedFact
from support.kube import KubeApi, kube_api
from support.kube_fleet import (
    FACTS,
    IMPORT,
    INVENTORY,
    NAME,
    SERIAL,
    SLOT,
    UUID,
    create,
    create_device,
    create_event,
    label_like_nfd,
    publish,
)

DEADLINE_S = 60.0
COMMAND = (sys.executable, "-c", "from gpuledger.cli.main import main; main()")


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with a small ledger and a migrated database, and the environment that names them."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(publish(nats.url, FACTS))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


class Command:
    """The command line beside the API server, which lives in the test's own loop."""

    def __init__(self, cli: Cli, api: KubeApi, environ: dict[str, str]) -> None:
        self.api = api
        self._cli = cli
        self._environ = environ

    async def __call__(self, *arguments: str) -> Result:
        """Run one command to its end."""
        return await asyncio.to_thread(self._cli, *arguments)

    @asynccontextmanager
    async def watching(self, *arguments: str) -> AsyncIterator[Process]:
        """One command in a process of its own, interrupted at the end as by Ctrl-C."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdout=PIPE, stderr=PIPE, env=self._environ
        )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(DEADLINE_S):
                assert await process.wait() == 130, await last_message(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def line(process: Process) -> str:
    """The next line of stdout."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        text = await process.stdout.readline()
    assert text, await last_message(process)
    return text.decode().rstrip("\n")


async def last_message(process: Process) -> str:
    """Everything on stderr."""
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[KubeApi]:
    """A server with all kinds and nothing of them."""
    async with kube_api(tmp_path) as running:
        async with open_client(running.kubeconfig) as client:
            await install(client, (*shipped(), *foreign()))
        yield running


@pytest.fixture
async def client(api: KubeApi) -> AsyncIterator[KubeClient]:
    """A client of it."""
    async with open_client(api.kubeconfig) as opened:
        yield opened


@pytest.fixture
def gpuledger(
    api: KubeApi, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command line on those servers."""
    environ = {**urls, "KUBECONFIG": str(api.kubeconfig), "NO_COLOR": "1", "HOME": str(api.kubeconfig.parent)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Command(Cli(capsys), api, {"PATH": "", "PYTHONPATH": ":".join(sys.path), **environ})


async def test_get_shows_the_servers_own_columns(gpuledger: Command, client: KubeClient) -> None:
    await create_device(client, "w1-0", hardware={"product": "NVIDIA H200", "memoryMiB": 144384})
    await create_device(client, "w2-0", "w2", state="Faulted")
    shown = await gpuledger("get", "gpudevices")
    heading, first, second = shown.out.splitlines()
    assert heading.split() == ["NAME", "NODE", "PRODUCT", "STATE", "MANAGED", "POOL", "AGE"]
    assert first.split()[:5] == ["w1-0", "w1", "NVIDIA", "H200", "Ready"]
    assert second.split()[:4] == ["w2-0", "w2", "<none>", "Faulted"]
    wide = await gpuledger("get", "gpudev", "w1-0", "-o", "wide", "--no-headers")
    assert "144384" in wide.out
    assert (await gpuledger("get", "gpudevices", "-o", "csv")).out.startswith("Name,Node,Product,State,Managed,")


async def test_get_selects_and_names(gpuledger: Command, client: KubeClient) -> None:
    await create_device(client, "w1-0")
    await create_device(client, "w2-0", "w2", state="Faulted")
    by_label = await gpuledger("get", "gpudevices", "-l", "rack=w2", "-o", "name")
    assert by_label.out == "gpudevice.gpu.deckhouse.io/w2-0\n"
    by_field = await gpuledger("get", "gpudev", "--field-selector", "status.state=Ready", "-o", "name")
    assert by_field.out == "gpudevice.gpu.deckhouse.io/w1-0\n"
    (named,) = (await gpuledger("get", "gpudevices", by_field.out.strip(), "-o", "json")).json()
    assert (named["kind"], named["metadata"]["name"], named["status"]["nodeName"]) == ("GPUDevice", "w1-0", "w1")
    assert "managedFields" not in named["metadata"]
    missing = await gpuledger("get", "gpudevices", "w1-0", "nope", "-o", "name")
    assert (missing.code, missing.out) == (1, "gpudevice.gpu.deckhouse.io/w1-0\n")
    assert "'nope' was not found" in missing.err
    bad = await gpuledger("get", "gpudevices", "--field-selector", "status.nonsense=1")
    assert (bad.code, bad.out) == (1, "")


async def test_get_takes_namespaces(gpuledger: Command, client: KubeClient) -> None:
    for namespace in ("default", "kube-system"):
        await create(client, NODE_FEATURES, {"metadata": {"name": "w1", "namespace": namespace}, "spec": {}})
    everywhere = await gpuledger("get", "nodefeatures", "-A")
    assert [row.split()[:2] for row in everywhere.out.splitlines()] == [
        ["NAMESPACE", "NAME"], ["default", "w1"], ["kube-system", "w1"],
    ]  # fmt: skip
    one = await gpuledger("get", "nf", "-n", "default", "-o", "yaml")
    assert one.out.count("namespace: default") == 1
    assert "kube-system" not in one.out


async def test_nodes_are_those_of_the_ledger_by_default(gpuledger: Command, client: KubeClient) -> None:
    await create(client, NODES, {"metadata": {"name": "only-in-kubernetes"}})
    assert (await gpuledger("get", "nodes", "-o", "name")).out == "node/w1\nnode/w9\n"
    kube = await gpuledger("get", "nodes", "--kube", "-o", "name")
    assert kube.out == "node/only-in-kubernetes\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("gpudevices", "--at", "-2h"), "--at does not apply"),
        (("devices", "-l", "a=b"), "--selector does not apply"),
        (("devices", "-n", "x"), "--namespace does not apply"),
        (("workloads", "--kube"), "Choose from gpudevices"),
        (("devices", "-w", "--at", "-2h"), "the past does not change"),
        (("gpudevices", "-w", "-o", "json"), "Use `-o jsonl`"),
        (("unicorns",), "gpunodestates"),
    ],
)
async def test_what_does_not_go_together_is_refused(gpuledger: Command, arguments: tuple[str, ...], why: str) -> None:
    refused = await gpuledger("get", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert why in refused.err


async def test_an_api_server_that_is_not_there(gpuledger: Command, tmp_path: Path) -> None:
    none = await gpuledger("get", "gpudevices", "--kubeconfig", str(tmp_path / "none"))
    assert (none.code, "Name one with --kubeconfig" in none.err) == (2, True)
    text = gpuledger.api.kubeconfig.read_text().replace(gpuledger.api.url, "http://127.0.0.1:9")
    (tmp_path / "dead").write_text(text)
    dead = await gpuledger("get", "gpudevices", "-w", "--kubeconfig", str(tmp_path / "dead"))
    assert (dead.code, "Check that the server runs" in dead.err) == (4, True)
    shown = await gpuledger("timeline", "device", UUID, "--kubeconfig", str(tmp_path / "dead"))
    assert (shown.code, "Without Kubernetes' Events" in shown.err) == (0, True)
    page = await gpuledger("describe", "device", UUID, "--kubeconfig", str(tmp_path / "dead"))
    assert (page.code, "Kubernetes was not asked: http://127.0.0.1:9" in page.out) == (0, True)


@pytest.mark.parametrize("output", ["table", "jsonl"])
async def test_watch_follows_kubernetes(gpuledger: Command, client: KubeClient, output: str) -> None:
    await create_device(client, "w1-0")
    async with gpuledger.watching("get", "gpudevices", "-w", "-o", output, "--no-headers") as process:
        assert "w1-0" in await line(process)
        await client.merge_patch(GPU_DEVICES, "w1-0", {"status": {"state": "Faulted"}}, subresource="status")
        assert "Faulted" in await line(process)
        await create_device(client, "w1-1", state="Assigned")
        assert "w1-1" in await line(process)
        assert "Assigned" in await line(process)
        await client.delete(GPU_DEVICES, "w1-0")
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            assert b"'w1-0' is gone" in await process.stderr.readline()


async def test_watch_follows_the_ledger(gpuledger: Command, urls: dict[str, str]) -> None:
    async with gpuledger.watching("get", "devices", "other", "new", "-w", "-o", "jsonl") as process:
        assert '"device":"other"' in await line(process)
        failed = RecordedFact("/import/more", "other", 5, DeviceFailed(kind="DBE"))
        await publish(urls["NATS_URL"], [failed])
        assert '"failures":1' in await line(process)
        inserted = RecordedFact("/import/most", "new", 6, DeviceInserted(slot="s9"))
        await publish(urls["NATS_URL"], [inserted])
        assert '"device":"new"' in await line(process)


async def test_a_watched_table_aligns(gpuledger: Command) -> None:
    async with gpuledger.watching("get", "nodes", "w1", "-w") as process:
        heading, row = await line(process), await line(process)
        assert heading.index("PRESENT") == row.index("true")


async def test_timeline_merges_by_time(gpuledger: Command, client: KubeClient) -> None:
    await create_event(client, "GPUDevice", NAME, "GPUDeviceDetected", "2026-01-01T02:00:00Z")
    for name in (UUID, SERIAL, NAME):
        rows = (await gpuledger("timeline", "device", name, "-o", "json")).json()
        assert [(row["event"], row["source"]) for row in rows] == [
            ("detected", INVENTORY),
            ("attached", INVENTORY),
            ("GPUDeviceDetected", "kubernetes/kubelet"),
            ("failed", IMPORT),
        ]
    without = (await gpuledger("timeline", "device", UUID, "--no-kube", "-o", "json")).json()
    assert len(without) == 3
    assert (await gpuledger("timeline", "device", "nobody")).code == 1
    assert (await gpuledger("timeline", "slots", SLOT)).code == 2


async def test_timeline_of_a_node(gpuledger: Command, client: KubeClient) -> None:
    await create_event(client, "Node", "w1", "Rebooted", "2026-01-01T02:30:00Z")
    await create_event(client, "GPUDevice", NAME, "GPUDeviceDetected", "2026-01-01T02:00:00Z")
    rows = (await gpuledger("timeline", "node", "w1", "-o", "json")).json()
    assert [(row["event"], row["about"]) for row in rows] == [
        ("registered", "node/w1"),
        ("attached", f"device/{UUID}"),
        ("GPUDeviceDetected", f"GPUDevice/{NAME}"),
        ("Rebooted", "Node/w1"),
        ("failed", f"device/{UUID}"),
    ]


async def test_a_slot_may_be_declared_to_be_in_a_node(gpuledger: Command) -> None:
    first, *_ = (await gpuledger("timeline", "node", "w9", "-o", "json")).json()
    assert (first["event"], first["about"], first["slot"]) == ("inserted", "device/other", "elsewhere")
    assert "elsewhere  other" in (await gpuledger("describe", "node", "w9")).out
    table = (await gpuledger("get", "nodes", "w9")).out.splitlines()
    assert dict(zip(*map(str.split, table), strict=False))["DECLARED-SLOTS"] == "1"
    assert (await gpuledger("get", "nodes", "w9", "-o", "json")).json()[0]["slots"] == 1


async def test_describe_a_device(gpuledger: Command, client: KubeClient) -> None:
    conditions = [
        {"type": "Faulted", "status": "False", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    hardware = {"product": "NVIDIA H200", "uuid": UUID, "pci": {"address": "0000:17:00.0"}}
    await create_device(client, NAME, state="Assigned", hardware=hardware, conditions=conditions)
    await create_event(client, "GPUDevice", NAME, "GPUDeviceDetected", "2026-01-01T02:00:00Z")
    pages = [await gpuledger("describe", "device", name) for name in (UUID, SERIAL, NAME)]
    assert {page.code for page in pages} == {0}
    assert len({page.out for page in pages}) == 1
    fields = fields_of(pages[0].out)
    assert fields["Name"] == UUID
    assert (fields["Serial"], fields["State"], fields["Node"], fields["Slot"]) == (SERIAL, "InService", "w1", SLOT)
    for text in ("Assigned", "Status from:  Kubernetes", "XID 79", "job-1", "GPUDeviceDetected it is", "rack=w1"):
        assert text in pages[0].out, text
    alone = await gpuledger("describe", "device", NAME, "--no-kube")
    assert (alone.code, "Kubernetes was not asked: --no-kube" in alone.out) == (0, True)
    assert (await gpuledger("describe", "device", "nobody")).code == 1
    assert (await gpuledger("describe", "workload", "job-1")).code == 2


async def test_describe_a_node(gpuledger: Command, client: KubeClient) -> None:
    await create(client, NODES, {"metadata": {"name": "w1", "labels": {"gpu.deckhouse.io/present": "true", "a": "b"}}})
    await create(client, GPU_NODE_STATES, {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}})
    conditions = [{"type": "InventoryComplete", "status": "True", "reason": "AllDevicesDescribed"}]
    await client.merge_patch(
        GPU_NODE_STATES, "w1", {"status": {"hw": {"present": True}, "conditions": conditions}}, subresource="status"
    )
    await create_device(client, NAME)
    await create_event(client, "Node", "w1", "Rebooted", "2026-01-01T02:30:00Z")
    page = await gpuledger("describe", "node", "w1")
    assert page.code == 0
    expected = (
        "H200",
        "gpu.deckhouse.io/present:  true",
        "AllDevicesDescribed",
        NAME,
        SLOT,
        UUID,
        "XID 79",
        "job-1",
        "Rebooted it",
    )
    for text in expected:
        assert text in page.out, text
    assert "a:" not in page.out.split("Labels:")[1].split("GPUNodeState:")[0]
    assert (await gpuledger("describe", "node", "nowhere")).code == 1


def fields_of(page: str) -> dict[str, str]:
    """The fields of a page's head."""
    head = page.split("GPUDevice:", maxsplit=1)[0]
    return {name: value.strip() for name, _, value in (text.partition(":") for text in head.splitlines())}


async def test_nfd_coverage(gpuledger: Command, client: KubeClient) -> None:
    await label_like_nfd(client, "w1")
    good = await gpuledger("nfd", "coverage")
    assert (good.code, good.out) == (0, "")
    assert "1 GPU nodes, 1 cards, 1 models" in good.err
    await label_like_nfd(client, "w2", **{device_label(1, "vendor"): "10de", device_label(0, "device"): "2336"})
    bad = await gpuledger("nfd", "coverage", "-o", "json")
    assert bad.code == 1
    assert [(row["node"], row["finding"], row["expected"], row["actual"]) for row in bad.json()] == [
        ("w2", "different", "2335", "2336"), ("w2", "unexpected", None, "10de"),
    ]  # fmt: skip
    assert "1 of 2 GPU nodes" in bad.err
    assert "is not in the cluster" in bad.err
    await create(client, NODE_FEATURE_RULES, node_feature_rule())
    assert "nfd-master" in (await gpuledger("nfd", "coverage")).err


async def test_verify_kube(gpuledger: Command, client: KubeClient) -> None:
    await create_device(client, "nobody-knows-it")
    wrong = await gpuledger("verify", "devices", "--kube", "-o", "json")
    assert wrong.code == 1
    (kube,) = (row for row in wrong.json() if row["projection"] == "kubernetes")
    assert kube["differences"] >= 1
    assert "Kubernetes differ from the ledger" in wrong.err
    assert (await gpuledger("verify", "devices")).code == 0
