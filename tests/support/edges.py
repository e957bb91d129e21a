"""Agents' connections for tests: servers that confine them, and a ledger in memory that answers as to an agent."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote

from gpuledger.ledger.api import Expected, Message, Outgoing, Receipt
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.permissions import (
    AGENTS_ACCOUNT,
    LEDGER_ACCOUNT,
    exports_text,
    imports_text,
    user_text,
)
from gpuledger.local.servers.nats import USER, NatsServer
from gpuledger.local.servers.ports import HOST
from support.ledgers import everything
from support.servers import short_directory

PASSWORD = "agent"
LAYOUTS = ("together", "apart")
"""Agents in the ledger's own account, and in an account of theirs."""


class ConfinedServer(NatsServer):
    """A NATS server whose agents have exactly the permissions that we print for them."""

    def __init__(self, directory: Path, layout: str, nodes: Sequence[str]) -> None:
        super().__init__(directory)
        self.layout = layout
        self._nodes = nodes

    def agent_url(self, node: str) -> str:
        """The URL of a node's agent."""
        return f"nats://{quote(node, safe='')}:{PASSWORD}@{HOST}:{self.port}"

    def _configuration_text(self, port: int) -> str:
        basics = {key: value for key, value in self._configuration(port).items() if key != "authorization"}
        return "\n".join((*(f"{key}: {json.dumps(value)}" for key, value in basics.items()), self._logins()))

    def _logins(self) -> str:
        service = f"{{ user: {USER}, password: {json.dumps(self._password)} }}"
        agents = "\n".join(user_text(node).replace("{", f"{{ password: {PASSWORD}", 1) for node in self._nodes)
        if self.layout == "together":
            return f"authorization: {{ users: [ {service}\n{agents} ] }}"
        return (
            "accounts: {\n"
            f"{LEDGER_ACCOUNT}: {{ jetstream: enabled\n users: [ {service} ]\n {exports_text()} }}\n"
            f"{AGENTS_ACCOUNT}: {{ users: [ {agents} ]\n {imports_text()} }}\n"
            "}"
        )


@contextmanager
def confined_server(layout: str, nodes: Sequence[str]) -> Iterator[ConfinedServer]:
    """A server that confines the agents of these nodes."""
    with short_directory() as directory, ConfinedServer(directory / "nats", layout, nodes) as server:
        yield server


class MemoryEdge:
    """A ledger in memory as an agent sees it; `away` is why it cannot be asked, and None where it can."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger
        self.away: str | None = None
        self.queries = 0
        self._pokes: list[tuple[str, Callable[[], None]]] = []

    @property
    def generation(self) -> int:
        return self.ledger.generation

    @property
    def is_usable(self) -> bool:
        return True

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        receipt = await self.ledger.publish(message, expected)
        self.poke([message.subject])
        return receipt

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        receipts = await self.ledger.publish_many(messages)
        self.poke(message.subject for message in messages)
        return receipts

    async def newest(self, subject: str) -> Message | None:
        self.queries += 1
        self._refuse_away()
        found = await everything(self.ledger, subject_filter=subject)
        return found[-1] if found else None

    @asynccontextmanager
    async def notified(self, subject: str, poke: Callable[[], None]) -> AsyncIterator[None]:
        self._refuse_away()
        self._pokes.append((subject, poke))
        try:
            yield
        finally:
            self._pokes.remove((subject, poke))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["MemoryEdge"]:
        """The edge itself, unless it is away."""
        self._refuse_away()
        yield self

    def poke(self, subjects: Iterable[str]) -> None:
        for published, (subject, poke) in itertools.product(subjects, tuple(self._pokes)):
            if published == subject:
                poke()

    def _refuse_away(self) -> None:
        if self.away is not None:
            raise LedgerUnavailableError(self.away)
