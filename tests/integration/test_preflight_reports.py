"""Checks report to the agent of their node and to the health gateway, both real; the ledger has their reports."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpuledger.api.preflight import CheckName, Detail, ExitCode, Variable
from gpuledger.ledger.jetstream import JetStreamLedger
from support.checks import DISCOVERY, LIST, UUIDS, Machine, diagnosis
from support.gateway import NAMESPACE, Gateways, gateways
from support.health_node import Node
from support.outbox import NODE
from support.servers import short_directory

DIAG = CheckName.DCGM_DIAG
PASSING = diagnosis(memory="Pass/Pass")
FAILING = diagnosis(memory="Fail/Pass")


@pytest.fixture
def machine() -> Iterator[Machine]:
    with short_directory() as folder:
        found = Machine(Path(folder))
        found.has("nvidia-smi", LIST)
        found.has("dcgmi", "", discovery=DISCOVERY, diag=FAILING)
        yield found


@pytest.fixture
def node() -> Iterator[Node]:
    with short_directory() as root:
        yield Node(Path(root))


async def test_the_agent_takes_the_report_of_a_check_that_failed_and_of_one_that_passes(
    machine: Machine, node: Node
) -> None:
    node.is_container("preflight-dcgm-diag")
    machine.environ |= {Variable.SOCKET: f"unix://{node.socket}", Variable.NODE_NAME: NODE}
    async with node.running():
        assert await machine.run(DIAG, clock=node.time.clock) == ExitCode.FAILED
        bad, good = await node.reported(2)
        assert (bad.check, bad.healthy, bad.fatal) == ("preflight-dcgm-diag", False, True)
        assert [one.value for one in bad.entities] == [UUIDS[0]]
        assert (good.healthy, [one.value for one in good.entities]) == (True, [UUIDS[1]])
        machine.has("dcgmi", "", discovery=DISCOVERY, diag=PASSING)
        assert await machine.run(DIAG, clock=node.time.clock) == ExitCode.PASSED
        healed = (await node.reported(3))[-1]
    assert (healed.healthy, healed.codes, len(healed.entities)) == (True, (), 2)


async def test_the_agent_takes_the_report_of_a_check_that_was_not_carried_out(machine: Machine, node: Node) -> None:
    node.is_container("preflight-dcgm-diag")
    machine.environ |= {Variable.SOCKET: f"unix://{node.socket}", Variable.NODE_NAME: NODE}
    (machine.folder / "bin" / "dcgmi").unlink()
    async with node.running():
        assert await machine.run(DIAG, clock=node.time.clock) == ExitCode.NOT_REPORTED
        (data,) = await node.reported(1)
    assert (data.healthy, data.strategy, data.codes) == (True, "store-only", ("NOT_REPORTED",))
    assert data.metadata[Detail.OUTCOME] == "not-reported"


async def test_a_container_that_is_no_check_is_refused_and_ends_with_4(machine: Machine, node: Node) -> None:
    node.is_container("main")
    machine.environ |= {Variable.SOCKET: f"unix://{node.socket}", Variable.NODE_NAME: NODE}
    async with node.running():
        assert await machine.run(DIAG, clock=node.time.clock) == ExitCode.NOT_REPORTED
        await node.reported(0)
    assert "PERMISSION_DENIED" in machine.result().message


@pytest.fixture
async def here(root: Path, ledger: JetStreamLedger) -> AsyncIterator[Gateways]:
    async with gateways(root, ledger) as here:
        yield here


async def test_a_check_reports_over_tls_with_the_token_of_its_pod(machine: Machine, here: Gateways) -> None:
    async with here.serving() as ports:
        (machine.folder / "ca.crt").write_bytes(here.trusted)
        (machine.folder / "token").write_text(await here.token("n1", namespace=NAMESPACE) + "\n")
        del machine.environ[Variable.SOCKET]
        machine.environ |= {
            Variable.TARGET: f"localhost:{ports.tokens}",
            Variable.TARGET_CA_FILE: str(machine.folder / "ca.crt"),
            Variable.TARGET_TOKEN_FILE: str(machine.folder / "token"),
            Variable.NODE_NAME: "n1",
        }
        assert await machine.run(DIAG) == ExitCode.FAILED
        (machine.folder / "token").write_text("another")
        machine.environ[Variable.REPORT_TIMEOUT] = "1s"
        assert await machine.run(DIAG) == ExitCode.NOT_REPORTED
    assert "UNAUTHENTICATED" in machine.result().message
    assert [(one.check, one.healthy) for one in await here.reports()] == [
        ("preflight-dcgm-diag", False),
        ("preflight-dcgm-diag", True),
    ]
