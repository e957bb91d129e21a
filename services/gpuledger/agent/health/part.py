"""Health: the part that listens for errors of the cards (XIDs) and polls each card every few seconds.

Decisions reach the board first and the ledger afterwards, because the device plugin must not wait for the disk. The
part stores its verdicts, so that a restart neither forgets an unfit card nor counts a failure twice; after a restart it
records each card's verdict again, in case the agent or a reader of the ledger lost it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import CardFacts, Readings, Unread, Unregistered, Xid
from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.hardware.errors import (
    CardLostError,
    DriverMissingError,
    HardwareError,
    HungError,
    UnsupportedError,
)
from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.cards import NodeCards, on_time_all, with_decision, with_survey
from gpuledger.agent.health.decide import HealthDecision, mark_absent, on_error, on_readings
from gpuledger.agent.health.kernel_errors import KernelErrors, ReadLog
from gpuledger.agent.health.pending import PendingFacts
from gpuledger.agent.health.state import STATE_KEY, HealthStateError, dump, load
from gpuledger.agent.part import AgentFact, BasePart, Recorder, StateStore
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Clock, Instant, Sleep
from gpuledger.runtime.tasks import end

POLL_PERIOD_S: Final = 5.0
RETRY_S: Final = 5.0
RETRY_MAX_S: Final = 60.0
"""The pauses after the hardware failed to wait for errors: they double from the first to the second."""

STUCK_AFTER_S: Final = 300.0
"""Polls queue behind a change of a card, and each has a time-out of its own."""

INVALID_POLLS_MAX: Final = 2
"""A card that responds with an unknown error to so many polls in a row counts as not answering."""

UNSEEN_MAX: Final = 64
"""Addresses without a card whose errors are not logged again; beyond that the list starts over."""

log = structlog.get_logger("gpuledger.agent")


class HealthMonitor(BasePart):
    """Watches the cards that discovery put on the board; see `gpuledger.agent.part.Part`.

    `on_recovered` is called whenever the fact that a card is fit again was recorded. `read_kernel_log` reads the log in
    which the driver writes errors of cards that it refuses to report.
    """

    name = "health"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        hardware: AsyncHardware,
        board: Board,
        store: StateStore,
        rules: Rules,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        on_recovered: Callable[[], object] = lambda: None,
        read_kernel_log: ReadLog | None = None,
    ) -> None:
        self._hardware = hardware
        self._board = board
        self._store = store
        self._rules = rules
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._on_recovered = on_recovered
        self._kernel_errors = KernelErrors(rules.node, read_kernel_log)
        self._cards = NodeCards()
        self._survey: object = None
        self._pending = PendingFacts()
        self._stored: bytes | None = None
        self._has_polled = False
        self._invalid_polls: dict[str, int] = {}
        self._unread: dict[str, tuple[Unread, ...]] = {}
        self._hung_at = ""
        self._unseen: set[str] = set()
        self._retries = Retries(Backoff(RETRY_S, RETRY_MAX_S))

    async def run(self, record: Recorder) -> None:
        """Watch and record until cancelled; records everything that was found before it ends."""
        self._restore()
        recording = asyncio.create_task(self._record_all(record))
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((recording, watching), return_when=asyncio.FIRST_COMPLETED)
            for task in (recording, watching):
                if task.done():
                    task.result()
        finally:
            await end([watching])
            self._take(*on_time_all(self._cards, Instant(inf, self._clock()), self._rules))
            self._pending.close()
            await recording

    async def _watch(self) -> None:
        async for state in self._board.changes():
            if state.survey is not None:
                break
        await self._poll()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll_on())
            group.create_task(self._follow_surveys())
            group.create_task(self._listen())

    async def _poll_on(self) -> None:
        while True:
            await self._sleep(POLL_PERIOD_S)
            await self._poll()

    async def _follow_surveys(self) -> None:
        """Notice moved cards with the survey that shows it, and not only with the next poll."""
        async for _ in self._board.changes():
            self._take_survey()

    async def _poll(self) -> None:
        """Poll every card once."""
        try:
            trouble = await self._poll_cards()
            self._has_polled = True
        except HungError as error:
            trouble = str(error)
            self._has_polled = self._has_polled or any(card.is_reported for card in self._cards.here.values())
        heard = await self._kernel_errors.hear(self._hardware.unregistered())
        for xid in heard.xids:
            self._on_xid(xid)
        unread = {address: one for address, one in sorted(self._unread.items()) if address in self._cards.here}
        self._board.put(unregistered=heard.unheard, unread=unread)
        self.set_trouble(_trouble(trouble, unread, heard.unheard))
        self._take(*on_time_all(self._cards, self._now(), self._rules))
        self.alive_at = self._monotonic()

    async def _poll_cards(self) -> str | None:
        """Poll every card; returns why one of them cannot be polled.

        Raises:
            HungError: the driver did not respond, at `_hung_at`.
        """
        survey = self._board.state.survey
        if survey is None or survey.driver_missing:
            self._take_survey()
            here = {address: mark_absent(card) for address, card in self._cards.here.items()}
            self._take(self._cards._replace(here=here), ())
            return None
        trouble = None
        for facts in sorted(survey.cards, key=self._turn):
            try:
                await self._poll_card(facts)
            except HungError:
                self._hung_at = facts.address
                raise
            except HardwareError as error:
                trouble = f"{facts.address}: {error}"
        self._hung_at = ""
        return trouble

    def _turn(self, facts: CardFacts) -> tuple[bool, str]:
        """Begin behind the card at which the driver hung last, so that it does not keep others from being polled."""
        return (facts.address <= self._hung_at, facts.address)

    async def _poll_card(self, facts: CardFacts) -> None:
        """Poll one card.

        Raises:
            HardwareError: nothing is known about it now.
        """
        self._unread.pop(facts.address, None)
        try:
            readings = await self._readings(facts.address)
        except DriverMissingError:
            self._decide(facts.address, lambda card: HealthDecision(mark_absent(card)))
            return
        if readings is not None and readings.unread:
            self._unread[facts.address] = readings.unread
        self._decide(facts.address, lambda card: on_readings(card, readings, self._now(), self._rules))

    async def _readings(self, address: str) -> Readings | None:
        """The card's readings; None where it does not answer, or repeatedly responds with an unknown error."""
        invalid = self._invalid_polls.pop(address, 0)
        try:
            return await self._hardware.readings(address)
        except CardLostError:
            return None
        except (DriverMissingError, HungError, UnsupportedError):
            raise
        except HardwareError as error:
            self._invalid_polls[address] = invalid + 1
            if invalid + 1 < INVALID_POLLS_MAX:
                raise
            if invalid + 1 == INVALID_POLLS_MAX:
                log.warning(
                    "a card responds with an unknown error", node=self._rules.node, address=address, reason=str(error)
                )
            return None

    async def _listen(self) -> None:
        reason = None
        while True:
            since_s = self._monotonic()
            try:
                xid = await self._hardware.next_xid()
            except HardwareError as error:
                if self._monotonic() - since_s >= self._retries.backoff.healthy_after_s:
                    reason = None
                    self._retries.reset()
                if str(error) != reason and self._board.state.has_cards is not False:
                    reason = str(error)
                    log.warning("cannot wait for errors of the cards", node=self._rules.node, reason=reason)
                await self._sleep(self._retries.pause_s())
                continue
            reason = None
            self._retries.reset()
            self._on_xid(xid)
            await asyncio.sleep(0)  # a card that never stops reporting must not keep others from their work

    def _on_xid(self, xid: Xid) -> None:
        symptom = self._rules.classes.xid(xid.number)
        if self._decide(xid.address, lambda card: on_error(card, symptom, self._now(), self._rules)):
            return
        if xid.address in self._unseen:
            return
        if len(self._unseen) >= UNSEEN_MAX:
            self._unseen.clear()
        self._unseen.add(xid.address)
        log.warning(
            "an error of a card that no survey shows", node=self._rules.node, address=xid.address, kind=symptom.kind
        )

    def _decide(self, address: str, step: Callable[[CardHealth], HealthDecision]) -> bool:
        """Decide about the card at an address; returns whether there is one."""
        self._take_survey()
        card = self._cards.here.get(address)
        if card is None:
            return False
        decision = step(card)
        if decision.card is not card:
            self._take(with_decision(self._cards, decision), decision.facts)
        return True

    def _take_survey(self) -> None:
        survey = self._board.state.survey
        if survey is not None and survey is not self._survey:
            self._survey = survey
            self._take(with_survey(self._cards, survey), ())

    def _take(self, cards: NodeCards, facts: Sequence[AgentFact]) -> None:
        """Put the new health on the board, and queue the facts."""
        self._cards = cards
        if self._has_polled:
            survey = self._board.state.survey
            self._board.put(unfit=cards.unfit(driver_missing=survey is not None and survey.driver_missing))
        self._pending.add(facts)
        for fact in facts:
            if isinstance(fact.data, DeviceHealthChanged):
                write = log.info if fact.data.healthy else log.warning
                write("health of a card", card=fact.subject, healthy=fact.data.healthy, kind=fact.data.kind)

    async def _record_all(self, record: Recorder) -> None:
        while facts := await self._pending.next():
            cards = self._cards
            await self._save(dump(cards, pending=_addresses_of(cards, facts)))
            await record(facts)
            await self._save(dump(cards))
            if any(_is_verdict(fact, healthy=True) for fact in facts):
                self._on_recovered()

    async def _save(self, value: bytes) -> None:
        if value != self._stored:
            self._stored = value
            await self._store.put(STATE_KEY, value)

    def _restore(self) -> None:
        self._stored = self._store.get(STATE_KEY)
        if self._stored is None:
            return
        try:
            self._cards = load(self._stored, self._now())
        except HealthStateError as error:
            log.warning("the stored health of the cards cannot be used", reason=str(error))

    def _now(self) -> Instant:
        return Instant(self._monotonic(), self._clock())


