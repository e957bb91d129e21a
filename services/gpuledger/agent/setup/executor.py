"""Executes the decisions of setup: on the hardware, on the board, in the stored state and in the ledger, in this order.

The executor makes no decisions. A step that fails is noted, and the next decision starts from what is so then.
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
from gpuledger.events.payload import Payload, truncated
from gpuledger.runtime.clock import Clock

BUSY_REPORTED_AFTER: Final = 3
"""How often in a row a card must be in use before that is reported: what has just ended uses it a moment longer."""

NOT_AS_DIVIDED: Final = "CardNotAsDivided"

log = structlog.get_logger("gpuledger.agent")


class SetupExecutor:
    """Executes the actions of one agent; calls `beat` before each step on the hardware."""

    def __init__(
        self, hardware: AsyncHardware, board: Board, store: SetupStore, *, clock: Clock, beat: Callable[[], None]
    ) -> None:
        self._hardware = hardware
        self._board = board
        self._store = store
        self._clock = clock
        self._beat = beat

    def offer(self) -> None:
        """Put all offers on the board."""
        self._board.put(offers=offers(self._store.state.held.values()))

    async def refresh(self, action: actions.Refresh, now: float) -> None:
        """See `actions.Refresh`. The board follows when no offer is out of date any more."""
        held = self._store.state.held[action.device]
        if not action.uuids and without(self._board.state.offers, held) != self._board.state.offers:
            self._store.withdrawn_at[action.device] = now
        log.info("what a card offers changed", device=action.device, card=action.address, units_of=action.uuids)
        await self._store.set_held(action.device, held._replace(address=action.address, uuids=action.uuids))

    async def withdraw(self, action: actions.Withdraw, now: float) -> None:
        """See `actions.Withdraw`. Other offers may be out of date, and are left as they are."""
        held = self._store.state.held[action.device]._replace(offered=False)
        if action.desired is not None and action.desired.releasing and action.desired.pool == held.desired.pool:
            update = {"releasing": True, "asked_at": action.desired.asked_at}
            held = held._replace(desired=held.desired.model_copy(update=update))
        log.info("a device is withdrawn", device=action.device, pool=held.desired.pool)
        self._store.withdrawn_at[action.device] = now
        await self._store.set_held(action.device, held)
        self._board.put(offers=without(self._board.state.offers, held))

    async def adopt(self, action: actions.Adopt) -> None:
        """See `actions.Adopt`."""
        log.info(
            "a device is set up",
            device=action.device,
            pool=action.desired.pool,
            card=action.address,
            units_of=action.uuids,
        )
        self._store.retries.pop(action.device, None)
        self._store.withdrawn_at.pop(action.device, None)
        await self._store.set_held(
            action.device, HeldDevice(action.desired, action.address, action.card, action.uuids, offered=True)
        )
        self.offer()

    async def divide(self, action: actions.Divide, situation: Situation, record: Recorder) -> None:
        """See `actions.Divide`. The pool is stored first, so that the card can be cleared whatever happens."""
        held = self._store.state.held.get(action.device)
        if held is None or not held.offered:
            await self._store.set_held(
                action.device, HeldDevice(action.desired, action.address, action.card, held.uuids if held else ())
            )
        self.offer()
        log.info(
            "partitioning a card", device=action.device, card=action.address, steps=[str(step) for step in action.steps]
        )
        try:
            await self._mig_executor(action.address, action.card).divide(action.steps, action.before)
        except StepFailedError as failure:
            await self._refuse(action.device, action.desired, failure.refusal, situation, record)
        else:
            self._store.retries.pop(action.device, None)
            await self._store.set_outcome(action.device, None)

    async def clear(self, action: actions.Clear, situation: Situation) -> None:
        """See `actions.Clear`."""
        log.info(
            "clearing a card",
            device=action.device,
            card=action.address,
            steps=[str(step) for step in action.steps],
        )
        try:
            await self._mig_executor(action.address, action.card).clear(action.steps, action.before)
        except StepFailedError as failure:
            self.postpone(actions.Postpone(action.device, action.desired, failure.refusal.message), situation)

    async def on_unchanged(
        self, action: actions.Divide | actions.Clear, situation: Situation, record: Recorder
    ) -> None:
        """The card does not show what was just done to it; it is not done over and over."""
        refusal = Refusal(NOT_AS_DIVIDED, "The card does not show what was done to it; look at its driver.")
        if isinstance(action, actions.Divide):
            await self._refuse(action.device, action.desired, refusal, situation, record)
        else:
            self.postpone(actions.Postpone(action.device, action.desired, refusal.message), situation)

    async def report(self, action: actions.ReportOutcome, situation: Situation, record: Recorder) -> None:
        """See `actions.ReportOutcome`. Offers come first, and a reported outcome is not repeated."""
        if action.failed:
            self._fail(action.device, action.desired, situation)
        if action.outcome == self._store.state.outcomes.get(action.device) or self._is_transient(action):
            return
        self.offer()
        await self._record(action.device, _payload(action.outcome, action.message), record)
        await self._store.set_outcome(action.device, action.outcome)

    async def release(self, action: actions.Release, record: Recorder) -> None:
        """See `actions.Release`."""
        if action.outcome is not None:
            await self._record(action.device, _payload(action.outcome, ""), record)
        await self._store.release(action.device, action.outcome)

    def postpone(self, action: actions.Postpone, situation: Situation) -> None:
        """See `actions.Postpone`; logged the first time."""
        if self._fail(action.device, action.desired, situation) == 1:
            log.warning("a device has to wait", device=action.device, reason=action.reason)

    async def _refuse(
        self, device: str, desired: WantedDevice, refusal: Refusal, situation: Situation, record: Recorder
    ) -> None:
        outcome = Outcome(desired.pool, desired.asked_at, "refused", reason=refusal.reason)
        await self.report(
            actions.ReportOutcome(device, desired, outcome, refusal.message, failed=True), situation, record
        )

    def _mig_executor(self, address: str, card: str) -> MigExecutor:
        return MigExecutor(self._hardware, address, card, lambda: self._board.state.in_use, self._beat)

    def _fail(self, device: str, desired: WantedDevice | None, situation: Situation) -> int:
        attempt = failed(self._store.retries.get(device), desired, situation.conditions(device, desired), situation.now)
        self._store.retries[device] = attempt
        return attempt.failures

    def _is_transient(self, action: actions.ReportOutcome) -> bool:
        return action.outcome.reason == IN_USE and self._store.retries[action.device].failures < BUSY_REPORTED_AFTER

    async def _record(self, device: str, data: Payload, record: Recorder) -> None:
        log.info("reported the outcome of a device", device=device, outcome=data.EVENT, **data.model_dump(mode="json"))
        await record([AgentFact(device, data, self._clock())])


def _payload(outcome: Outcome, message: str) -> Payload:
    match outcome.kind:
        case "applied":
            return DevicePoolApplied(pool=outcome.pool, partitions=outcome.partitions)
        case "refused":
            return DevicePoolRefused(pool=outcome.pool, reason=outcome.reason, message=truncated(message))
        case "released":
            return DevicePoolReleased(pool=outcome.pool)
