"""The part of the agent that finds the node's cards: it surveys them again and again, and tells what changed.

What it finds stands on the board before it is told. A survey that fails says nothing about the cards, and changes
nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from zlib import crc32

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.hardware.calls import Calls
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.part import Fact, Keep, Tell
from gpuledger.agent.survey_event import observed
from gpuledger.agent.survey_history import Sightings, dump, load, sighted
from gpuledger.runtime.clock import Clock, Sleep

LOOK_PERIOD_S: Final = 5.0
REFRESH_S: Final = 1_800.0
"""How often the cards are told of though nothing changed."""

STUCK_AFTER_S: Final = 300.0
"""Looks wait for their turn behind a change of a card, and each gives up after its own bound."""

ODD_MAX: Final = 256
"""Odd values that are remembered as logged; when there are more, all are forgotten."""

NO_DRIVER: Final = "No driver answers. Install NVIDIA's, and in a container see that libnvidia-ml.so.1 is there."

KEPT_AS: Final = "discovery"
"""The name under which it is kept who was where."""

log = structlog.get_logger("gpuledger.agent")


class Discovery:
    """Finds the cards of a node.

    `trouble` says why they cannot be surveyed at the moment, or that no driver answers; None where all is well.
    """

    name = "discovery"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        calls: Calls,
        board: Board,
        keep: Keep,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._calls = calls
        self._board = board
        self._keep = keep
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._known = Sightings()
        self._seen: Survey | None = None
        self._told: Survey | None = None
        self._refreshed: int | None = None
        self._odd: set[str] = set()
        self.alive_at: float | None = None
        self.trouble: str | None = None

    async def run(self, tell: Tell) -> None:
        """See `gpuledger.agent.part.Part.run`."""
        kept = self._keep.get(KEPT_AS)
        if kept is not None:
            self._known = Sightings(identities=load(kept))
        while True:
            await self._look(tell)
            self.alive_at = self._monotonic()
            await self._sleep(LOOK_PERIOD_S)

    async def _look(self, tell: Tell) -> None:
        try:
            survey = await self._calls.survey()
        except HardwareError as error:
            self._note(str(error))
            return
        self._note(NO_DRIVER if survey.driver_missing else None)
        if survey != self._seen or self._known.missed:
            await self._see(survey)
        await self._tell(tell)

    async def _see(self, survey: Survey) -> None:
        before = self._known.identities
        self._seen, self._known = survey, sighted(self._known, survey)
        self._board.put(survey=self._known.survey)
        if self._known.identities != before:
            await self._keep.put(KEPT_AS, dump(self._known.identities))

    async def _tell(self, tell: Tell) -> None:
        """Tell of the cards where something changed, or nothing was told for long."""
        survey, refresh = self._known.survey, refresh_of(self._node, self._monotonic())
        if survey is None or (survey == self._told and refresh == self._refreshed):
            return
        await tell([Fact(self._node, observed(survey, self._odd_value), self._clock())])
        self._told, self._refreshed = survey, refresh

    def _odd_value(self, sentence: str) -> None:
        if sentence in self._odd:
            return
        if len(self._odd) >= ODD_MAX:
            self._odd.clear()
        self._odd.add(sentence)
        log.warning("the driver says something odd", node=self._node, reason=sentence)

    def _note(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            log.warning("surveys of the cards", node=self._node, trouble=trouble or "none any more")
        self.trouble = trouble


def refresh_of(node: str, now_s: float) -> int:
    """The number of the refresh that is due; each node's change at another time, so that they do not speak at once."""
    offset_s = crc32(node.encode()) % 1_000_000 / 1_000_000 * REFRESH_S
    return int((now_s + offset_s) // REFRESH_S)
