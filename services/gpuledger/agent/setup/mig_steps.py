"""Executes the steps of a MIG plan on a card, one after the other, and reverts them where one of them fails.

The executor makes no decisions. Before each step it checks again that no container has got what the step would remove.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.hardware.errors import (
    BusyError,
    CardLostError,
    DriverMissingError,
    HardwareError,
    HungError,
    UnsupportedError,
)
from gpuledger.agent.setup.offers import used_of
from gpuledger.domain.mig.plan import (
    IN_USE,
    RESET_PENDING,
    Create,
    Destroy,
    Disable,
    Done,
    Enable,
    MigState,
    Refusal,
    Step,
    rollback,
)

log = structlog.get_logger("gpuledger.agent")

InUse = Callable[[], Mapping[str, frozenset[str]] | None]
"""The ids of the units that containers hold now, by resource; None: unknown."""

_REASONS = (
    (BusyError, IN_USE),
    (CardLostError, "CardMissing"),
    (DriverMissingError, "DriverMissing"),
    (HungError, "DriverHung"),
    (UnsupportedError, "HardwareRefused"),
)


class StepFailedError(Exception):
    """A step failed; `refusal` says why, in the terms of events."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class MigExecutor:
    """Executes steps on one card; `uuid` is the card's own."""

    def __init__(
        self, hardware: AsyncHardware, address: str, uuid: str, in_use: InUse, beat: Callable[[], None]
    ) -> None:
        self._hardware = hardware
        self._address = address
        self._uuid = uuid
        self._in_use = in_use
        self._beat = beat

    async def divide(self, steps: Sequence[Step], before: MigState) -> None:
        """Take all steps, or none as far as the card can be restored.

        Raises:
            StepFailedError: a step failed.
        """
        done: list[Done] = []
        for step in steps:
            try:
                done.append(await self._do(step, before))
            except StepFailedError as failure:
                raise StepFailedError(await self._restore(done, before, failure.refusal)) from failure

    async def clear(self, steps: Sequence[Step], before: MigState) -> None:
        """Take the steps; those before a failed one stay taken, because no pool desires the card as it was.

        Raises:
            StepFailedError: a step failed.
        """
        for step in steps:
            await self._do(step, before)

    async def _do(self, step: Step, before: MigState) -> Done:
        self._beat()
        try:
            self._check(step, before)
            return await self._done(step)
        except HardwareError as error:
            reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), "HardwareError")
            raise StepFailedError(Refusal(reason, f"{_description(step)} failed: {error}")) from error

    def _check(self, step: Step, before: MigState) -> None:
        in_use = self._in_use()
        if in_use is None:
            raise BusyError("it is unknown what containers use; look at the kubelet's pod-resources socket")
        if isinstance(step, Create):
            return
        everything = {self._uuid, *(each.uuid for each in before.instances)}
        if used_of(in_use, {step.uuid} if isinstance(step, Destroy) else everything):
            raise BusyError("a container has got it meanwhile")

    async def _done(self, step: Step) -> Done:
        match step:
            case Enable() | Disable():
                await self._set_mig(enabled=isinstance(step, Enable))
            case Destroy(uuid):
                await self._hardware.destroy_instance(self._address, uuid)
            case Create(profile, start):
                return Done(step, await self._hardware.create_instance(self._address, profile, start))
        return Done(step)

    async def _set_mig(self, *, enabled: bool) -> None:
        if not await self._hardware.set_mig(self._address, enabled=enabled):
            kind = "on" if enabled else "off"
            text = f"MIG turns {kind} with the card's next reset; reset the card or reboot the node."
            raise StepFailedError(Refusal(RESET_PENDING, text))

    async def _restore(self, done: Sequence[Done], before: MigState, refusal: Refusal) -> Refusal:
        """Revert what can be reverted; returns the refusal, with what could not."""
        left: list[str] = []
        for step in rollback(done, before):
            self._beat()
            try:
                await self._done(step)
            except (HardwareError, StepFailedError) as error:
                left.append(f"{_description(step)} failed: {error}")
        log.warning("a card could not be partitioned", card=self._address, reason=refusal.message, not_restored=left)
        if not left:
            return refusal
        return refusal._replace(message=f"{refusal.message} It could not be restored either. {' '.join(left)}")


def _description(step: Step) -> str:
    match step:
        case Enable():
            return "Turning MIG on"
        case Disable():
            return "Turning MIG off"
        case Destroy(uuid, profile):
            return f"Destroying {profile} ({uuid})"
        case Create(profile, start):
            return f"Creating {profile} at {start}"