def _trouble(
    polling: str | None, unread: Mapping[str, Sequence[Unread]], unregistered: Mapping[str, Unregistered]
) -> str | None:
    """Why cards, or some of their readings, cannot be polled, and why errors of cards do not reach the agent."""
    partly = (_unread_words(address, readings) for address, readings in unread.items())
    unheard = (
        f"{address}: its errors (XIDs) do not reach the agent. {why.message}" for address, why in unregistered.items()
    )
    return " ".join([*filter(None, [polling]), *partly, *unheard]) or None


def _unread_words(address: str, unread: Sequence[Unread]) -> str:
    reasons = "; ".join(f"{one.reading}: {one.message}" for one in unread)
    return f"{address}: the driver fails to give some readings, and what they showed before stands ({reasons})."


def _addresses_of(cards: NodeCards, facts: Iterable[AgentFact]) -> set[str]:
    """The addresses of cards that these facts report unfit."""
    subjects = {fact.subject for fact in facts if _is_verdict(fact, healthy=False)}
    return {card.address for card in (*cards.gone, *cards.here.values()) if card.unfit_subject in subjects}


def _is_verdict(fact: AgentFact, *, healthy: bool) -> bool:
    return isinstance(fact.data, DeviceHealthChanged) and fact.data.healthy == healthy
