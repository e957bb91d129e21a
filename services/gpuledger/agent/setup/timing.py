"""When what did not work out is tried again: after pauses that grow, or soon after what it depends on changed. Pure."""

from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup.offers import Used
from gpuledger.events.node import WantedDevice
from gpuledger.runtime.backoff import Backoff

DEBOUNCE_S: Final = 2.0
"""For so long nothing more must have been asked for."""

DEBOUNCE_MAX_S: Final = 20.0
"""So long changes are waited out at most, however they keep coming."""

Wanted = tuple[WantedDevice, ...] | None


class Debounce:
    """Follows what is wanted."""

    def __init__(self) -> None:
        self._wanted: Wanted = None
        self._until = self._latest = 0.0
        self._rested = True

    def until(self, wanted: Wanted, now: float) -> float:
        """When it counts, if nothing more comes; in seconds of the same clock as `now`."""
        if wanted != self._wanted:
            if self._rested:
                self._latest = now + DEBOUNCE_MAX_S
            self._wanted, self._until = wanted, min(now + DEBOUNCE_S, self._latest)
        self._rested = now >= self._until
        return self._until


RETRY: Final = Backoff(first_s=1.0, max_s=60.0)


class RetryConditions(NamedTuple):
    """What an attempt depends on, without the UUIDs of instances, which the attempt itself changes."""

    card: CardFacts | None
    used: Used | None


class FailedAttempt(NamedTuple):
    """What was tried for a device, at `at` for the last time, in seconds of the event loop's clock.

    `wish` None: to take back what nobody asks for any more.
    """

    wish: WantedDevice | None
    mark: RetryConditions
    failures: int
    at: float


def conditions_of(card: CardFacts | None, used: Used | None) -> RetryConditions:
    """The mark of a card as the board shows it, and of the use of it."""
    if card is None:
        return RetryConditions(None, used)
    places = tuple(sorted((each._replace(uuid="") for each in card.instances), key=lambda each: each.start))
    return RetryConditions(card._replace(instances=places), used)


def failed(last: FailedAttempt | None, wish: WantedDevice | None, mark: RetryConditions, now: float) -> FailedAttempt:
    """The attempt after it failed; failures are counted for as long as the wish is the same."""
    failures = last.failures if last is not None and last.wish == wish else 0
    return FailedAttempt(wish, mark, failures + 1, now)


def ready_at(last: FailedAttempt | None, wish: WantedDevice | None, mark: RetryConditions) -> float:
    """When to try for the first time, or again."""
    if last is None or last.wish != wish:
        return 0.0
    return last.at + (RETRY.pause_s(last.failures) if last.mark == mark else RETRY.first_s)
