"""Does what was decided for a device: on the hardware, on the board, in memory, and towards the ledger, in this order.

It decides nothing. What it is told to do is done, or failed and noted, and the next decision sees how things are.
"""

from collections.abc import Callable
from typing import Final

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.part import AgentFact, Recorder
from gpuledger.agent.setup import actions
from gpuledger.agent.setup.mig_steps import MigExecutor, StepFailedError
from gpuledger.agent.setup.offers import offers, without
from gpuledger.agent.setup.situation import Situation
from gpuledger.agent.setup.state import HeldDevice, Outcome
from gpuledger.agent.setup.store import SetupStore
from gpuledger.agent.setup.timing import failed
from gpuledger.domain.mig.plan import IN_USE, Refusal
from gpuledger.events.device import DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.node import WantedDevice
from gpuledger.events.payload import TEXT_LENGTH_MAX, Payload
from gpuledger.runtime.clock import Clock

BUSY_TOLD_AFTER: Final = 3
"""So often in a row a card must be in use before that is told: what has just ended uses it for a moment more."""

NOT_AS_DIVIDED: Final = "CardNotAsDivided"

log = structlog.get_logger("gpuledger.agent")


class SetupExecutor:
    """Acts for one agent; `beat` is called whenever something was done."""

    def __init__(
        self, calls: AsyncHardware, board: Board, remembering: SetupStore, *, clock: Clock, beat: Callable[[], None]
    ) -> None:
        self._calls = calls
        self._board = board
        self._mine = remembering
        self._clock = clock
        self._beat = beat

    def offer(self) -> None:
        """Put on the board what is offered."""
        self._board.put(offers=offers(self._mine.memory.held.values()))

    async def refresh(self, do: actions.Refresh, now: float) -> None:
        """The offers follow when all that are out of date are up to date."""
        held = self._mine.memory.held[do.device]
        if not do.uuids and without(self._board.state.offers, held) != self._board.state.offers:
            self._mine.withdrawn_at[do.device] = now
        log.info("what a card offers changed", device=do.device, card=do.address, units_of=do.uuids)
        await self._mine.hold(do.device, held._replace(address=do.address, uuids=do.uuids))

    async def withdraw(self, do: actions.Withdraw, now: float) -> None:
        """See `actions.Withdraw`. What else is remembered may be out of date, and is not offered by the way."""
        held = self._mine.memory.held[do.device]._replace(offered=False)
        if do.wish is not None and do.wish.releasing and do.wish.pool == held.wish.pool:
            asked = {"releasing": True, "asked_at": do.wish.asked_at}
            held = held._replace(wish=held.wish.model_copy(update=asked))
        log.info("a device is withdrawn", device=do.device, pool=held.wish.pool)
        self._mine.withdrawn_at[do.device] = now
        await self._mine.hold(do.device, held)
        self._board.put(offers=without(self._board.state.offers, held))

    async def adopt(self, do: actions.Adopt) -> None:
        """See `actions.Adopt`."""
        log.info("a device is set up", device=do.device, pool=do.wish.pool, card=do.address, units_of=do.uuids)
        self._mine.retries.pop(do.device, None)
        self._mine.withdrawn_at.pop(do.device, None)
        await self._mine.hold(do.device, HeldDevice(do.wish, do.address, do.card, do.uuids, offered=True))
        self.offer()

    async def divide(self, do: actions.Divide, it: Situation, record: Recorder) -> None:
        """See `actions.Divide`; that it was for this pool is remembered first, so that it can be taken back."""
        held = self._mine.memory.held.get(do.device)
        if held is None or not held.offered:
            await self._mine.hold(do.device, HeldDevice(do.wish, do.address, do.card, held.uuids if held else ()))
        self.offer()
        log.info("a card is divided", device=do.device, card=do.address, steps=[str(step) for step in do.steps])
        try:
            await self._carrying(do.address, do.card).divide(do.steps, do.before)
        except StepFailedError as stopped:
            await self._refuse(do.device, do.wish, stopped.refusal, it, record)
        else:
            self._mine.retries.pop(do.device, None)
            await self._mine.told(do.device, None)

    async def clear(self, do: actions.Clear, it: Situation) -> None:
        """See `actions.Clear`."""
        log.info("a card is taken back", device=do.device, card=do.address, steps=[str(step) for step in do.steps])
        try:
            await self._carrying(do.address, do.card).clear(do.steps, do.before)
        except StepFailedError as stopped:
            self.postpone(actions.Postpone(do.device, do.wish, stopped.refusal.message), it)

    async def puzzle(self, do: actions.Divide | actions.Clear, it: Situation, record: Recorder) -> None:
        """The card does not show what was just done to it; it is not done again and again."""
        refusal = Refusal(NOT_AS_DIVIDED, "The card does not show what was done to it; look at its driver.")
        if isinstance(do, actions.Divide):
            await self._refuse(do.device, do.wish, refusal, it, record)
        else:
            self.postpone(actions.Postpone(do.device, do.wish, refusal.message), it)

    async def say(self, do: actions.Say, it: Situation, record: Recorder) -> None:
        """See `actions.Say`; what was told before is not told again, and what is told is offered first."""
        if do.failed:
            self._fail(do.device, do.wish, it)
        if do.told == self._mine.memory.told.get(do.device) or self._is_early(do):
            return
        self.offer()
        await self._record(do.device, _payload(do.told, do.message), record)
        await self._mine.told(do.device, do.told)

    async def release(self, do: actions.Release, record: Recorder) -> None:
        """See `actions.Release`."""
        if do.told is not None:
            await self._record(do.device, _payload(do.told, ""), record)
        await self._mine.released(do.device, do.told)

    def postpone(self, do: actions.Postpone, it: Situation) -> None:
        """See `actions.Postpone`; the first time it is logged."""
        if self._fail(do.device, do.wish, it) == 1:
            log.warning("a device has to wait", device=do.device, reason=do.why)

    async def _refuse(self, device: str, wish: WantedDevice, refusal: Refusal, it: Situation, record: Recorder) -> None:
        told = Outcome(wish.pool, wish.asked_at, "refused", reason=refusal.reason)
        await self.say(actions.Say(device, wish, told, refusal.message, failed=True), it, record)

    def _carrying(self, address: str, card: str) -> MigExecutor:
        return MigExecutor(self._calls, address, card, lambda: self._board.state.in_use, self._beat)

    def _fail(self, device: str, wish: WantedDevice | None, it: Situation) -> int:
        attempt = failed(self._mine.retries.get(device), wish, it.mark(device, wish), it.now)
        self._mine.retries[device] = attempt
        return attempt.failures

    def _is_early(self, do: actions.Say) -> bool:
        return do.told.reason == IN_USE and self._mine.retries[do.device].failures < BUSY_TOLD_AFTER

    async def _record(self, device: str, data: Payload, record: Recorder) -> None:
        log.info("told of a device", device=device, told=data.EVENT, **data.model_dump(mode="json"))
        await record([AgentFact(device, data, self._clock())])


def _payload(told: Outcome, message: str) -> Payload:
    match told.word:
        case "applied":
            return DevicePoolApplied(pool=told.pool, partitions=told.partitions)
        case "refused":
            return DevicePoolRefused(pool=told.pool, reason=told.reason, message=message[:TEXT_LENGTH_MAX])
        case "released":
            return DevicePoolReleased(pool=told.pool)
