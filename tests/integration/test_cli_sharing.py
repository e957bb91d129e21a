"""Shared GPUs and who holds what of them, on the command line."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from gpuledger.cli.times import format_time
from support import servers
from support.cli import Cli, next_line, watching
from support.events import hour
from support.ledgers import new_ledger
from support.projections import publish
from support.sharing import gone, gpu, observed, of_gpus, reserved, share, shared, story

HALF = of_gpus(share(0))
RDMA = gpu(0).model_copy(update={"type": "rdma", "id": "0000:09:00.0", "resources": {"rdma": 100}})
STORY = story(
    ("n1", 0, shared(gpu(0), gpu(1), RDMA)),
    ("n2", 0, shared(gpu(0, id="GPU-9"), model="A100")),
    ("ml/a", 1, reserved("a")),
    ("ml/a", 2, observed("a", node="n1", allocation=HALF)),
    ("dev/b", 3, observed("b", node="n1", allocation=of_gpus(share(0, 25)))),
    ("dev/c", 3, observed("c", node="n2", allocation=HALF)),
    ("dev/c", 5, gone("c")),
    ("dev/d", 6, observed("d", requests={"gpu": 200})),
    ("dev/e", 6, reserved("e", share(1, 100))),
)


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with shared GPUs in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, STORY)


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ((), {"GPU-0": 75, "GPU-1": 100, "GPU-9": 0}),
        (("--node", "n1"), {"GPU-0": 75, "GPU-1": 100}),
        (("GPU-9",), {"GPU-9": 0}),
        (("gpu/GPU-9",), {"GPU-9": 0}),
        (("--at", format_time(hour(4))), {"GPU-0": 75, "GPU-1": 0, "GPU-9": 50}),
        (("--at", format_time(hour(2.5))), {"GPU-0": 50, "GPU-1": 0, "GPU-9": 0}),
        (("--as-recorded", "1/5"), {"GPU-0": 75, "GPU-1": 0, "GPU-9": 0}),
        (("--as-recorded", "1/6", "--node", "n2"), {"GPU-9": 50}),
        (("--as-recorded", "1/1"), {"GPU-0": 0, "GPU-1": 0}),
    ],
)
def test_cards_with_what_is_used_of_them(cli: Cli, options: tuple[str, ...], used: dict[str, int]) -> None:
    rows = cli("get", "gpus", *options, "-o", "json").json()
    assert {row["id"]: row["core_used"] for row in rows} == used


def test_a_card_is_a_line_that_says_who_has_it(cli: Cli) -> None:
    heading, first, *_ = cli("get", "gpus").out.splitlines()
    assert heading.split() == [
        *("NODE", "MINOR", "UUID", "MODEL", "HEALTH"),
        *("CORE-USED", "CORE", "MEMORY-USED", "MEMORY", "PODS"),
    ]
    expected = ["n1", "0", "GPU-0", "H100", "Healthy", "75%", "100%", "12Gi", "16Gi", "dev/b,", "ml/a"]
    assert first.split() == expected
    assert "RATIO-USED" in cli("get", "gpu", "-o", "wide").out
    assert "core_used: 75" in cli("get", "gpus", "-o", "yaml").out


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ((), ["dev/b", "dev/e", "ml/a"]),
        (("--all",), ["dev/b", "dev/c", "dev/e", "ml/a"]),
        (("-n", "ml"), ["ml/a"]),
        (("--node", "n2", "--all"), ["dev/c"]),
        (("--at", format_time(hour(4))), ["dev/b", "dev/c", "ml/a"]),
        (("--as-recorded", "1/3"), ["ml/a"]),
        (("dev/b",), ["dev/b"]),
    ],
)
def test_what_pods_hold(cli: Cli, options: tuple[str, ...], pods: list[str]) -> None:
    assert [row["pod"] for row in cli("get", "shares", *options, "-o", "json").json()] == pods


@pytest.mark.parametrize(
    ("arguments", "code", "shows"),
    [
        (("get", "gpus", "GPU-none"), 1, "gpu 'GPU-none' was not found"),
        (("get", "gpus", "-n", "ml"), 2, "--namespace does not apply"),
        (("get", "devices", "--node", "n1"), 2, "it is for allocations, incidents, gpus and shares"),
    ],
)
def test_what_does_not_apply_is_an_error(cli: Cli, arguments: tuple[str, ...], code: int, shows: str) -> None:
    result = cli(*arguments)
    assert (result.code, shows in result.err) == (code, True)


async def test_watch_shows_who_comes_and_goes(migrated_url: str) -> None:
    with servers.nats_server() as nats:
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with new_ledger(nats.url) as ledger:
            whole = story(("n1", 0, shared(gpu(0))), ("ml/a", 1, reserved("a")), ("ml/a", 2, gone("a")))
            await publish(ledger, whole[:1])
            async with watching(environ, "get", "gpus", "-w", "-o", "csv") as process:
                await next_line(process)  # The heading.
                assert (await next_line(process)).rstrip().endswith(",0,0,")
                await publish(ledger, whole[1:2])
                assert (await next_line(process)).rstrip().endswith(",50,1,ml/a")
                await publish(ledger, whole[2:])
                assert (await next_line(process)).rstrip().endswith(",0,0,")


def test_reports_and_proof(cli: Cli) -> None:
    (row,) = cli("report", "packing", "--node", "n2", "-o", "json").json()
    assert (row["per"], row["gpus"], row["empty"]) == ("node", 1, 1)
    assert cli("report", "fragmentation", "-o", "json").json()[0]["partly_used"] == 1
    assert cli("report", "oversubscription", "-o", "json").json() == []
    (held,) = cli("report", "shared-allocations", "-n", "ml", "-o", "json").json()
    assert held["pod"] == "ml/a"
    cli("get", "gpus")
    assert cli("verify", "shares").code == 0


def test_the_history_can_be_shortened(cli: Cli) -> None:
    shown = [row["history"] for row in cli("history", "list", "-o", "json").json()]
    assert "shared_allocation" in shown


def test_the_reports_answer_as_of_the_past(cli: Cli) -> None:
    then = cli("sql", "--at", format_time(hour(4)), "SELECT id, holders FROM report.shared_gpus", "-o", "json").json()
    assert {row["id"]: row["holders"] for row in then}["GPU-9"] == "dev/c"


@pytest.mark.parametrize(
    ("options", "reason", "shows"),
    [
        (("ml/a",), "HasDevices", "it has gpu 0 (gpu-core 50, gpu-memory 8Gi, gpu-memory-ratio 50) on node n1"),
        (("ml/a", "--at", format_time(hour(1.5))), "DevicesReserved", "are reserved for it since"),
        (("dev/c",), "PodGone", "it has ended, or is gone"),
        (("dev/c", "--at", format_time(hour(4))), "HasDevices", "on node n2"),
        (("dev/d",), "NoNodeFits", "1 node (n2) with fewer gpu devices than it asks for"),
        (("dev/d", "--node", "n1"), "NoNodeFits", "at most gpu-core 25 on n1"),
        (("e", "-n", "dev"), "DevicesReserved", "gpu 1 (gpu-core 100, gpu-memory 16Gi, gpu-memory-ratio 100)"),
    ],
)
def test_why_a_pod_has_its_devices_or_has_none(cli: Cli, options: tuple[str, ...], reason: str, shows: str) -> None:
    found = cli("why", "pod", *options, "--no-kube", "-o", "json").json()
    assert found["shares"]["reason"] == reason
    assert shows in found["answer"]
    assert shows in cli("why", "pod", *options, "--no-kube").out.replace("\n", " ")


def test_a_pod_that_was_not_there_yet(cli: Cli) -> None:
    result = cli("why", "pod", "dev/d", "--no-kube", "--at", format_time(hour(1)))
    assert (result.code, "was not found" in result.err) == (1, True)
