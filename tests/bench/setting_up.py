"""How long a card takes from a node's orders in the ledger until the kubelet is offered its unit, and where that goes.

The agent is the process that `gpuledger agent run` becomes, with the pauses that it has there, and its kubelet behaves
as the real one. One card after the other is added to the orders, as pools decide them; `annotating.py` begins with a
device's annotation. A part ends when the ledger or the kubelet shows it.
"""

import asyncio
from collections import defaultdict
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from bench.agent import CARDS, Running, orders, running
from bench.report import Figure
from gpuledger.events.device import DevicePoolApplied
from gpuledger.events.envelope import decode

SET_UP_MS: Final = 500.0
WAIT_S: Final = 60.0
POLL_S: Final = 0.001

ORDERED, LISTED, APPLIED, WHOLE = (
    "orders -> acknowledged by the ledger",
    "acknowledged -> ListAndWatch",
    "ListAndWatch -> reported as applied",
    "orders -> unit offered to the kubelet",
)


class SettingUpSizes(NamedTuple):
    """How many cards are set up."""

    cards: int = CARDS


FULL = SettingUpSizes()
QUICK = SettingUpSizes(2)


async def setting_up(sizes: SettingUpSizes = FULL) -> list[Figure]:
    """Medians of the whole and of its parts, beside an acknowledgement of the ledger."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    async with running(with_orders=False) as agent:
        for number in range(sizes.cards):
            for name, seconds in (await _round(agent, number)).items():
                found[name].append(1000 * seconds)
    peer, peer_ms = "an acknowledgement of the ledger", median(found[ORDERED])
    return [
        Figure(
            f"{name}, median", median(found[name]), "ms", peer, peer_ms,
            SET_UP_MS if name == WHOLE else None, is_ratio=False,
        )
        for name in (ORDERED, LISTED, APPLIED, WHOLE)
    ]  # fmt: skip


async def _round(agent: Running, number: int) -> dict[str, float]:
    """Add a card to the orders; returns the seconds of each part."""
    async with agent.ledger.read(await agent.ledger.head()) as reader, asyncio.timeout(WAIT_S):
        began = perf_counter()
        await agent.ledger.publish(orders(number + 1))
        acknowledged = perf_counter()
        while agent.healthy() <= number:  # noqa: ASYNC110 - what is measured is a matter of milliseconds
            await asyncio.sleep(POLL_S)
        listed = perf_counter()
        while not any(decode(one.data).type == DevicePoolApplied.TYPE for one in await reader.next_batch()):
            pass
        applied = perf_counter()
    return {
        ORDERED: acknowledged - began,
        LISTED: listed - acknowledged,
        APPLIED: applied - listed,
        WHOLE: listed - began,
    }
