"""Carries out the steps of a plan on a card, one after the other, and undoes what was done where one of them fails.

It decides nothing. Before each step it asks once more whether containers got what the step would take away.
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
"""The ids of units that containers have at the moment, by resource; None: unknown."""

_REASONS = (
    (BusyError, IN_USE),
    (CardLostError, "CardMissing"),
    (DriverMissingError, "DriverMissing"),
    (HungError, "DriverHung"),
    (UnsupportedError, "HardwareRefused"),
)


class StepFailedError(Exception):
    """A step could not be done; `refusal` says why in the words of events."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class MigExecutor:
    """Carries out steps on one card; `uuid` is the card's own."""

    def __init__(self, calls: AsyncHardware, address: str, uuid: str, in_use: InUse, beat: Callable[[], None]) -> None:
        self._calls = calls
        self._address = address
        self._uuid = uuid
        self._in_use = in_use
        self._beat = beat

    async def divide(self, steps: Sequence[Step], before: MigState) -> None:
        """Do the steps, all of them or, as far as the card lets itself be restored, none.

        Raises:
            Stopped: one of them failed.
        """
        done: list[Done] = []
        for step in steps:
            try:
                done.append(await self._do(step, before))
            except StepFailedError as stopped:
                raise StepFailedError(await self._restored(done, before, stopped.refusal)) from stopped

    async def clear(self, steps: Sequence[Step], before: MigState) -> None:
        """Do the steps; what was done stays done where one fails, as nobody wants the card as it was.

        Raises:
            Stopped: one of them failed.
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
            raise StepFailedError(Refusal(reason, f"{_words(step)} failed: {error}")) from error

    def _check(self, step: Step, before: MigState) -> None:
        in_use = self._in_use()
        if in_use is None:
            raise BusyError("nobody knows any more what containers use; look at the kubelet's pod-resources socket")
        if isinstance(step, Create):
            return
        everything = {self._uuid, *(each.uuid for each in before.instances)}
        if used_of(in_use, {step.uuid} if isinstance(step, Destroy) else everything):
            raise BusyError("a container got it meanwhile")

    async def _done(self, step: Step) -> Done:
        match step:
            case Enable() | Disable():
                await self._set_mig(enabled=isinstance(step, Enable))
            case Destroy(uuid):
                await self._calls.destroy_instance(self._address, uuid)
            case Create(profile, start):
                return Done(step, await self._calls.create_instance(self._address, profile, start))
        return Done(step)

    async def _set_mig(self, *, enabled: bool) -> None:
        if not await self._calls.set_mig(self._address, enabled=enabled):
            word = "on" if enabled else "off"
            text = f"MIG turns {word} with the card's next reset; reset the card or reboot the node."
            raise StepFailedError(Refusal(RESET_PENDING, text))

    async def _restored(self, done: Sequence[Done], before: MigState, refusal: Refusal) -> Refusal:
        """Undo what can be; the refusal, and what is left undone."""
        left: list[str] = []
        for step in rollback(done, before):
            self._beat()
            try:
                await self._done(step)
            except (HardwareError, StepFailedError) as error:
                left.append(f"{_words(step)} failed: {error}")
        log.warning("a card could not be divided", card=self._address, reason=refusal.message, not_restored=left)
        if not left:
            return refusal
        return refusal._replace(message=f"{refusal.message} It could not be restored either. {' '.join(left)}")


def _words(step: Step) -> str:
    match step:
        case Enable():
            return "Turning MIG on"
        case Disable():
            return "Turning MIG off"
        case Destroy(uuid, profile):
            return f"Taking back {profile} ({uuid})"
        case Create(profile, start):
            return f"Dividing off {profile} at {start}"
