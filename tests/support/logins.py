"""Logins of agents by tokens, for tests of the auth callout service."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from gpuledger.edge.authcallout.decide import Reason
from gpuledger.edge.authcallout.metrics import outcome_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.edge import EdgeLedger, connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.permissions import user_name
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from support.auth_callout import Callouts
from support.ledgers import DEADLINE_S

REFUSAL = r"(?i)authori[sz]ation|authentication"
"""What an error says of a server that does not let us in, or that hung up on us before it said so."""


def fact(node: str, number: int = 1) -> Outgoing:
    """An event of a node's agent."""
    return Outgoing(f"ledger.node.{user_name(node)}.device.d.seen", f"{node}-{number}", b"{}")


def edge(
    here: Callouts, node: str, file: Path, timeout_s: float = DEADLINE_S
) -> AbstractAsyncContextManager[EdgeLedger]:
    """The ledger as a node's agent sees it that logs in with the token of a file."""
    url = f"nats://{here.nats.address}"
    return connect_edge(url, name="agent", node=node, identity=NatsIdentity(token=file), connect_timeout_s=timeout_s)


async def refused(here: Callouts, token: str, reason: Reason) -> None:
    """The server does not let the token in, and the service counts why."""
    before = logins(reason)
    await not_let_in(here, identity=NatsIdentity(token=here.file("refused", token)))
    assert logins(reason) > before


async def not_let_in(here: Callouts, *, login: str = "", identity: NatsIdentity = ANONYMOUS) -> None:
    """The server does not let one attempt in, which lasts until the server has answered it."""
    connection = Connection(here.nats.address, identity)
    try:
        with pytest.raises(LedgerUnavailableError, match=REFUSAL):
            await connection.open([f"nats://{login}{here.nats.address}"], "agent", DEADLINE_S, repeat=False)
    finally:
        await connection.close()


def logins(reason: Reason | None = None) -> float:
    """How many logins were granted, or refused for this reason."""
    outcome, label = ("granted", "") if reason is None else outcome_of(reason)
    return REGISTRY.get_sample_value("gpuledger_callout_logins_total", {"outcome": outcome, "reason": label}) or 0.0
