"""The health of one card as a value, and the rules that judge it. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.aggregation import Windows
from gpuledger.agent.health.severity import DEFAULT_CLASSES, POWER, THERMAL, ErrorClasses
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.runtime.clock import Instant

CLEAR_AFTER_S: Final = 300.0
"""A fault that no reading shows clears when no error of its kind came for so long."""

CLEAR_AFTER_MAX_S: Final = 7_200.0
"""The bound of that time, which doubles with every fault of the kind within `REPEATED_S` of the one before."""

REPEATED_S: Final = 86_400.0

THROTTLE_S: Final = 60.0
"""Throttling that ends earlier is not reported."""

RECOVERY_POLLS: Final = 2
"""A fault that readings show clears when so many polls in a row do not show it."""

QUICK_CLEARS_MAX: Final = 2
"""How many times in a row a fault that readings show clears that quickly; after that it also has to stay away as long
as a fault that no reading shows, so that a flapping card is not handed out each time."""

FAULTS_MAX: Final = 64
"""How many faults of a card are told apart; further ones are reported as errors of a card that is unfit anyway."""

HISTORY_MAX: Final = 32
"""How many kinds of faults of a card have a history."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the cards of a node are judged; `clear_after_max_s` is at least `clear_after_s`."""

    node: str
    classes: ErrorClasses = DEFAULT_CLASSES
    clear_after_s: float = CLEAR_AFTER_S
    clear_after_max_s: float = CLEAR_AFTER_MAX_S
    throttle_s: float = THROTTLE_S

    def report_after_s(self, kind: str) -> float:
        """How long a warning of a kind has to last before it is reported."""
        return self.throttle_s if kind in {THERMAL, POWER} else 0.0


class CardFault(NamedTuple):
    """A reason why a card cannot be used, and when it was last observed.

    A fault `in_readings` clears when `clear_polls` polls in a row did not show it, and none did for `clear_after_s`.
    Any other clears after `clear_after_s` without a further error, or as soon as the card `was_reset`. `action` is the
    recommended one.
    """

    kind: str
    message: str
    in_readings: bool
    last: Instant
    clear_after_s: float = 0.0
    clear_polls: int = 0
    was_reset: bool = False
    action: str = NO_ACTION


class FaultHistory(NamedTuple):
    """How often in a row, each within `REPEATED_S` of the one before, a card had a kind of fault, and when last."""

    kind: str
    times: int
    last: Instant


class LastingWarning(NamedTuple):
    """A warning that readings show of a usable card, since when, and whether it was reported."""

    kind: str
    message: str
    since: Instant
    is_reported: bool


class CardHealth(NamedTuple):
    """The health of the card at an address.

    `unfit_subject` is the subject under which the card was reported unfit, None while it is fit. `is_reported` says
    that its verdict was reported since the card appeared, or the agent started: agent and readers may have lost it
    before. `was_absent` says that the card or its driver was not there since the last `readings`, so that it was reset
    when it returns.
    """

    address: str
    uuid: str | None = None
    faults: tuple[CardFault, ...] = ()
    unfit_subject: str | None = None
    history: tuple[FaultHistory, ...] = ()
    readings: Readings | None = None
    was_absent: bool = False
    warnings: tuple[LastingWarning, ...] = ()
    windows: Windows = ()
    is_reported: bool = False

    def place(self, rules: Rules) -> str:
        """The card's place: its node and address."""
        return place_of(rules.node, self.address)

    def subject(self, rules: Rules) -> str:
        """The subject of the card's events: its UUID, or its place where the card has not given one."""
        return self.uuid or self.place(rules)
