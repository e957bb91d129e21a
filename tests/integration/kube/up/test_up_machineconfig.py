"""Machine configurations in the laptop's fleet: rolled out, paused, rolled back, refused, failing, interrupted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Final

import pytest

from gpuledger.api.kinds import MACHINE_CONFIG_GROUP, MACHINE_CONFIG_POOLS, MACHINE_CONFIGS
from gpuledger.api.machine_config import ANNOTATION_LAST_ERROR, DESIRED_ANNOTATIONS
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.edge.kube.errors import InvalidError
from support.config_fleet import FILE, ConfigFleet, annotations, condition, has_done, message_of
from support.servers import short_directory
from support.up import Up, gpuledger, running_up
from support.waiting import eventually

pytestmark = [
    pytest.mark.embedded_only("`gpuledger up` brings its own API server"),
    pytest.mark.long,
    pytest.mark.timeout(600),
]

FLEET: Final = ("--fleet", "nodes=5,gpus=2,sharing=2", "--speed", "600", "--no-rules")
"""The last two nodes give their cards to sharing, so that no pod of the fleet comes to them."""

NODES: Final = 5
JOB: Final[Object] = {"name": "job.service", "state": "started"}
JOB_FILE: Final = "/etc/systemd/system/job.service"


@pytest.fixture
async def fleet(up: Up, client: KubeClient) -> AsyncIterator[ConfigFleet]:
    """The fleet, without a pool at first and without any afterwards."""
    fleet = ConfigFleet(up, client)
    await fleet.ready(NODES)
    yield fleet
    for kind in (MACHINE_CONFIG_POOLS, MACHINE_CONFIGS):
        for one in (await client.list(kind)).items:
            await client.delete(kind, one["metadata"]["name"])
    await eventually(lambda: are_given_back(fleet))


async def takes_pods(fleet: ConfigFleet) -> bool:
    """Whether no node of the fleet is cordoned: what was released may be cordoned for another moment."""
    return not any(is_set_aside(node) for node in await fleet.nodes())


async def are_given_back(fleet: ConfigFleet) -> bool:
    return not any(is_set_aside(node) or desired(node) for node in await fleet.nodes())


def is_set_aside(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable"))


def desired(node: Object) -> dict[str, str]:
    return {key: value for key, value in annotations(node).items() if key in DESIRED_ANNOTATIONS}


def counts(pool: Object) -> tuple[int, ...]:
    """Machines, ready ones, updated ones, and those that are degraded or cordoned."""
    status = pool["status"]
    kinds = ("machineCount", "readyMachineCount", "updatedMachineCount", "degradedMachineCount", "cordonedMachineCount")
    return tuple(status[kind] for kind in kinds)


async def command(up: Up, *words: str) -> str:
    """What a command shows, that succeeds."""
    done = await asyncio.to_thread(gpuledger, up.data_dir, *words)
    assert done.returncode == 0, done
    return (done.stdout + done.stderr).decode()


async def test_a_rollout_takes_one_node_at_a_time_and_drains_and_reboots_it(fleet: ConfigFleet) -> None:
    nodes = (await fleet.ready(NODES))[:3]
    await fleet.put_config("train", "one\n")
    await fleet.put_pool("train", nodes, reboot={"strategy": "IfRequired", "minIntervalSeconds": 0})
    first = await fleet.rolled_out("train", nodes, "one\n")
    boots = {node: boot_of(fleet, node) for node in nodes}
    await fleet.put_config("train", "two\n", reboot=True)
    second = await fleet.rolled_out("train", nodes, "two\n")
    assert counts(second) == (3, 3, 3, 0, 0)
    assert first["status"]["targetRevision"] != second["status"]["targetRevision"]
    assert second["status"]["currentRevision"] == second["status"]["lastSuccessfulRevision"]
    assert await fleet.most_in_flight("train") == 1
    phases = await fleet.phases("train")
    for node in nodes:
        assert [phase for phase, _ in groupby(phase for one, phase in phases if one == node)][-3:] == [
            "Draining", "Applying", "Idle",
        ]  # fmt: skip
        assert boot_of(fleet, node) != boots[node]
    target = second["status"]["targetRevision"]
    assert all(has_done(node, target) for node in (await fleet.nodes())[:3])
    await eventually(lambda: takes_pods(fleet))


def boot_of(fleet: ConfigFleet, node: str) -> str:
    return (fleet.hosts / node / "proc/sys/kernel/random/boot_id").read_text()


async def test_a_pause_strands_nobody_and_a_rollback_returns_to_the_past(up: Up, fleet: ConfigFleet) -> None:
    nodes = (await fleet.ready(NODES))[:3]
    await fleet.put_config("train", "one\n")
    await fleet.put_pool("train", nodes, reboot={"strategy": "IfRequired", "minIntervalSeconds": 0})
    first = await fleet.rolled_out("train", nodes, "one\n")
    await fleet.put_config("train", "two\n", reboot=True)
    await fleet.pool_becomes("train", lambda pool: pool["status"]["cordonedMachineCount"])
    await command(up, "config", "pause", "train")
    paused = await fleet.pool_becomes("train", lambda pool: pool["status"]["cordonedMachineCount"] == 0)
    assert paused["status"]["updatedMachineCount"] < 3
    await eventually(lambda: takes_pods(fleet))
    await command(up, "config", "resume", "train")
    await fleet.rolled_out("train", nodes, "two\n")
    await command(up, "config", "rollback", "train", "--to", first["status"]["targetRevision"])
    back = await fleet.rolled_out("train", nodes, "one\n")
    assert back["status"]["targetRevision"] == first["status"]["targetRevision"]
    await command(up, "config", "unpin", "train")
    await fleet.rolled_out("train", nodes, "two\n")
    assert await fleet.most_in_flight("train") == 1


async def test_a_refused_path_is_refused_at_once_and_what_cannot_be_merged_degrades_the_pool(
    fleet: ConfigFleet,
) -> None:
    node = (await fleet.ready(NODES))[3]
    await fleet.put_config("serve", "one\n")
    await fleet.put_pool("serve", [node])
    await fleet.rolled_out("serve", [node], "one\n")
    with pytest.raises(InvalidError, match=r"spec\.files\[0\]\.path: .* the path is refused"):
        await fleet.put_config("serve", "x\n", path="/etc/kubernetes/kubelet.conf")
    below = {"path": f"/{FILE}/below", "content": "two\n"}
    await fleet.put_files("serve", [{"path": f"/{FILE}", "content": "two\n"}, below])
    pool = await fleet.pool_becomes("serve", lambda pool: condition(pool, "Degraded") == "True")
    message = message_of(pool, "Degraded")
    assert "serve-config" in message
    assert f"/{FILE}" in message
    assert (fleet.hosts / node / FILE).read_text() == "one\n", "the last configuration stays"
    await fleet.put_config("serve", "two\n")
    mended = await fleet.rolled_out("serve", [node], "two\n")
    assert condition(mended, "Degraded") == "False"


async def test_a_unit_that_fails_degrades_the_pool_until_it_is_mended(fleet: ConfigFleet) -> None:
    node = (await fleet.ready(NODES))[3]
    await fleet.put_files("serve", job("/bin/false"), units=[JOB])
    await fleet.put_pool("serve", [node])
    pool = await fleet.pool_becomes("serve", lambda pool: condition(pool, "Degraded") == "True")
    assert counts(pool)[3] == 1
    assert node in message_of(pool, "Degraded")

    async def shows_the_error() -> bool:  # The agent's fact and its annotation are there one after the other.
        (found,) = [one for one in await fleet.nodes() if one["metadata"]["name"] == node]
        return "job.service" in annotations(found).get(ANNOTATION_LAST_ERROR, "")

    await eventually(shows_the_error)
    await fleet.put_files("serve", job("/usr/bin/sleep 60"), units=[JOB])
    mended = await fleet.pool_becomes("serve", lambda pool: condition(pool, "Ready") == "True")
    assert (counts(mended), condition(mended, "Degraded")) == ((1, 1, 1, 0, 0), "False")


def job(program: str) -> list[Object]:
    return [{"path": JOB_FILE, "content": f"[Service]\nExecStart={program}\n"}]


async def test_a_node_that_joins_is_configured_without_a_drain(fleet: ConfigFleet) -> None:
    *_, first, new = await fleet.ready(NODES)
    await fleet.put_config("serve", "one\n")
    await fleet.put_pool("serve", [first])
    await fleet.rolled_out("serve", [first], "one\n")
    before = len(await fleet.phases("serve"))
    await fleet.join("serve", new)
    await fleet.rolled_out("serve", [first, new], "one\n")
    after = [phase for node, phase in (await fleet.phases("serve"))[before:] if node == new]
    assert "Applying" in after
    assert "Draining" not in after


@asynccontextmanager
async def connected(up: Up) -> AsyncIterator[ConfigFleet]:
    """The fleet of an `up` of its own."""
    async with open_client(up.data_dir / "kubeconfig") as client:
        yield ConfigFleet(up, client)


async def test_a_rollout_goes_on_after_a_restart() -> None:
    with short_directory() as directory:
        with running_up(directory, *FLEET) as up:
            async with connected(up) as fleet:
                nodes = (await fleet.ready(NODES))[:3]
                assert not fleet.hosts.exists(), "without a pool, no node has a host"
                assert not [
                    one for node in await fleet.nodes() for one in annotations(node) if MACHINE_CONFIG_GROUP in one
                ]
                await fleet.put_config("train", "one\n")
                await fleet.put_pool("train", nodes, reboot={"strategy": "IfRequired", "minIntervalSeconds": 0})
                await fleet.rolled_out("train", nodes, "one\n")
                await fleet.put_config("train", "two\n", reboot=True)
                await fleet.pool_becomes("train", lambda pool: pool["status"]["updatedMachineCount"] == 1)
                await fleet.pool_becomes("train", lambda pool: pool["status"]["cordonedMachineCount"])
        with running_up(directory, *FLEET) as up:
            async with connected(up) as fleet:
                done = await fleet.rolled_out("train", nodes, "two\n")
                assert counts(done) == (3, 3, 3, 0, 0)
                assert await fleet.most_in_flight("train") == 1
                await eventually(lambda: takes_pods(fleet))
            verified = await asyncio.to_thread(gpuledger, directory, "verify", "--kube")
            assert verified.returncode == 0, verified
