"""Both gateways answer the instance type of a node, and checks choose NCCL's topology file by that."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpuledger.agent.gateway.reporters import CHECKED_POD_RATES
from gpuledger.api.preflight import CheckName, Detail, ExitCode, Variable
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.preflight.instance_type import node_instance_type
from support.checks import LIST, Machine
from support.gateway import ACCOUNT, NAMESPACE, TENANT, Gateways, client_of, gateways, pem
from support.health_node import Node
from support.node_labels import answer, labelled
from support.outbox import NODE
from support.servers import short_directory

CHECK = "preflight-nccl-loopback"
NCCL = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
PASSING = f"{NCCL}   268435456      67108864     float     sum      -1   1000.0  200.0  200.0      0\n"
PASSING += "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 200.0\n"


@pytest.fixture
def node() -> Iterator[Node]:
    with short_directory() as root:
        yield Node(Path(root))


@pytest.fixture
async def here(root: Path, ledger: JetStreamLedger) -> AsyncIterator[Gateways]:
    async with gateways(root, ledger) as here:
        yield here


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine with two cards, and a topology file for one instance type."""
    with short_directory() as folder:
        found = Machine(Path(folder))
        found.has("nvidia-smi", LIST)
        found.has("all_reduce_perf", PASSING)
        (found.folder / "p5.xml").write_text("")
        found.environ |= {
            Variable.TOPOLOGY_MAPPING: '{"p5.48xlarge": "p5.xml"}',
            Variable.TOPOLOGY_FOLDER: str(found.folder),
        }
        yield found


@asynccontextmanager
async def socket_of(node: Node) -> AsyncIterator[grpc.aio.Channel]:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))
    async with grpc.aio.insecure_channel(f"unix:{node.socket}", options=options) as channel:
        yield channel


@asynccontextmanager
async def over_tcp(here: Gateways, port: int | None, token: str) -> AsyncIterator[grpc.aio.Channel]:
    credentials = grpc.ssl_channel_credentials(here.trusted)
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        yield channel


async def unnamed() -> None:
    """A machine whose firmware has no name for it."""


async def test_the_agent_answers_who_may_report_about_its_own_node(node: Node) -> None:
    await node.edge.publish(labelled(NODE, "p5.48xlarge"))
    async with node.running():
        for container in (CHECK, "main"):
            node.is_container(container)
            async with socket_of(node) as channel:
                expected = "p5.48xlarge" if container == CHECK else "PERMISSION_DENIED"
                assert await answer(channel) == await answer(channel, NODE) == expected
                assert await answer(channel, "w9") == "PERMISSION_DENIED"
        node.is_of_pod("gpu-system")
        async with socket_of(node) as channel:
            assert await answer(channel) == "p5.48xlarge"


async def test_the_agent_answers_nothing_where_it_cannot_tell(node: Node) -> None:
    node.edge.away = "it restarts"
    node.is_container(CHECK)
    async with node.running(), socket_of(node) as channel:
        assert await answer(channel) == ""


async def test_questions_of_a_check_count_among_its_reports(node: Node) -> None:
    node.is_container(CHECK)
    async with node.running(), socket_of(node) as channel:
        answers = [await answer(channel) for _ in range(CHECKED_POD_RATES.reports_burst_max + 1)]
    assert (set(answers[:-1]), answers[-1]) == ({""}, "RESOURCE_EXHAUSTED")


async def test_the_gateway_answers_pods_about_their_own_node(here: Gateways) -> None:
    await here.ledger.publish_many(
        [labelled("n1", "t4"), labelled("n1", "p5", number=2), labelled("n2", "a", number=3)]
    )
    checks = frozenset({TENANT})
    async with here.serving(preflight_namespaces=checks) as ports:
        for namespace in (NAMESPACE, TENANT):
            async with over_tcp(here, ports.tokens, await here.token("n1", namespace=namespace)) as channel:
                assert await answer(channel) == await answer(channel, "n1") == "p5"
                assert await answer(channel, "n2") == "PERMISSION_DENIED"
        async with over_tcp(here, ports.tokens, await here.token("n3")) as channel:
            assert await answer(channel) == ""
        async with over_tcp(here, ports.tokens, "") as channel:
            assert await answer(channel) == "UNAUTHENTICATED"
    token = await here.token("n1", namespace=TENANT, account=ACCOUNT)
    async with here.serving() as ports, over_tcp(here, ports.tokens, token) as channel:
        assert await answer(channel) == "PERMISSION_DENIED"


