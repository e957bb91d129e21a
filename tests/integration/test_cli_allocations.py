"""Holders and errors of GPUs on the command line: now, in the past, as recorded, and as they change."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.device import DeviceErrorsObserved, DeviceInserted
from support import servers
from support.cli import Cli, next_line, watching
from support.events import IMPORT, RecordedFact, hour, numbered
from support.ledgers import new_ledger
from support.projections import publish

DEADLINE_S = 60.0
UUID, RESOURCE = "GPU-1", "gpu.deckhouse.io/training"
CLAIM = AllocatedClaim(claim="one-gpu", driver="gpu.example.com", pool="n2", device="gpu-0")


def has(at: int, subject: str, *devices: str, claims: tuple[AllocatedClaim, ...] = ()) -> RecordedFact:
    """A container has these from now on."""
    node, namespace, pod, container = subject.split("/")
    held = (AllocatedDevices(resource=RESOURCE, devices=devices),) if devices else ()
    data = AllocationObserved(
        node=node, namespace=namespace, pod=pod, container=container, resources=held, claims=claims
    )
    return RecordedFact(f"/nodes/{node}/agent", subject, at, data)


def errors(at: int, kind: str, count: int) -> RecordedFact:
    data = DeviceErrorsObserved(kind=kind, cause="application", count=count, first_at=hour(at))
    return RecordedFact("/nodes/n1/agent", UUID, at, data)


HISTORY = (
    RecordedFact(IMPORT, UUID, 0, DeviceInserted(slot="n1/0", uuid=UUID)),
    has(1, "n1/ml/old/main", UUID),
    has(2, "n2/web/chat/main", claims=(CLAIM,)),
    errors(2, "XID 31", 1),
    RecordedFact("/nodes/n1/agent", "n1/ml/old/main", 3, AllocationEnded()),
    has(4, "n1/ml/trainer-0/main", f"{UUID}::0", f"{UUID}::1"),
    has(5, "n1/ml/trainer-1/main", f"{UUID}::2"),
    errors(6, "XID 31", 4),
    has(7, "n1/ml/trainer-0/main", f"{UUID}::0"),
)


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with the history in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


def test_current_allocations(cli: Cli) -> None:
    (heading, *lines) = [line.split() for line in cli("get", "allocations").out.splitlines()]
    assert heading == ["NODE", "NAMESPACE", "POD", "CONTAINER", "RESOURCE", "DEVICE", "SLICE", "SINCE"]
    assert lines == [
        ["n1", "ml", "trainer-0", "main", RESOURCE, UUID, "0", format_time(hour(4))],
        ["n1", "ml", "trainer-1", "main", RESOURCE, UUID, "2", format_time(hour(5))],
        ["n2", "web", "chat", "main", "<none>", "gpu-0", "<none>", format_time(hour(2))],
    ]
    wide = cli("get", "alloc", "-n", "web", "-o", "wide", "--no-headers").out.split()
    assert wide[-3:] == ["one-gpu", "gpu.example.com", "n2"]


def test_of_a_node_of_a_namespace_and_by_name(cli: Cli) -> None:
    names = ["allocation/n1/ml/trainer-0/main", "allocation/n1/ml/trainer-1/main", "allocation/n2/web/chat/main"]
    assert cli("get", "allocations", "-o", "name").out.splitlines() == names
    assert cli("get", "allocations", "--node", "n1", "-o", "name").out.splitlines() == names[:2]
    assert cli("get", "allocations", "--node", "n1", "-n", "web", "-o", "name").out == ""
    assert cli("get", "allocations", "--node", "n1", "-n", "web", "-A", "-o", "name").out.splitlines() == names[:2]
    assert cli("get", "allocations", names[1], "-o", "name").out.splitlines() == names[1:2]
    assert cli("get", "allocations", "--node", "n2", "--as-recorded", "now", "-o", "name").out.splitlines() == names[2:]
    assert cli("get", "allocations", names[2], "--at", "now", "-o", "name").out.splitlines() == names[2:]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("get", "allocations", "n1/ml/old/main"), 1, "allocation 'n1/ml/old/main' was not found"),
        (
            ("get", "devices", "--node", "n1"),
            2,
            "--node does not apply: it is for allocations, incidents, gpus and shares",
        ),
        (("get", "claims", "--node", "n1"), 2, "--node does not apply"),
        (("get", "devices", "-n", "ml"), 2, "devices come from the ledger"),
        (("report", "fleet", "--node", "n1"), 2, "--node does not apply to fleet"),
    ],
)
def test_filters_that_do_not_apply_are_refused(cli: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = cli(*arguments)
    assert (result.code, result.out, message in result.err) == (code, "", True)


def test_the_past_and_the_state_as_recorded(cli: Cli) -> None:
    """The facts were recorded in the order in which they happened, so both views agree."""
    for number in range(len(HISTORY) + 1):
        at = format_time(hour(HISTORY[number - 1].at if number else -1))
        if number < len(HISTORY) and number and HISTORY[number].at == HISTORY[number - 1].at:
            continue
        expected = cli("get", "allocations", "--as-recorded", f"1/{number}", "-o", "json").json()
        assert cli("get", "allocations", "--at", at, "-o", "json").json() == expected, at
    then = cli("get", "allocations", "--at", format_time(hour(2)), "-o", "json").json()
    assert [row["pod"] for row in then] == ["old", "chat"]
    assert len(cli("get", "allocations", "--node", "n1", "--at", format_time(hour(4)), "-o", "json").json()) == 2
    changed = cli("diff", format_time(hour(3)), format_time(hour(5)), "-k", "allocations", "-o", "json").json()
    assert [row["change"] for row in changed] == ["appeared"] * 3


def test_a_device_shows_its_current_and_last_holders(cli: Cli) -> None:
    page = cli("describe", "device", UUID, "--no-kube").out
    _, _, held = page.partition("Held by:\n")
    now, _, before = held.partition("Held last by:\n")
    assert [line.split()[1] for line in now.splitlines()[2:]] == ["trainer-1", "trainer-0"]
    assert [line.split()[1] for line in before.splitlines()[2:4]] == ["trainer-0", "old"]


def test_a_node_shows_the_containers_that_have_its_gpus(cli: Cli) -> None:
    page = cli("describe", "node", "n2", "--no-kube").out
    _, _, held = page.partition("Containers with GPUs:\n")
    assert held.splitlines()[2].split()[:2] == ["web", "chat"]


def test_a_timeline_shows_a_devices_errors(cli: Cli) -> None:
    rows = cli("timeline", "device", UUID, "--no-kube", "-o", "json").json()
    errors = [row for row in rows if row["event"] == "errors-observed"]
    assert [(row["time"], row["detail"]["kind"], row["detail"]["count"]) for row in errors] == [
        (format_time(hour(2)), "XID 31", 1),
        (format_time(hour(6)), "XID 31", 4),
    ]
    assert "kind=XID 31" in cli("timeline", "device", UUID, "--no-kube").out


def test_reports(cli: Cli) -> None:
    (row,) = cli("report", "device-errors", "--node", "n1", "-o", "json").json()
    assert (row["device"], row["errors"], row["slot"]) == (UUID, 5, "n1/0")
    held = cli("report", "container-allocations", "-n", "ml", "-o", "json").json()
    assert [(row["pod"], row["slice"], row["valid_to"]) for row in held] == [
        ("trainer-0", 0, None),
        ("trainer-0", 1, format_time(hour(7))),
        ("trainer-1", 2, None),
        ("old", None, format_time(hour(3))),
    ]


def test_the_tables_are_proven_and_rebuilt(cli: Cli) -> None:
    assert cli("get", "allocations", "-o", "name").code == 0
    assert cli("verify", "allocations", "devices").code == 0
    before = cli("get", "allocations", "-o", "json").out
    assert cli("replay", "allocations").code == 0
    assert cli("get", "allocations", "-o", "json").out == before


async def test_watch_follows_the_log(migrated_url: str) -> None:
    with servers.nats_server() as nats:
        await _record(nats.url)
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with watching(environ, "get", "allocations", "--node", "n1", "-w", "--no-headers") as process:
            assert [(await next_line(process)).split()[2] for _ in range(2)] == ["trainer-0", "trainer-1"]
            more = (has(8, "n2/ml/other/main", "GPU-2"), has(8, "n1/ml/trainer-2/main", f"{UUID}::1"))
            await _record(nats.url, *more)
            assert (await next_line(process)).split()[2] == "trainer-2"
            await _record(
                nats.url, *more, RecordedFact("/nodes/n1/agent", "n1/ml/trainer-1/main", 9, AllocationEnded())
            )
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE_S):
                assert b"allocation 'n1/ml/trainer-1/main' is gone" in await process.stderr.readline()


async def _record(nats_url: str, *more: RecordedFact) -> None:
    """Record the history, and more after it; what is there already is not recorded again."""
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, numbered([*HISTORY, *more]))
