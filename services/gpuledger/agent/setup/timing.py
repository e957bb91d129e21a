"""When setup acts: once desired devices have stopped changing, and again after a failure with growing pauses. Pure.

A retry comes soon where something that the attempt depends on has changed.
"""

from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup.offers import Used
from gpuledger.events.node import WantedDevice
from gpuledger.runtime.backoff import Backoff

DEBOUNCE_S: Final = 0.05
"""How long the desired devices must not change: what pools decide in one go arrives within a few milliseconds.

Nothing depends on it but work that would be undone at once: every list was decided, and may be applied.
"""

DEBOUNCE_MAX_S: Final = 0.25
"""How long a series of changes is waited out: the first of many devices must not wait for the last annotation."""

RETRY: Final = Backoff(first_s=1.0, max_s=60.0)


class Debounce:
    """Waits for the desired devices to stop changing, so that pools' changes are applied together; reads no clock."""

    def __init__(self) -> None:
        self._desired: tuple[WantedDevice, ...] | None = None
        self._until = self._latest = 0.0
        self._rested = True

    def until(self, desired: tuple[WantedDevice, ...] | None, now: float) -> float:
        """When these devices count if nothing more changes, by the clock of `now`."""
        if desired != self._desired:
            if self._rested:
                self._latest = now + DEBOUNCE_MAX_S
            self._desired, self._until = desired, min(now + DEBOUNCE_S, self._latest)
        self._rested = now >= self._until
        return self._until


class RetryConditions(NamedTuple):
    """What an attempt depends on, without the UUIDs of instances, which the attempt itself changes."""

    card: CardFacts | None
    used: Used | None


class FailedAttempt(NamedTuple):
    """An attempt to set a device up, or (`desired` None) to clear it, and when it last failed, by the loop's clock."""

    desired: WantedDevice | None
    conditions: RetryConditions
    failures: int
    at: float


def conditions_of(card: CardFacts | None, used: Used | None) -> RetryConditions:
    """The conditions of an attempt on a card, which containers use so."""
    if card is None:
        return RetryConditions(None, used)
    places = tuple(sorted((each._replace(uuid="") for each in card.instances), key=lambda each: each.start))
    return RetryConditions(card._replace(instances=places), used)


def failed(
    last: FailedAttempt | None, desired: WantedDevice | None, conditions: RetryConditions, now: float
) -> FailedAttempt:
    """The attempt after one more failure; failures count for as long as the same is desired."""
    failures = last.failures if last is not None and last.desired == desired else 0
    return FailedAttempt(desired, conditions, failures + 1, now)


def due_at(last: FailedAttempt | None, desired: WantedDevice | None, conditions: RetryConditions) -> float:
    """When the first or next attempt is due."""
    if last is None or last.desired != desired:
        return 0.0
    return last.at + (RETRY.pause_s(last.failures) if last.conditions == conditions else RETRY.first_s)
