"""The sections of pages about who has a device: containers that have it now, and those that had it last."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from gpuledger.cli.describe.sections import ROWS_SHOWN, counted
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.domain.workloads.allocations import ALLOCATION, HISTORY
from gpuledger.tools.queries.rows import RowDict, rows_where

FORMER_SHOWN: Final = 5
"""Containers that had a device last; `gpuledger report container-allocations` has them all."""

_CONTAINER = (
    Column("Namespace", "namespace"),
    Column("Pod", "pod"),
    Column("Container", "container"),
    Column("Resource", "resource"),
    Column("Claim", "claim"),
    Column("Device", "device"),
    Column("Slice", "slice"),
)
HOLDERS = (*_CONTAINER, Column("Since", "since"))
FORMER = (*_CONTAINER, Column("From", "valid_from"), Column("To", "valid_to"))


class Holders(NamedTuple):
    """The containers that have something now, and those that had it, who had it last first."""

    now: list[RowDict]
    before: list[RowDict]


async def holders_of(connection: AsyncConnection[Any], devices: Sequence[str]) -> Holders:
    """Who has and who had a device that is known by these ids."""
    ids = {"device": list(devices)}
    ended = await rows_where(connection, HISTORY, ids, newest=["valid_to"], limit=FORMER_SHOWN)
    return Holders(
        await rows_where(connection, ALLOCATION, ids, newest=["since"]),
        [row for row in ended if row["valid_to"] is not None],
    )


async def holders_on(connection: AsyncConnection[Any], node: str) -> list[RowDict]:
    """Who has devices of a node."""
    return await rows_where(connection, ALLOCATION, {"node": node})


def holders_section(page: Page, holders: Holders) -> None:
    """Who has the device, and who had it last."""
    page.table(f"Held by{counted(holders.now)}", holders.now[:ROWS_SHOWN], HOLDERS)
    page.table("Held last by", holders.before, FORMER)
