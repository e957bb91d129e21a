"""Which steps bring a card from how it is divided to how it is wanted: decided here and nowhere else.

Nothing here looks at a card. A plan leaves its executor no choice, never touches what is in use, and is empty where
nothing is to be done, so that planning anew after each step, failure or restart is always right.
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
"""Names the card itself among what is busy."""


class MigState(NamedTuple):
    """How a card is divided, by which profiles it can be, and what of it is in use.

    `enabled` is the mode in force; None: the card knows no MIG. `pending` says that the next reset turns it over.
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
    """Take back an idle instance, which stands at this place."""

    uuid: str
    profile: str
    start: int


class Create(NamedTuple):
    """Divide off an instance of a profile, with the whole of its compute."""

    profile: str
    start: int


Step = Enable | Disable | Destroy | Create


class Plan(NamedTuple):
    """What is to be done, in this order, and where instances stand afterwards, those in use among them, by place."""

    steps: tuple[Step, ...] = ()
    target: tuple[Place, ...] = ()


class Refusal(NamedTuple):
    """Nothing can be done; `reason` is a CamelCase name as events bear it, the message says what to do next."""

    reason: str
    message: str


NOT_SUPPORTED: Final = "MigNotSupported"
PROFILE_NOT_SUPPORTED: Final = "MigProfileNotSupported"
IN_USE: Final = "DeviceInUse"
RESET_PENDING: Final = "MigResetPending"


class Done(NamedTuple):
    """A step that was done, and the instance that came of it where it was to create one."""

    step: Step
    made: Instance | None = None


def plan(card: MigState, wanted: str | None) -> Plan | Refusal:
    """How to get as many instances of the wanted profile as can stand beside those in use; None: no MIG at all.

    Idle instances of the profile stay where that costs none, and those of other profiles go. A mode that is to change
    with the next reset, though the one in force is the wanted one, is set again so that it stays.
    """
    if card.enabled is None:
        return (
            Plan() if wanted is None else Refusal(NOT_SUPPORTED, "The card knows no MIG; choose another pool for it.")
        )
    if wanted is None:
        return _taken_back(card)
    profile = find_profile(card.profiles, wanted)
    if profile is None:
        names = ", ".join(known.name for known in card.profiles) or "none"
        return Refusal(PROFILE_NOT_SUPPORTED, f"The card has no MIG profile {wanted}; it has {names}.")
    return _mode_kept_from(card, enabled=True) or _divided(card, profile)


def rollback(done: Sequence[Done], before: MigState) -> tuple[Step, ...]:
    """What restores the card as it was before the steps that were done, where the next of them failed.

    Instances that were destroyed are made anew at their places; their UUIDs may be others then.
    """
    steps = (_undone(each, before) for each in reversed(done))
    return tuple(step for step in steps if step is not None)


def _undone(done: Done, before: MigState) -> Step | None:
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


def _taken_back(card: MigState) -> Plan | Refusal:
    refusal = _mode_kept_from(card, enabled=False)
    if refusal is not None:
        return refusal
    steps: list[Step] = [_destroyed(instance) for instance in card.instances]
    if card.enabled or card.pending:
        steps.append(Disable())
    return Plan(tuple(steps))


def _mode_kept_from(card: MigState, *, enabled: bool) -> Refusal | None:
    """Why a card's mode cannot be set; None where it can, or need not."""
    if card.enabled == enabled:
        return None
    word = "on" if enabled else "off"
    if card.pending:
        return Refusal(
            RESET_PENDING, f"MIG turns {word} with the card's next reset; reset the card or reboot the node."
        )
    if card.busy:
        text = f"MIG cannot be turned {word} while {_named(card, card.busy)} is in use; wait until it is free."
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
    steps += [_destroyed(instance) for place, instance in sorted(idle.items()) if place not in places]
    steps += [Create(profile.name, place.start) for place in places if place not in idle]
    return Plan(tuple(steps), tuple(sorted([*places, *map(place_of, busy)])))


def _no_room(card: MigState, profile: Profile, busy: Sequence[Instance]) -> Refusal:
    if not busy:
        return Refusal(PROFILE_NOT_SUPPORTED, f"The card has no place for {profile.name}, though it names the profile.")
    text = f"No {profile.name} fits beside {_named(card, card.busy)}, in use; wait until it is free."
    return Refusal(IN_USE, text)


def _places(card: MigState, profile: Profile, busy: Sequence[Instance], idle: Iterable[Place]) -> tuple[Place, ...]:
    """The most places for instances beside those in use, and of as many those where most stand already, lowest first.

    All choices are tried: there are at most as many places as memory slices, of which cards have eight.
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


def _destroyed(instance: Instance) -> Destroy:
    return Destroy(instance.uuid, instance.profile, instance.start)


def _named(card: MigState, busy: frozenset[str]) -> str:
    found = [f"{instance.profile} ({instance.uuid})" for instance in card.instances if instance.uuid in busy]
    return ", ".join(found) or "the card"