async def test_who_reports_about_every_node_names_one(here: Gateways) -> None:
    await here.ledger.publish(labelled("n2", "t4"))
    token = await here.token(None, account="cluster")
    async with here.serving() as ports, over_tcp(here, ports.tokens, token) as channel:
        assert (await answer(channel), await answer(channel, "n2")) == ("INVALID_ARGUMENT", "t4")


async def test_a_node_with_a_certificate_asks_about_itself(here: Gateways) -> None:
    await here.ledger.publish(labelled("n7", "t4"))
    shown, key = pem(client_of(here.authority, "system:node:n7"))
    credentials = grpc.ssl_channel_credentials(here.trusted, key, shown)
    async with (
        here.serving() as ports,
        grpc.aio.secure_channel(f"localhost:{ports.certificates}", credentials) as channel,
    ):
        assert (await answer(channel), await answer(channel, "n2")) == ("t4", "PERMISSION_DENIED")


async def test_another_label_is_a_setting_of_the_gateway(here: Gateways) -> None:
    await here.ledger.publish(labelled("n1", "t4", machine="dgx"))
    token = await here.token("n1")
    async with here.serving(instance_type_label="machine") as ports, over_tcp(here, ports.tokens, token) as channel:
        assert await answer(channel) == "dgx"


async def test_a_check_chooses_the_topology_file_by_the_answer_of_the_agent(node: Node, machine: Machine) -> None:
    await node.edge.publish(labelled(NODE, "p5.48xlarge"))
    node.is_container(CHECK)
    machine.environ |= {Variable.SOCKET: f"unix://{node.socket}", Variable.NODE_NAME: NODE}
    async with node.running():
        asking = partial(node_instance_type, machine.environ, machine=unnamed)
        code = await machine.run(CheckName.NCCL_LOOPBACK, clock=node.time.clock, instance_type=asking)
        assert code == ExitCode.PASSED
        (data,) = await node.reported(1)
    assert data.metadata[Detail.TOPOLOGY] == str(machine.folder / "p5.xml")


async def test_a_check_has_the_answer_of_the_gateway_over_tcp(machine: Machine, here: Gateways) -> None:
    await here.ledger.publish(labelled("n1", "p5.48xlarge"))
    async with here.serving() as ports:
        (machine.folder / "ca.crt").write_bytes(here.trusted)
        (machine.folder / "token").write_text(await here.token("n1"))
        del machine.environ[Variable.SOCKET]
        machine.environ |= {
            Variable.TARGET: f"localhost:{ports.tokens}",
            Variable.TARGET_CA_FILE: str(machine.folder / "ca.crt"),
            Variable.TARGET_TOKEN_FILE: str(machine.folder / "token"),
        }
        assert await node_instance_type(machine.environ, machine=unnamed) == "p5.48xlarge"
        (machine.folder / "token").write_text("another")
        assert await node_instance_type(machine.environ, answer_max_s=0.5, machine=unnamed) is None


async def test_the_kubelet_may_show_a_check_only_after_it_asks(node: Node, machine: Machine) -> None:
    """Containers run before their links are there."""
    await node.edge.publish(labelled(NODE, "t4"))
    node.is_container(CHECK)
    (link,) = (node.root / "containers").iterdir()
    link.unlink()
    pauses: list[float] = []

    async def appear(pause_s: float) -> None:
        pauses.append(pause_s)
        link.touch()

    machine.environ[Variable.SOCKET] = f"unix://{node.socket}"
    async with node.running():
        assert await node_instance_type(machine.environ, sleep=appear, machine=unnamed) == "t4"
    assert len(pauses) == 1


@pytest.mark.parametrize("environ", [{}, {Variable.SOCKET: "unix:///nowhere/health.sock"}])
async def test_without_a_gateway_the_machine_says_what_it_is(environ: dict[str, str]) -> None:
    async def product() -> str:
        return "p5.48xlarge"

    assert await node_instance_type(environ, answer_max_s=0.5, machine=product) == "p5.48xlarge"
    assert await node_instance_type(environ, answer_max_s=0.5, machine=unnamed) is None


async def test_a_gateway_of_before_there_was_the_question_is_not_waited_for(machine: Machine) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{machine.socket}")
    await server.start()
    try:
        found = await node_instance_type(machine.environ, sleep=no_pause, machine=unnamed)
    finally:
        await server.stop(None)
    assert found is None


async def no_pause(_: float) -> None:
    raise AssertionError("it asks again what is not served")
