"""Which views of people's own were lost when tables or reports below them changed. It makes none of them anew."""

from collections.abc import Sequence
from typing import Final

from gpuledger.db.engine import AsyncConnection

SHOWN_MAX: Final = 5
"""How many lost views are named at once."""

_LOST = "SELECT name FROM gpuledger.lost_view ORDER BY lost_at DESC, name"


async def lost_views(connection: AsyncConnection) -> list[str]:
    """The names of lost views, the latest first."""
    cursor = await connection.execute(_LOST)
    return [name for (name,) in await cursor.fetchall()]


def lost_views_text(names: Sequence[str]) -> str:
    """Which views are lost, and what to do about them."""
    shown = ", ".join(names[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")
    return (
        f"Could not be made anew after the tables below changed: {shown}. The table gpuledger.lost_view has the "
        "definitions and the reasons. Make these views again, and delete their rows there."
    )
