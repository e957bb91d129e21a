"""Machine configuration on the command line: lists, pages, previews, estimates, reports, from a ledger of its own."""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.runtime.clock import system_clock
from support import servers
from support.cli import Cli, next_line
from support.config_ledger import POOL, by, deciding, recorded
from support.enforcing import enforce
from support.ledgers import DEADLINE_S, new_ledger
from support.up import COMMAND

SYSCTL = """
apiVersion: mco.in-cloud.io/v1alpha1
kind: MachineConfig
metadata: {name: sysctl, labels: {role: gpu}}
spec:
  priority: 60
  files: [{path: /etc/sysctl.d/99.conf, content: "vm.swappiness=1\\n"}]
  systemd: {units: [{name: tuned.service, enabled: true, state: started}]}
"""


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers, with what the service decided about the pool."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_decide(nats.url, database_url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _decide(nats_url: str, database_url: str) -> None:
    async with new_ledger(nats_url) as ledger, deciding(ledger, database_url) as record:
        await record(recorded())


def rows(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found = cli(*arguments, "-o", "json")
    assert found.code == 0, found.err
    result: list[dict[str, Any]] = found.json()
    return result


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "sysctl.yaml"
    path.write_text(SYSCTL)
    return str(path)


def target(cli: Cli) -> str:
    (pool,) = rows(cli, "get", "mcp")
    return str(pool["target"])


def test_lists(cli: Cli) -> None:
    (pool,) = rows(cli, "get", "machineconfigpools")
    assert (pool["machines"], pool["updated"], pool["unavailable"], pool["draining"]) == (3, "False", 1, 1)
    (config,) = rows(cli, "get", "mc")
    assert (config["files"], config["pools"]) == (["/etc/motd"], [POOL])
    (rendered,) = rows(cli, "get", "renderedmachineconfigs")
    assert (rendered["name"], rendered["role"], rendered["nodes"]) == (pool["target"], "target", 0)
    assert cli("get", "mcp", "-o", "name").out == "machineconfigpool/gpu\n"
    heading = cli("get", "mcp").out.splitlines()[0].split()
    assert heading[:6] == ["NAME", "CONFIG", "UPDATED", "UPDATING", "DEGRADED", "MACHINECOUNT"]
    assert cli("get", "rmc", "nothing").code == 1


def test_lists_of_the_past(cli: Cli) -> None:
    assert rows(cli, "get", "mcp", "--as-recorded", "1/8") == []
    assert rows(cli, "get", "mc", "--as-recorded", "1/8")[0]["name"] == "base"
    result = cli("get", "mcp", "--at", "-1h")
    assert (result.code, "Use --as-recorded" in result.err) == (2, True)


def test_the_page_of_a_pool(cli: Cli) -> None:
    page = cli("describe", "machineconfigpool", POOL, "--no-kube").out
    assert "Updating" in page
    assert "Draining" in page
    assert target(cli) in page
    assert cli("describe", "mcp", "nothing", "--no-kube").code == 1


def test_history_and_status(cli: Cli) -> None:
    (one,) = rows(cli, "config", "history", POOL)
    assert (one["name"], one["sources"]) == (target(cli), ["base"])
    status = cli("config", "status", f"mcp/{POOL}", "-o", "json").json()
    assert (status["nodes"], status["updated"], status["done"]) == (3, 0, False)
    assert ([row["node"] for row in status["inFlight"]], status["waiting"]) == (["n1"], ["n2", "n3"])
    assert "0/3 updated, 1 in flight, 2 waiting" in cli("config", "status", POOL).out
    assert cli("config", "status", POOL, "-w", "-o", "json").code == 2


def test_what_a_pool_would_get_with_another_manifest(cli: Cli, manifest: str) -> None:
    now = yaml.safe_load(cli("config", "render", POOL).out)
    assert now["metadata"]["name"] == target(cli)
    would = yaml.safe_load(cli("config", "render", POOL, "-f", manifest).out)
    assert [one["path"] for one in would["spec"]["config"]["files"]] == ["/etc/motd", "/etc/sysctl.d/99.conf"]
    assert would["metadata"]["name"] != now["metadata"]["name"]


def test_a_difference_is_shown_before_anything_does(cli: Cli, manifest: str) -> None:
    result = cli("config", "diff", POOL, "-f", manifest)
    assert result.code == 1
    for line in (
        "file /etc/sysctl.d/99.conf added (state: present, mode: 0644, owner: root:root)",
        "--- /dev/null",
        "+vm.swappiness=1",
        "unit tuned.service added (enabled: true, state: started)",
    ):
        assert line in result.out.splitlines()
    document = cli("config", "diff", POOL, "-f", manifest, "-o", "json").json()
    assert (document["was"], document["atOnce"], document["rounds"]) == (target(cli), 1, 2)
    assert [(one["node"], one["round"], one["drain"]) for one in document["nodes"]] == [
        ("n2", 1, False),
        ("n3", 2, False),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Pod\napiVersion: v1\n", "has Pod of v1"),
        (SYSCTL.replace("/etc/sysctl.d/99.conf", "/etc/kubernetes/x"), "is refused"),
        (SYSCTL + "---" + SYSCTL, "is there twice"),
        ("a: [", "is no YAML"),
        ("- 1", "no object"),
    ],
)
def test_manifests_that_are_refused(cli: Cli, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    result = cli("config", "diff", POOL, "-f", str(path))
    assert (result.code, says in result.err) == (2, True), result.err


def test_what_if(cli: Cli, manifest: str) -> None:
    found = cli("what-if", "rollout", POOL, "-f", manifest, "--max-unavailable", "100%", "-o", "json").json()
    assert (found["nodes"], found["atOnce"], len(found["orders"])) == (2, 3, 2)
    assert "measured none" in found["assumptions"][0]
    page = cli("what-if", "rollout", POOL).out
    assert "by zone" in page
    assert "idle first" in page
    assert cli("what-if", "rollout", POOL, "--max-unavailable", "0").code == 2


def test_why_a_node_waits(cli: Cli) -> None:
    drains = cli("why", "node", "n1", "-o", "json").json()
    assert drains["rollout"]["phase"] == "Draining"
    assert "it drains for pool gpu" in drains["answer"]
    waits = cli("why", "node", "n3").out
    assert "waits for its turn, 2 of 2 in the order of pool gpu: 1 of at most 1 nodes are unavailable, n1" in waits


def test_timelines(cli: Cli) -> None:
    pool = cli("timeline", "mcp", POOL, "--no-kube").out
    assert "is rendered from base: 1 files, 0 units" in pool
    assert "is set aside and drained for pool gpu" in pool
    assert "is set aside and drained" in cli("timeline", "node", "n1", "--no-kube").out


def test_reports(cli: Cli) -> None:
    (rollout,) = rows(cli, "report", "config-rollouts", "--pool", POOL)
    assert (rollout["revision"], rollout["nodes"], rollout["ended_at"]) == (target(cli), 3, None)
    (update,) = rows(cli, "report", "config-updates", "--node", "n1")
    assert (update["phase"], update["outcome"]) == ("Draining", None)
    assert [row["node"] for row in rows(cli, "report", "config-drift")] == ["n1", "n2", "n3"]
    assert cli("verify", "updates").code == 0


async def following(process: Process, text: str) -> str:
    """The next line that has a text."""
    while text not in (line := await next_line(process)):
        assert line or not process.stdout or not process.stdout.at_eof(), f"it has ended without {text!r}"
    return line


async def test_a_rollout_is_followed_until_it_is_done(migrated_url: str) -> None:
    """Nodes that run nothing are not drained; their agents report one after the other."""
    facts = [one for one in recorded() if one.subject not in ("n1", "n1/ml/trainer/main")]
    with servers.nats_server() as nats:
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with new_ledger(nats.url) as ledger, deciding(ledger, migrated_url) as record:
            await enforce(ledger, migrated_url)  # What agents report counts from there on.
            await record(facts)
            process = await asyncio.create_subprocess_exec(
                *COMMAND, "config", "status", POOL, "-w", stdout=PIPE, stderr=PIPE, env=environ
            )
            desired = (await following(process, "Target:")).split()[1]
            await following(process, "1 node waits: 1 of at most 1 are unavailable.")
            for node in ("n2", "n3"):
                done = NodeConfigReported(state="done", revision=desired, current_revision=desired)
                await record(by(f"/nodes/{node}/agent", system_clock(), (node, done)))
                await following(process, f"{node}: is done, has {desired}")
            await following(process, "2/2 updated")
            async with asyncio.timeout(DEADLINE_S):
                assert await process.wait() == 0
