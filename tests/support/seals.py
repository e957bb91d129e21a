"""The seals of a log, made by the service itself."""

from collections.abc import Sequence

from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.stream import create_ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.runner import Runner
from support.ledgers import everything
from support.projections import QUICK, reaches, running
from support.waiting import eventually

SEALS = "ledger.svc.seals.>"

LENGTH = 100
"""How many messages a seal covers in tests about what happens to seals; the product's are ten times as long."""


async def seal(ledger: Ledger, url: str, count: int) -> None:
    """Run the service until there are so many seals and it has read them."""

    async def are_there() -> bool:
        return len(await everything(ledger, subject_filter=SEALS)) == count

    async with running(Runner(SealsProjection(), ledger, url, settings=QUICK)):
        await eventually(are_there)
        await reaches(url, "seals", await ledger.head())


async def copied(server: NatsServer, ledger: Ledger, messages: Sequence[Message]) -> None:
    """Put other messages in the place of the log's, as somebody with an operator's rights can."""
    async with connected(server.url, name="intruder") as connection:
        await connection.jetstream.delete_stream("LEDGER_1")
        await create_ledger(connection, ledger.identity.ledger_id)
    async with connect_ledger(server.url, name="intruder") as another:
        await another.publish_many([Outgoing(one.subject, f"x{at}", one.data) for at, one in enumerate(messages)])
