"""Plans the steps that divide a card as its pool requires. Pure.

A plan leaves its executor no choice, never touches what is in use, and is empty if there is nothing to do, so that
planning again after each step, failure or restart is always right.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from gpuledger.domain.mig.geometry import (
    Instance,
    Place,
    Profile,
    compute_slices,
    find_profile,
    obstacle,
    place_of,
)

WHOLE: Final = ""
"""Stands for the card itself among the busy UUIDs."""


class MigState(NamedTuple):
    """How a card is divided, which profiles it has, and which parts are in use.

    `enabled` is the current mode, None if the card has no MIG. `pending` says that the next reset changes the mode.
    `busy` are UUIDs of instances, and `WHOLE` where the card itself is in use.
    """

    enabled: bool | None
    pending: bool = False
    profiles: tuple[Profile, ...] = ()
    instances: tuple[Instance, ...] = ()
    busy: frozenset[str] = frozenset()


class Enable(NamedTuple):
    """Turn MIG on."""


class Disable(NamedTuple):
    """Turn MIG off."""


class Destroy(NamedTuple):
    """Destroy the idle instance at this place."""

    uuid: str
    profile: str
    start: int


class Create(NamedTuple):
    """Create an instance of a profile, with all of its compute."""

    profile: str
    start: int


Step = Enable | Disable | Destroy | Create


class Plan(NamedTuple):
    """The steps in their order, and the places of instances afterwards, including those in use."""

    steps: tuple[Step, ...] = ()
    target: tuple[Place, ...] = ()


class Refusal(NamedTuple):
    """Why there is no plan; `reason` is a CamelCase name as in events, and the message says what to do next."""

    reason: str
    message: str


NOT_SUPPORTED: Final = "MigNotSupported"
PROFILE_NOT_SUPPORTED: Final = "MigProfileNotSupported"
IN_USE: Final = "DeviceInUse"
RESET_PENDING: Final = "MigResetPending"


class Done(NamedTuple):
    """A step that was done, and the instance that it created, if any."""

    step: Step
    made: Instance | None = None


def plan(card: MigState, profile_name: str | None) -> Plan | Refusal:
    """The plan for as many instances of a profile as fit beside those in use; None: MIG is to be off.

    Idle instances of the profile stay if that costs none, and those of other profiles go. A mode that is right, but
    would change with the next reset, is set again so that it stays.
    """
    if card.enabled is None:
        message = "The card has no MIG; choose another pool for it."
        return Plan() if profile_name is None else Refusal(NOT_SUPPORTED, message)
    if profile_name is None:
        return _undivided(card)
    profile = find_profile(card.profiles, profile_name)
    if profile is None:
        names = ", ".join(one.name for one in card.profiles) or "none"
        return Refusal(PROFILE_NOT_SUPPORTED, f"The card has no MIG profile {profile_name}; it has {names}.")
    return _mode_refusal(card, enabled=True) or _divided(card, profile)


def rollback(done: Sequence[Done], before: MigState) -> tuple[Step, ...]:
    """The steps that restore the card after one failed, given those that were done before it.

    Destroyed instances are created again at their places; their UUIDs may be others then.
    """
    steps = (_inverse(each, before) for each in reversed(done))
    return tuple(step for step in steps if step is not None)


def _inverse(done: Done, before: MigState) -> Step | None:
    match done:
        case Done(Enable()):
            return None if before.enabled else Disable()
        case Done(Disable()):
            return Enable() if before.enabled else None
        case Done(Destroy(_, profile, start)):
            return Create(profile, start)
        case Done(_, Instance(uuid, profile, start)):
            return Destroy(uuid, profile, start)
    return None


def _undivided(card: MigState) -> Plan | Refusal:
    refusal = _mode_refusal(card, enabled=False)
    if refusal is not None:
        return refusal
    steps: list[Step] = [_destroy(instance) for instance in card.instances]
    if card.enabled or card.pending:
        steps.append(Disable())
    return Plan(tuple(steps))


def _mode_refusal(card: MigState, *, enabled: bool) -> Refusal | None:
    """Why the card's mode cannot be set; None if it can, or need not."""
    if card.enabled == enabled:
        return None
    word = "on" if enabled else "off"
    if card.pending:
        return Refusal(
            RESET_PENDING, f"MIG turns {word} with the card's next reset; reset the card or reboot the node."
        )
    if card.busy:
        text = f"MIG cannot be turned {word} while {_names(card, card.busy)} is in use; wait until it is free."
        return Refusal(IN_USE, text)
    return None


def _divided(card: MigState, profile: Profile) -> Plan | Refusal:
    busy = tuple(instance for instance in card.instances if instance.uuid in card.busy)
    idle = {place_of(instance): instance for instance in card.instances if instance.uuid not in card.busy}
    places = _places(card, profile, busy, idle)
    already = [instance for instance in busy if instance.profile == profile.name]
    if not places and not already:
        return _no_room(card, profile, busy)
    steps: list[Step] = [] if card.enabled and not card.pending else [Enable()]
    steps += [_destroy(instance) for place, instance in sorted(idle.items()) if place not in places]
    steps += [Create(profile.name, place.start) for place in places if place not in idle]
    return Plan(tuple(steps), tuple(sorted([*places, *map(place_of, busy)])))


def _no_room(card: MigState, profile: Profile, busy: Sequence[Instance]) -> Refusal:
    if not busy:
        return Refusal(PROFILE_NOT_SUPPORTED, f"The card has no place for {profile.name}, though it names the profile.")
    text = f"No {profile.name} fits beside {_names(card, card.busy)}, in use; wait until it is free."
    return Refusal(IN_USE, text)


def _places(card: MigState, profile: Profile, busy: Sequence[Instance], idle: Iterable[Place]) -> tuple[Place, ...]:
    """The most places for instances beside those in use; of several choices the one that keeps most, lowest first.

    All choices are tried: a profile may begin at no more than eight places of a card.
    """
    free = [start for start in profile.starts if obstacle(card.profiles, busy, profile, start) is None]
    standing = {place.start for place in idle if place.profile == profile.name}
    for number in range(min(len(free), compute_slices(card.profiles) // profile.compute), 0, -1):
        fitting = [starts for starts in combinations(sorted(free), number) if _fit(card, profile, busy, starts)]
        if fitting:
            starts = max(fitting, key=lambda starts: len(standing.intersection(starts)))
            return tuple(Place(start, profile.name) for start in starts)
    return ()


def _fit(card: MigState, profile: Profile, busy: Sequence[Instance], starts: Sequence[int]) -> bool:
    standing = list(busy)
    for start in starts:
        if obstacle(card.profiles, standing, profile, start) is not None:
            return False
        standing.append(Instance(WHOLE, profile.name, start, profile.size))
    return True


def _destroy(instance: Instance) -> Destroy:
    return Destroy(instance.uuid, instance.profile, instance.start)


def _names(card: MigState, busy: frozenset[str]) -> str:
    found = [f"{instance.profile} ({instance.uuid})" for instance in card.instances if instance.uuid in busy]
    return ", ".join(found) or "the card"
