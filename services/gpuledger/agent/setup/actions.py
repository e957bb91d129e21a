"""The steps that setup may decide on; each leaves the executor no choice. Pure."""

from typing import NamedTuple

from gpuledger.agent.setup.state import Outcome
from gpuledger.domain.mig.plan import MigState, Step
from gpuledger.events.node import WantedDevice


class Withdraw(NamedTuple):
    """Stop offering the device's units; `desired` is the reason, where a pool is."""

    device: str
    desired: WantedDevice | None


class Refresh(NamedTuple):
    """Offer what the card really has."""

    device: str
    address: str
    uuids: tuple[str, ...]


class QueryUsers(NamedTuple):
    """Query which instances of the card processes use."""

    device: str
    address: str


class Divide(NamedTuple):
    """Repartition the card for a pool; a step that fails reverts the steps before it."""

    device: str
    desired: WantedDevice
    address: str
    card: str
    before: MigState
    steps: tuple[Step, ...]


class Clear(NamedTuple):
    """Remove the card's partitions."""

    device: str
    desired: WantedDevice | None
    address: str
    card: str
    before: MigState
    steps: tuple[Step, ...]


class Adopt(NamedTuple):
    """The card is as the pool desires it: offer its units."""

    device: str
    desired: WantedDevice
    address: str
    card: str
    uuids: tuple[str, ...]


class ReportOutcome(NamedTuple):
    """Report that the device was set up, or why it was not; `failed` schedules another attempt."""

    device: str
    desired: WantedDevice
    outcome: Outcome
    message: str = ""
    failed: bool = False


class Release(NamedTuple):
    """Nothing of the setup is left: forget the device, and report the release, if a pool requested one."""

    device: str
    outcome: Outcome | None


class Postpone(NamedTuple):
    """No step is possible, and the board will not show when one is: try again after a pause."""

    device: str
    desired: WantedDevice | None
    reason: str


class Wait(NamedTuple):
    """No step is due before `until`, by the event loop's clock, or before the board changes."""

    until: float | None = None


Action = Withdraw | Refresh | QueryUsers | Divide | Clear | Adopt | ReportOutcome | Release | Postpone

SetupDecision = Action | Wait
