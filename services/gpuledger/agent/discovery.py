"""Discovery: the part that surveys the node's cards every few seconds and records what changed.

It writes each survey on the board before it records it. A survey that fails says nothing about the cards, and must
change nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from zlib import crc32

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.part import AgentFact, BasePart, Recorder, StateStore
from gpuledger.agent.survey_event import survey_event
from gpuledger.agent.survey_history import SurveyHistory, dump, load, with_survey
from gpuledger.runtime.clock import Clock, Sleep

POLL_PERIOD_S: Final = 5.0
REFRESH_S: Final = 86_400.0
"""How often the cards are recorded though nothing changed: six kilobytes for eight cards, from each node of a fleet."""

STUCK_AFTER_S: Final = 300.0
"""Surveys queue behind a change of a card, and each has a time-out of its own."""

WARNINGS_MAX: Final = 256
"""Odd values that were logged already and are not logged again; beyond that the list starts over."""

NO_DRIVER: Final = "No driver answers. Install NVIDIA's, and in a container see that libnvidia-ml.so.1 is there."

STATE_KEY: Final = "discovery"

log = structlog.get_logger("gpuledger.agent")


class CardDiscovery(BasePart):
    """Finds the cards of a node; see `gpuledger.agent.part.Part`."""

    name = "discovery"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        hardware: AsyncHardware,
        board: Board,
        store: StateStore,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._hardware = hardware
        self._board = board
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._history = SurveyHistory()
        self._latest: Survey | None = None
        self._recorded: Survey | None = None
        self._refresh: int | None = None
        self._warned: set[str] = set()

    async def run(self, record: Recorder) -> None:
        """Survey and record until cancelled."""
        stored = self._store.get(STATE_KEY)
        if stored is not None:
            self._history = SurveyHistory(identities=load(stored))
        while True:
            await self._poll(record)
            self.alive_at = self._monotonic()
            await self._sleep(POLL_PERIOD_S)

    async def _poll(self, record: Recorder) -> None:
        try:
            survey = await self._hardware.survey()
        except HardwareError as error:
            self.set_trouble(str(error))
            return
        self.set_trouble(NO_DRIVER if survey.driver_missing and survey.cards else None)
        if survey != self._latest or self._history.missed:
            await self._take(survey)
        await self._record(record)

    async def _take(self, survey: Survey) -> None:
        before = self._history.identities
        self._latest, self._history = survey, with_survey(self._history, survey)
        self._board.put(survey=self._history.survey)
        if self._history.identities != before:
            await self._store.put(STATE_KEY, dump(self._history.identities))

    async def _record(self, record: Recorder) -> None:
        """Record the cards where something changed, or where the periodic refresh is due."""
        survey, refresh = self._history.survey, refresh_of(self._node, self._monotonic())
        if survey is None or (survey == self._recorded and refresh == self._refresh):
            return
        await record([AgentFact(self._node, survey_event(survey, self._warn_once), self._clock())])
        self._recorded, self._refresh = survey, refresh

    def _warn_once(self, sentence: str) -> None:
        if sentence in self._warned:
            return
        if len(self._warned) >= WARNINGS_MAX:
            self._warned.clear()
        self._warned.add(sentence)
        log.warning("the driver reports an odd value", node=self._node, reason=sentence)


def refresh_of(node: str, now_s: float) -> int:
    """The number of the refresh that is due; nodes take turns, so that a fleet does not record all at once."""
    offset_s = crc32(node.encode()) % 1_000_000 / 1_000_000 * REFRESH_S
    return int((now_s + offset_s) // REFRESH_S)
