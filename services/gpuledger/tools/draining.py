"""Follows the drain that somebody requested, for those who wait for it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.maintenance.rows import FINISHED, SUPERSEDED, TIMED_OUT
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.tools.drain_rows import left_pods, owned_drains
from gpuledger.tools.maintenance import current_state
from gpuledger.tools.queries.backend import Backend

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


async def follow(backend: Backend, node: str, owner: str, requested_at: datetime) -> AsyncIterator[Look]:
    """How far the drain is that the owner requested, each time that it changed, until it is over."""
    last, is_begun, waits = None, False, 0
    while last is None or not last.is_over:
        look = _look(await current_state(backend), node, owner, requested_at)
        is_begun = is_begun or look.progress not in (UNREPORTED, ENDED)
        if look.progress == ENDED and not is_begun and waits * POLL_S < BEGIN_MAX_S:
            look = look._replace(progress=UNREPORTED)
        if look.progress == UNREPORTED and waits * POLL_S >= BEGIN_MAX_S:
            look = look._replace(progress=ENDED, detail="nobody has begun it; see `gpuledger doctor`")
        if look != last:
            yield look
        last, waits = look, waits + 1
        if not look.is_over:
            await asyncio.sleep(POLL_S)


def _look(state: Maintenance, node: str, owner: str, requested_at: datetime) -> Look:
    row = state.drain.get(node)
    if row is None or not any(one.owner == owner and one.since >= requested_at for one in owned_drains(row)):
        return Look(ENDED, 0, (), "the request was released, replaced, or has expired")
    detail = ": ".join(filter(None, (row.reason, row.message)))
    return Look(row.progress or UNREPORTED, row.pods_left, left_pods(row), detail)
