"""The part of the agent that watches over the health of the cards: it waits for errors and looks at each card.

What is decided comes on the board first, and then to the ledger: who offers cards must not wait for the disk. What was
told is remembered, so that a restart neither forgets an unfit card nor counts its failure twice; how each card stands
is told anew after a restart, because the agent may have lost its memory, or the ledger's readers theirs.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import CardFacts, Readings, Xid
from gpuledger.agent.hardware.calls import Calls
from gpuledger.agent.hardware.errors import (
    CardLostError,
    DriverMissingError,
    HardwareError,
    HungError,
    RefusedError,
)
from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.cards import Cards, decided, surveyed, time_passed
from gpuledger.agent.health.decide import Decision, away, looked, struck
from gpuledger.agent.health.pending import Untold
from gpuledger.agent.health.state import KEPT_AS, RememberedError, dump, load
from gpuledger.agent.part import Fact, Keep, Moment, Tell
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import end

LOOK_PERIOD_S: Final = 5.0
RETRY_S: Final = 5.0
"""How long to wait where errors cannot be waited for."""

STUCK_AFTER_S: Final = 300.0
"""Looks wait for their turn behind a change of a card, and each gives up after its own bound."""

NONSENSE_LOOKS: Final = 2
"""A card that answers with an error that nobody knows, so many looks in a row, does not answer."""

STRANGE_MAX: Final = 64
"""Addresses that nobody sees a card at and whose errors are remembered as logged; of more, all are forgotten."""

log = structlog.get_logger("gpuledger.agent")


def _nobody() -> None:
    """What is called after a recovery where nobody wants to know."""


class HealthWatch:
    """Watches over the cards that discovery put on the board.

    `trouble` says why cards cannot be looked at at the moment, None where they can. `on_recovered` is called when it
    was told that a card is fit again.
    """

    name = "health"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        calls: Calls,
        board: Board,
        keep: Keep,
        rules: Rules,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        on_recovered: Callable[[], None] = _nobody,
    ) -> None:
        self._calls = calls
        self._board = board
        self._keep = keep
        self._rules = rules
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._on_recovered = on_recovered
        self._cards = Cards()
        self._survey: object = None
        self._untold = Untold()
        self._kept: bytes | None = None
        self._is_known = False
        self._nonsense: dict[str, int] = {}
        self._hung_at = ""
        self._strange: set[str] = set()
        self.alive_at: float | None = None
        self.trouble: str | None = None

    async def run(self, tell: Tell) -> None:
        """See `gpuledger.agent.part.Part.run`. What was found out is told before it ends."""
        self._remember()
        telling = asyncio.create_task(self._tell_all(tell))
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((telling, watching), return_when=asyncio.FIRST_COMPLETED)
            for task in (telling, watching):
                if task.done():
                    task.result()
        finally:
            await end([watching])
            self._take(*time_passed(self._cards, Moment(inf, self._clock()), self._rules))
            self._untold.no_more()
            await telling

    async def _watch(self) -> None:
        async for seen in self._board.changes():
            if seen.survey is not None:
                break
        await self._look()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_on())
            group.create_task(self._follow())
            group.create_task(self._listen())

    async def _look_on(self) -> None:
        while True:
            await self._sleep(LOOK_PERIOD_S)
            await self._look()

    async def _follow(self) -> None:
        """See where cards sit as soon as a survey shows it, and not only with the next look."""
        async for _ in self._board.changes():
            self._see_survey()

    async def _look(self) -> None:
        """Look at every card once."""
        try:
            self._note(await self._round())
            self._is_known = True
        except HungError as error:
            self._note(str(error))
            self._is_known = self._is_known or any(card.is_known for card in self._cards.here.values())
        self._take(*time_passed(self._cards, self._now(), self._rules))
        self.alive_at = self._monotonic()

    async def _round(self) -> str | None:
        """Look at every card; returns why one cannot be looked at.

        Raises:
            HungError: the driver did not answer, at `_hung_at`.
        """
        survey = self._board.seen.survey
        if survey is None or survey.driver_missing:
            self._see_survey()
            here = {address: away(card) for address, card in self._cards.here.items()}
            self._take(self._cards._replace(here=here), ())
            return None
        trouble = None
        for facts in sorted(survey.cards, key=self._turn):
            try:
                await self._look_at(facts)
            except HungError:
                self._hung_at = facts.address
                raise
            except HardwareError as error:
                trouble = f"{facts.address}: {error}"
        self._hung_at = ""
        return trouble

    def _turn(self, facts: CardFacts) -> tuple[bool, str]:
        """Begin behind the card at which the driver hung, so that one that always has it hang hides no other."""
        return (facts.address <= self._hung_at, facts.address)

    async def _look_at(self, facts: CardFacts) -> None:
        """Look at a card.

        Raises:
            HardwareError: nobody can tell how it is.
        """
        try:
            readings = await self._readings(facts.address)
        except DriverMissingError:
            self._decide(facts.address, lambda card: Decision(away(card)))
            return
        self._decide(facts.address, lambda card: looked(card, readings, self._now(), self._rules))

    async def _readings(self, address: str) -> Readings | None:
        """What the card says; None where it does not answer, which is also so where it says nothing but nonsense."""
        nonsense = self._nonsense.pop(address, 0)
        try:
            return await self._calls.readings(address)
        except CardLostError:
            return None
        except (DriverMissingError, HungError, RefusedError):
            raise
        except HardwareError as error:
            self._nonsense[address] = nonsense + 1
            if nonsense + 1 < NONSENSE_LOOKS:
                raise
            if nonsense + 1 == NONSENSE_LOOKS:
                log.warning("a card answers nonsense", node=self._rules.node, address=address, reason=str(error))
            return None

    async def _listen(self) -> None:
        is_deaf = False
        while True:
            try:
                xid = await self._calls.next_xid()
            except HardwareError as error:
                if not is_deaf:
                    log.warning("errors of cards cannot be waited for", node=self._rules.node, reason=str(error))
                is_deaf = True
                await self._sleep(RETRY_S)
                continue
            is_deaf = False
            self._hear(xid)
            await asyncio.sleep(0)  # a card that never stops reporting must not keep others from their work

    def _hear(self, xid: Xid) -> None:
        sign = self._rules.classes.xid(xid.number)
        if self._decide(xid.address, lambda card: struck(card, sign, self._now(), self._rules)):
            return
        if xid.address in self._strange:
            return
        if len(self._strange) >= STRANGE_MAX:
            self._strange.clear()
        self._strange.add(xid.address)
        log.warning("errors of a card that nobody sees", node=self._rules.node, address=xid.address, kind=sign.kind)

    def _decide(self, address: str, step: Callable[[CardHealth], Decision]) -> bool:
        """Decide about the card at an address; returns whether one is there."""
        self._see_survey()
        card = self._cards.here.get(address)
        if card is None:
            return False
        decision = step(card)
        if decision.card is not card:
            self._take(decided(self._cards, decision), decision.facts)
        return True

    def _see_survey(self) -> None:
        survey = self._board.seen.survey
        if survey is not None and survey is not self._survey:
            self._survey = survey
            self._take(surveyed(self._cards, survey), ())

    def _take(self, cards: Cards, facts: Sequence[Fact]) -> None:
        """Put on the board what follows, and leave the facts to be told."""
        self._cards = cards
        if self._is_known:
            survey = self._board.seen.survey
            self._board.put(unfit=cards.unfit(driver_missing=survey is not None and survey.driver_missing))
        self._untold.add(facts)
        for fact in facts:
            if isinstance(fact.data, DeviceHealthChanged):
                said = fact.data
                say = log.info if said.healthy else log.warning
                say("health of a card", card=fact.subject, healthy=said.healthy, kind=said.kind)

    async def _tell_all(self, tell: Tell) -> None:
        while facts := await self._untold.next():
            cards = self._cards
            await self._put(dump(cards, untold=self._turned(cards, facts, healthy=False)))
            await tell(facts)
            await self._put(dump(cards))
            if any(_is_verdict(fact, healthy=True) for fact in facts):
                self._on_recovered()

    def _turned(self, cards: Cards, facts: Iterable[Fact], *, healthy: bool) -> set[str]:
        """The addresses of cards of which is told that they are fit, or are not."""
        subjects = {fact.subject for fact in facts if _is_verdict(fact, healthy=healthy)}
        return {card.address for card in (*cards.gone, *cards.here.values()) if card.told in subjects}

    async def _put(self, value: bytes) -> None:
        if value != self._kept:
            self._kept = value
            await self._keep.put(KEPT_AS, value)

    def _remember(self) -> None:
        self._kept = self._keep.get(KEPT_AS)
        if self._kept is None:
            return
        try:
            self._cards = load(self._kept, self._now())
        except RememberedError as error:
            log.warning("what was remembered of the health of cards cannot be used", reason=str(error))

    def _note(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            log.warning("looks at the health of cards", node=self._rules.node, trouble=trouble or "none any more")
        self.trouble = trouble

    def _now(self) -> Moment:
        return Moment(self._monotonic(), self._clock())


def _is_verdict(fact: Fact, *, healthy: bool) -> bool:
    return isinstance(fact.data, DeviceHealthChanged) and fact.data.healthy == healthy
