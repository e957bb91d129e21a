"""What a card's MIG plan is in the cases that have a name."""

import pytest

from gpuledger.agent.hardware.api import WHOLE_CARD
from gpuledger.domain.mig.geometry import Instance, Place, Profile, find_profile
from gpuledger.domain.mig.models import A30, A100_80GB
from gpuledger.domain.mig.plan import (
    WHOLE,
    Create,
    Destroy,
    Disable,
    Done,
    Enable,
    MigState,
    Plan,
    Refusal,
    plan,
    rollback,
)

PROFILES = A100_80GB.profiles
EMPTY = MigState(enabled=True, profiles=PROFILES)
OFF = MigState(enabled=False, profiles=PROFILES)


def _instance(name: str, start: int, profiles: tuple[Profile, ...] = PROFILES) -> Instance:
    profile = find_profile(profiles, name)
    assert profile is not None
    return Instance(f"{name}@{start}", name, start, profile.size)


def _divided(*names: tuple[str, int], busy: tuple[str, ...] = ()) -> MigState:
    instances = tuple(_instance(name, start) for name, start in names)
    return EMPTY._replace(instances=instances, busy=frozenset(busy))


def _refused(card: MigState, profile_name: str | None) -> Refusal:
    found = plan(card, profile_name)
    assert isinstance(found, Refusal)
    return found


def test_the_card_itself_has_one_name() -> None:
    assert WHOLE == WHOLE_CARD


def test_a_card_without_mig_is_divided_from_the_start() -> None:
    steps = (Enable(), Create("3g.40gb", 0), Create("3g.40gb", 4))
    assert plan(OFF, "3g.40gb") == Plan(steps, (Place(0, "3g.40gb"), Place(4, "3g.40gb")))


def test_instances_that_are_right_stay() -> None:
    card = _divided(("3g.40gb", 0), ("3g.40gb", 4))
    assert plan(card, "3g.40gb") == Plan((), (Place(0, "3g.40gb"), Place(4, "3g.40gb")))


def test_an_idle_instance_stays_and_the_rest_is_made_around_it() -> None:
    assert plan(_divided(("2g.20gb", 2)), "2g.20gb") == Plan(
        (Create("2g.20gb", 0), Create("2g.20gb", 4)),
        (Place(0, "2g.20gb"), Place(2, "2g.20gb"), Place(4, "2g.20gb")),
    )


def test_other_idle_instances_go_before_new_ones_are_made() -> None:
    found = plan(_divided(("7g.80gb", 0)), "4g.40gb")
    assert found == Plan((Destroy("7g.80gb@0", "7g.80gb", 0), Create("4g.40gb", 0)), (Place(0, "4g.40gb"),))


def test_beside_what_is_in_use_there_are_as_many_as_fit() -> None:
    card = _divided(("3g.40gb", 0), ("1g.10gb", 5), busy=("1g.10gb@5",))
    assert plan(card, "2g.20gb") == Plan(
        (Destroy("3g.40gb@0", "3g.40gb", 0), Create("2g.20gb", 0), Create("2g.20gb", 2)),
        (Place(0, "2g.20gb"), Place(2, "2g.20gb"), Place(5, "1g.10gb")),
    )


def test_an_instance_of_the_profile_in_use_is_enough() -> None:
    card = _divided(("7g.80gb", 0), busy=("7g.80gb@0",))
    assert plan(card, "7g.80gb") == Plan((), (Place(0, "7g.80gb"),))


def test_no_room_beside_what_is_in_use() -> None:
    refusal = _refused(_divided(("1g.10gb", 3), busy=("1g.10gb@3",)), "7g.80gb")
    assert refusal.reason == "DeviceInUse"
    assert "1g.10gb (1g.10gb@3)" in refusal.message


def test_a_card_has_its_media_engines_once() -> None:
    card = MigState(
        enabled=True,
        profiles=A30.profiles,
        instances=(_instance("1g.6gb+me", 0, A30.profiles),),
        busy=frozenset({"1g.6gb+me@0"}),
    )
    assert _refused(card, "2g.12gb+me").reason == "DeviceInUse"
    assert plan(card, "2g.12gb") == Plan((Create("2g.12gb", 2),), (Place(0, "1g.6gb+me"), Place(2, "2g.12gb")))


