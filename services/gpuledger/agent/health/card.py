"""What is known of the health of a card, as a value, and the rules by which it is judged."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.aggregation import Windows
from gpuledger.agent.health.classes import DEFAULT_CLASSES, POWER, THERMAL, Classes
from gpuledger.agent.part import Moment
from gpuledger.domain.inventory.device_names import place_of

QUIET_S: Final = 300.0
"""A card that had a fault that no reading shows is fit again when none of the kind came for so long."""

QUIET_MAX_S: Final = 7_200.0
"""What that grows to, doubling, with every fault of the kind within `REPEATED_S` of the one before."""

REPEATED_S: Final = 86_400.0

THROTTLE_S: Final = 60.0
"""Clocks that are held back for less than this are not told of."""

RECOVERY_LOOKS: Final = 2
"""So many looks in a row have to show that a fault is gone."""

SOON_OVER_TIMES: Final = 2
"""So many times in a row what readings show is over as soon as they show it no more; then it has to stay away as long
as a fault that no reading shows, so that a card that comes and goes is not given out each time."""

FAULTS_MAX: Final = 64
"""Faults of a card that are told apart at a time; further ones are told as errors of a card that is unfit anyway."""

PAST_MAX: Final = 32
"""Kinds of faults of which a card's past is remembered."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the cards of a node are judged. `quiet_max_s` is at least `quiet_s`."""

    node: str
    classes: Classes = DEFAULT_CLASSES
    quiet_s: float = QUIET_S
    quiet_max_s: float = QUIET_MAX_S
    throttle_s: float = THROTTLE_S

    def bears_s(self, kind: str) -> float:
        """How long something of a kind has to stand before it is told."""
        return self.throttle_s if kind in {THERMAL, POWER} else 0.0


class Fault(NamedTuple):
    """Why a card cannot be used, last seen at a moment.

    `standing` says that readings show it, so that they also show its end; `clear_looks` did so in a row by now, and it
    was not seen for `quiet_s`. Any other is over after `quiet_s` without a further one, or once the card `was_reset`.
    """

    kind: str
    message: str
    standing: bool
    last: Moment
    quiet_s: float = 0.0
    clear_looks: int = 0
    was_reset: bool = False


class Past(NamedTuple):
    """How often in a row, each within `REPEATED_S` of the one before, a card had a kind of fault, and when last."""

    kind: str
    times: int
    last: Moment


class Lasting(NamedTuple):
    """Something wrong with a card that can be used, which stands since a moment; `told` says whether that was told."""

    kind: str
    message: str
    since: Moment
    told: bool


class CardHealth(NamedTuple):
    """What is known of the health of the card at an address.

    `told` is the subject under which it was told to be unfit, None while it is fit. `is_known` says that one or the
    other was told since it came, or the agent began: who hears it may have forgotten, and the agent too. `readings` are
    the last that it gave, and `was_away` says that it, or its driver, has not been there since: when it is back it has
    been reset.
    """

    address: str
    uuid: str | None = None
    faults: tuple[Fault, ...] = ()
    told: str | None = None
    past: tuple[Past, ...] = ()
    readings: Readings | None = None
    was_away: bool = False
    lasting: tuple[Lasting, ...] = ()
    windows: Windows = ()
    is_known: bool = False

    def place(self, rules: Rules) -> str:
        """Where the card is."""
        return place_of(rules.node, self.address)

    def subject(self, rules: Rules) -> str:
        """What it is called in what is told: its UUID, or its place where it tells none."""
        return self.uuid or self.place(rules)
