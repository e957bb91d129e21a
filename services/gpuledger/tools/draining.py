"""Follows the drain that somebody requested, for those who wait for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from math import ceil
from typing import Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.devices.fold import DEVICE
from gpuledger.domain.maintenance.rows import FINISHED, SUPERSEDED, TIMED_OUT
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.maintenance import NodeMaintenanceRequested
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.drain_rows import left_pods, owned_drains
from gpuledger.tools.errors import RequestError
from gpuledger.tools.maintenance import current_state
from gpuledger.tools.queries.backend import Backend, bring_current, read
from gpuledger.tools.queries.devices import SHOWN_MAX
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import rows_where

POLL_S: Final = 1.0
"""How often a drain is looked at by who waits for it."""

BEGIN_MAX_S: Final = 60.0
"""How long a drain may take to begin, before who waits for it is shown that nobody carries it out."""

UNREPORTED, ENDED = "unreported", "ended"


class Look(NamedTuple):
    """How far a drain is: `progress` as its row has it, or `unreported` before its first report, or `ended` by others.

    `pods` are the first that are left, each with what it waits for.
    """

    progress: str
    left: int
    pods: tuple[tuple[str, str], ...]
    detail: str

    @property
    def is_over(self) -> bool:
        """Whether waiting for it has an end."""
        return self.progress in (FINISHED, SUPERSEDED, TIMED_OUT, ENDED)


_CARD, _INSTANCE = "GPU-", "MIG-"


def is_uuid(text: str) -> bool:
    """Whether a text is the UUID of a card or of a MIG instance."""
    return text.startswith((_CARD, _INSTANCE))


async def check_devices(backend: Backend, node: str, devices: Sequence[str]) -> None:
    """Return if the node has these cards; MIG instances are not in the table of devices.

    Raises:
        RequestError: a card is unknown, or elsewhere.
    """
    cards = [one for one in devices if one.startswith(_CARD)]
    if not cards:
        return
    await bring_current(backend, [DevicesProjection()])

    async def ask(connection: AsyncConnection) -> dict[str, list[RowDict]]:
        return {one: await rows_where(connection, DEVICE, {"uuid": one}, limit=SHOWN_MAX) for one in cards}

    for uuid, rows in (await read(backend, ask, application_name="gpuledger node drain")).items():
        slots = sorted(str(row["slot"]) for row in rows if row["slot"])
        if not any(slot.partition("/")[0] == node for slot in slots):
            where = f"it is in {slots[0]}" if slots else "the ledger has it nowhere"
            hint = f"`gpuledger get devices` lists the cards of node {node} with their UUIDs"
            raise RequestError(f"Node {node} has no card {uuid}: {where}", hint)


def wait_max_s(data: NodeMaintenanceRequested) -> float:
    """How long somebody waits for a drain: until it has finished or timed out, if somebody works on it."""
    timeout_s = data.drain.timeout_s if data.drain is not None else 0
    return BEGIN_MAX_S + 2 * timeout_s


async def follow(
    backend: Backend, node: str, owner: str, requested_at: datetime, wait_max_s: float
) -> AsyncIterator[Look]:
    """How far the drain is that the owner requested, each time that it changed, until it is over.

    Nobody waits for longer than `wait_max_s`, nor than `BEGIN_MAX_S` for the first report. There is
    another first one where somebody else's request changes the drain.
    """
    last: Look | None = None
    is_begun, silent_polls = False, 0
    for _ in range(ceil(wait_max_s / POLL_S)):
        look = _look(await current_state(backend), node, owner, requested_at)
        if look.progress == ENDED and not is_begun:
            look = Look(UNREPORTED, 0, (), "")
        is_begun = is_begun or look.progress != UNREPORTED
        silent_polls = silent_polls + 1 if look.progress == UNREPORTED else 0
        if silent_polls * POLL_S > BEGIN_MAX_S:
            look = UNATTENDED
        if look != last:
            yield look
        if look.is_over:
            return
        last = look
        await asyncio.sleep(POLL_S)
    yield UNATTENDED


UNATTENDED: Final = Look(ENDED, 0, (), "nobody works on it; `gpuledger doctor` may say why")


def _look(state: Maintenance, node: str, owner: str, requested_at: datetime) -> Look:
    row = state.drain.get(node)
    request = state.request.get((node, owner))
    if request is not None and request.changed_at >= requested_at and request.drain_result == FINISHED:
        return Look(FINISHED, 0, (), "")
    if row is None or not any(one.owner == owner and one.since >= requested_at for one in owned_drains(row)):
        return Look(ENDED, 0, (), "the request was released, replaced, or has expired")
    detail = ": ".join(filter(None, (row.reason, row.message)))
    return Look(row.progress or UNREPORTED, row.pods_left, left_pods(row), detail)