def test_instances_of_an_unknown_profile_are_planned_around() -> None:
    strange = Instance("strange", "9g.90gb", 0, 4)
    card = EMPTY._replace(instances=(strange,), busy=frozenset({"strange"}))
    assert plan(card, "3g.40gb") == Plan((Create("3g.40gb", 4),), (Place(0, "9g.90gb"), Place(4, "3g.40gb")))


def test_an_instance_of_an_unlisted_profile_counts_as_much_compute_as_memory() -> None:
    profiles = (Profile("1g.10gb", 1, 1, (0, 1, 2, 3), 4, 9728), Profile("3g.40gb", 3, 4, (0,), 1, 40192))
    card = MigState(
        enabled=True, profiles=profiles, instances=(Instance("strange", "9g.90gb", 0, 2),), busy=frozenset({"strange"})
    )
    assert plan(card, "1g.10gb") == Plan((Create("1g.10gb", 2),), (Place(0, "9g.90gb"), Place(2, "1g.10gb")))


def test_taking_back_leaves_nothing() -> None:
    card = _divided(("1g.10gb", 0), ("3g.40gb", 4))
    steps = (Destroy("1g.10gb@0", "1g.10gb", 0), Destroy("3g.40gb@4", "3g.40gb", 4), Disable())
    assert plan(card, None) == Plan(steps)


@pytest.mark.parametrize("card", [OFF, OFF._replace(busy=frozenset({WHOLE})), MigState(enabled=None)])
def test_where_mig_is_off_there_is_nothing_to_take_back(card: MigState) -> None:
    assert plan(card, None) == Plan()


@pytest.mark.parametrize(
    ("card", "profile_name", "reason"),
    [
        (MigState(enabled=None), "1g.10gb", "MigNotSupported"),
        (OFF, "1g.5gb", "MigProfileNotSupported"),
        (OFF._replace(profiles=(PROFILES[0]._replace(starts=()),)), "1g.10gb", "MigProfileNotSupported"),
        (OFF._replace(busy=frozenset({WHOLE})), "1g.10gb", "DeviceInUse"),
        (_divided(("1g.10gb", 0), ("1g.10gb", 1), busy=("1g.10gb@0",)), None, "DeviceInUse"),
        (OFF._replace(pending=True), "1g.10gb", "MigResetPending"),
        (EMPTY._replace(pending=True), None, "MigResetPending"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason_and_what_to_do(
    card: MigState, profile_name: str | None, reason: str
) -> None:
    refusal = _refused(card, profile_name)
    assert refusal.reason == reason
    assert refusal.message.endswith(".")


def test_a_right_mode_that_the_next_reset_would_change_is_set_again() -> None:
    assert plan(OFF._replace(pending=True), None) == Plan((Disable(),))
    found = plan(_divided(("7g.80gb", 0))._replace(pending=True), "7g.80gb")
    assert found == Plan((Enable(),), (Place(0, "7g.80gb"),))


def test_a_failure_in_the_middle_is_taken_back_in_reverse() -> None:
    made = _instance("4g.40gb", 0)
    done = [Done(Destroy("3g.40gb@0", "3g.40gb", 0)), Done(Create("4g.40gb", 0), made)]
    steps = (Destroy("4g.40gb@0", "4g.40gb", 0), Create("3g.40gb", 0))
    assert rollback(done, _divided(("3g.40gb", 0))) == steps


def test_a_mode_is_taken_back_only_where_it_changed() -> None:
    assert rollback([Done(Enable())], OFF) == (Disable(),)
    assert rollback([Done(Disable())], EMPTY) == (Enable(),)
    assert rollback([Done(Enable())], EMPTY._replace(pending=True)) == ()
    assert rollback([Done(Disable())], OFF._replace(pending=True)) == ()


def test_a_creation_that_came_to_nothing_leaves_nothing_to_take_back() -> None:
    assert rollback([Done(Create("1g.10gb", 0))], EMPTY) == ()
