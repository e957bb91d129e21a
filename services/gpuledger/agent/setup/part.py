"""The part that sets devices up for pools and takes them back: sees, lets `decide` say what follows, and has that done.

It tells only what is really so, offers units before it says that they are there, and withdraws them before it takes
away what is behind them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.part import Recorder, StateStore
from gpuledger.agent.setup import actions
from gpuledger.agent.setup.actions import Action, Wait
from gpuledger.agent.setup.decide import decide
from gpuledger.agent.setup.executor import SetupExecutor
from gpuledger.agent.setup.situation import Situation
from gpuledger.agent.setup.store import SetupStore
from gpuledger.agent.setup.timing import Debounce
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.tasks import end

LOOK_S: Final = 15.0
"""How long nothing is decided anew at most: what processes do shows nowhere but on the hardware."""

STUCK_AFTER_S: Final = 180.0
"""Longer than any one call to the hardware takes."""

STEPS_MAX: Final = 4096
"""So many steps are done without a pause; a node has 256 cards at most, and each needs fewer than ten."""

log = structlog.get_logger("gpuledger.agent")


class PoolSetup:
    """Keeps a node's devices as pools want them; `now` is the event loop's clock, in seconds."""

    name = "setup"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        calls: AsyncHardware,
        board: Board,
        keep: StateStore,
        *,
        clock: Clock,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._calls = calls
        self._board = board
        self._keep = keep
        self._clock = clock
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._quiet = Debounce()
        self._mine: SetupStore | None = None
        self.alive_at: float | None = None
        self.trouble: str | None = None

    async def run(self, record: Recorder) -> None:
        """See `gpuledger.agent.part.Part.run`."""
        changes = asyncio.Event()
        following = asyncio.create_task(self._follow(changes))
        try:
            while True:
                changes.clear()
                until = await self.work(record)
                pause_s = LOOK_S if until is None else min(until - self._now(), LOOK_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(pause_s, 0.0)):
                        await changes.wait()
        finally:
            await end([following])

    async def work(self, record: Recorder) -> float | None:
        """Do all that can be done now; returns when there is more to do though nothing changes, or None."""
        mine = self._mine = self._mine or SetupStore(self._keep, self._now())
        sight = _Sight(self._calls)
        acting = SetupExecutor(self._calls, self._board, mine, clock=self._clock, beat=self._beat)
        for _ in range(STEPS_MAX):
            self._beat()
            it = self._situation(mine, sight)
            choice = decide(it)
            if isinstance(choice, Wait):
                self.trouble = sight.blind
                await self._rest(it, mine, acting)
                return choice.until
            if isinstance(choice, actions.Withdraw) or not await sight.see():
                await _take(choice, it, acting, sight, record)
        log.error("setting devices up gets nowhere; it goes on after a pause", next=str(choice))
        return None

    async def _rest(self, it: Situation, mine: SetupStore, acting: SetupExecutor) -> None:
        if it.board.survey is not None:
            acting.offer()
        if it.board.desired is not None and it.now >= it.quiet_at:
            await mine.keep_only(wish.device for wish in it.board.desired)

    async def _follow(self, changes: asyncio.Event) -> None:
        async for _ in self._board.changes():
            changes.set()

    def _situation(self, mine: SetupStore, sight: "_Sight") -> Situation:
        seen, now = self._board.state, self._now()
        quiet_at = self._quiet.until(seen.desired, now)
        return Situation(
            seen, mine.memory, mine.retries, mine.withdrawn_at, now, quiet_at, sight.survey, sight.blind, sight.busy
        )

    def _beat(self) -> None:
        self.alive_at = self._now()


class _Sight:
    """What was seen of the hardware since it was changed last; what the board shows may be older than that."""

    def __init__(self, calls: AsyncHardware) -> None:
        self._calls = calls
        self.survey: Survey | None = None
        self.blind: str | None = None
        self.busy: dict[str, frozenset[str] | None] = {}
        self.changed: set[str] = set()

    async def see(self) -> bool:
        """Look at the cards, unless that was done already; returns whether it was done now."""
        if self.survey is not None or self.blind is not None:
            return False
        try:
            self.survey = await self._calls.survey()
        except HardwareError as error:
            self.blind = str(error) or type(error).__name__
            log.warning("the cards cannot be seen", reason=self.blind)
        return True

    async def look(self, address: str) -> None:
        """Ask what processes use a card."""
        try:
            self.busy[address] = await self._calls.users(address)
        except HardwareError as error:
            self.busy[address] = None
            log.warning("nobody can tell what processes use a card", card=address, reason=str(error))

    def forget(self, device: str) -> None:
        """A device's card was changed, or may have been."""
        self.changed.add(device)
        self.survey = self.blind = None
        self.busy = {}


async def _take(do: Action, it: Situation, acting: SetupExecutor, sight: _Sight, record: Recorder) -> None:
    """Take a step."""
    match do:
        case actions.Look():
            await sight.look(do.address)
        case actions.Refresh():
            await acting.refresh(do, it.now)
        case actions.Withdraw():
            await acting.withdraw(do, it.now)
        case actions.Adopt():
            await acting.adopt(do)
        case actions.Postpone():
            acting.postpone(do, it)
        case actions.Say():
            await acting.say(do, it, record)
        case actions.Release():
            await acting.release(do, record)
        case actions.Divide() | actions.Clear():
            await _change(do, it, acting, sight, record)


async def _change(
    do: actions.Divide | actions.Clear, it: Situation, acting: SetupExecutor, sight: _Sight, record: Recorder
) -> None:
    """Change a card, unless that was just done and it does not show."""
    if do.device in sight.changed:
        await acting.puzzle(do, it, record)
        return
    if isinstance(do, actions.Divide):
        await acting.divide(do, it, record)
    else:
        await acting.clear(do, it)
    sight.forget(do.device)
