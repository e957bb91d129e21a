"""What may follow from how things stand with the devices: one step, which leaves who takes it no choice."""

from typing import NamedTuple

from gpuledger.agent.setup.state import Outcome
from gpuledger.domain.mig.plan import MigState, Step
from gpuledger.events.node import WantedDevice


class Withdraw(NamedTuple):
    """Offer the device's units no more. `wish` is why, where a pool wants it so."""

    device: str
    wish: WantedDevice | None


class Refresh(NamedTuple):
    """Offer what the card really has."""

    device: str
    address: str
    uuids: tuple[str, ...]


class Look(NamedTuple):
    """Ask the hardware which instances of the card processes use."""

    device: str
    address: str


class Divide(NamedTuple):
    """Change how the card is divided, for a pool; what was done is undone where a step fails."""

    device: str
    wish: WantedDevice
    address: str
    card: str
    before: MigState
    steps: tuple[Step, ...]


class Clear(NamedTuple):
    """Take back how the card is divided."""

    device: str
    wish: WantedDevice | None
    address: str
    card: str
    before: MigState
    steps: tuple[Step, ...]


class Adopt(NamedTuple):
    """The card is as the pool wants it: offer its units."""

    device: str
    wish: WantedDevice
    address: str
    card: str
    uuids: tuple[str, ...]


class Say(NamedTuple):
    """Tell that the device was set up, or why it was not; `failed` says that it is to be tried again."""

    device: str
    wish: WantedDevice
    told: Outcome
    message: str = ""
    failed: bool = False


class Release(NamedTuple):
    """Nothing is left of the device's set-up: forget it, and tell the pool that asked for it; None: nobody did."""

    device: str
    told: Outcome | None


class Postpone(NamedTuple):
    """Nothing can be done now, and the board will not show when something can be: try again after a pause."""

    device: str
    wish: WantedDevice | None
    why: str


class Wait(NamedTuple):
    """Nothing is to be done before `until`, in seconds of the event loop's clock, or before something changes."""

    until: float | None = None


Action = Withdraw | Refresh | Look | Divide | Clear | Adopt | Say | Release | Postpone
