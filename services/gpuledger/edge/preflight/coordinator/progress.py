"""What the leader has done for gangs that has not come back with the log yet, and when each is to be looked at. Pure.

What was recorded here counts at once: the fold has it only when it comes back.
"""

from datetime import datetime
from typing import NamedTuple

from gpuledger.edge.preflight.coordinator.decide import GangConfig
from gpuledger.edge.preflight.coordinator.state import GangRow, text_of_peers


class Look(NamedTuple):
    """A look at the ConfigMap that was written as the gang's `serial`-th: how often it was done, and when next."""

    serial: int
    times: int
    next_at_s: float


class GangProgress:
    """What was recorded of gangs, and their looks."""

    def __init__(self) -> None:
        self._written: dict[str, GangRow] = {}
        self._timed_out: dict[str, str] = {}
        self._problems: dict[str, tuple[str, int]] = {}
        self._dissolved: dict[str, str] = {}
        self.looks: dict[str, Look] = {}

    def seen(self, row: GangRow) -> GangRow:
        """The gang as the fold has it, with what was recorded here since."""
        written = self._written.get(row.gang)
        if written is not None and row.serial >= written.serial:
            del self._written[row.gang]
            written = None
        if written is not None:
            row = row._replace(
                peers=written.peers, expected=written.expected, passed=written.passed,
                is_complete=written.is_complete, configured_at=written.configured_at, writes=written.writes,
                serial=written.serial,
            )  # fmt: skip
        return row._replace(has_timed_out=row.has_timed_out or self._timed_out.get(row.gang) == row.round)

    def has_problem(self, row: GangRow, reason: str) -> bool:
        """Whether it was recorded already that the gang cannot be configured for a reason."""
        return row.problem == reason or self._problems.get(row.gang) == (reason, row.serial)

    def is_dissolved(self, row: GangRow) -> bool:
        """Whether it was recorded already that the gang is over."""
        return self._dissolved.get(row.gang) == row.fact

    def configured(self, row: GangRow, config: GangConfig, at: datetime) -> GangRow:
        """A write was recorded; returns the gang as it is now."""
        self._written[row.gang] = row = row._replace(
            peers=text_of_peers(config.peers), expected=config.expected, passed=config.passed,
            is_complete=config.is_complete, configured_at=at, writes=row.writes + 1, serial=row.serial + 1, problem="",
        )  # fmt: skip
        self._problems.pop(row.gang, None)
        return row

    def timed_out(self, row: GangRow) -> None:
        """A time-out was recorded."""
        self._timed_out[row.gang] = row.round

    def not_configured(self, row: GangRow, reason: str) -> None:
        """It was recorded that the gang cannot be configured."""
        self._problems[row.gang] = (reason, row.serial)

    def dissolved(self, row: GangRow) -> None:
        """It was recorded that the gang is over."""
        self.forget(row.gang)
        self._dissolved[row.gang] = row.fact

    def forget(self, gang: str) -> None:
        """The gang is over in the fold too."""
        for kept in (self._written, self._timed_out, self._problems, self._dissolved, self.looks):
            kept.pop(gang, None)
