"""Whether a node's heartbeat was ever stable: only fresh looks in a row make it so, and it stays known."""

import pytest

from gpuledger.domain.bootstrap.observations import heartbeat_times, unbroken_heartbeats
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import MODULE, NODE, Prepared, all_ready, heartbeat, prepared, second


def looked(node: Prepared, looks: str, first: int = 10) -> None:
    """Tell looks, one a second: `+` a fresh one, `-` one that is not."""
    for at, one in enumerate(looks, first):
        node.record(at, NODE, heartbeat(fresh=one == "+"))


IN_ORDER = {
    "never": ("-", 3, "Monitoring"),
    "two in a row": ("++-", 3, "Monitoring"),
    "three in a row": ("+++-", 3, "ValidatingFailed"),
    "three, never two in a row": ("+-+-+", 3, "Monitoring"),
    "four, never three in a row": ("++-++-", 3, "Monitoring"),
    "three in a row after two": ("++-+++-", 3, "ValidatingFailed"),
    "three in a row, then now and then": ("+++-+-++-", 3, "ValidatingFailed"),
    "three in a row long ago": ("+++" + "-+" * 12, 3, "ValidatingFailed"),
    "many, never two in a row": ("+-" * 12, 3, "Monitoring"),
    "one is enough where one is required": ("+-", 1, "ValidatingFailed"),
    "nine of ten in a row": ("+++++++++-+-", 10, "Monitoring"),
    "ten in a row": ("++++++++++-+-", 10, "ValidatingFailed"),
}


@pytest.mark.parametrize(("looks", "heartbeats", "phase"), IN_ORDER.values(), ids=IN_ORDER.keys())
def test_a_node_fails_only_where_its_heartbeat_was_stable(looks: str, heartbeats: int, phase: str) -> None:
    node = prepared("d1", facts=all_ready(), heartbeat_count=0)
    node.record(9, MODULE, SettingsChanged(heartbeats=heartbeats))
    looked(node, looks)
    assert (node.phase(), node.device("d1")[0]) == (phase, "Faulted" if phase == "ValidatingFailed" else "Validating")


LATE: dict[str, tuple[list[int], list[int], list[int]]] = {
    "a late fresh look is of the last run": ([1, 3, 2], [1, 2, 3], [1, 2, 3]),
    "a late fresh look is of no run that is known": ([-2, 3, 1], [3], [3]),
    "a late loss parts the last run": ([1, 2, 3, 5, 6, -4], [1, 5, 6], [5, 6]),
    "several late losses part it further": ([1, 2, 4, 6, 8, -5, -7], [1, 1, 8], [8]),
    "a late loss before the last run changes nothing": ([3, 4, 5, -2], [3, 4, 5], [3, 4, 5]),
    "a late loss before another changes nothing": ([1, 3, -4, 5, -2], [1, 5], [5]),
    "a late loss leaves a longer run of before": ([1, 2, 3, 4, -5, 6, 8, 9, -7], [1, 1, 8, 9], [8, 9]),
    "a loss at the time of a fresh look counts": ([1, 2, 3, -3], [1, 2], []),
    "a fresh look at the time of a loss does not": ([1, 2, -3, 3], [1, 2], []),
}


@pytest.mark.parametrize(("recorded", "looks", "heartbeat_count"), LATE.values(), ids=LATE.keys())
def test_what_is_late(recorded: list[int], looks: list[int], heartbeat_count: list[int]) -> None:
    """Looks at these seconds, in this order; those that were not fresh have a minus."""
    node = prepared("d1", heartbeat_count=0)
    for at in recorded:
        node.record(abs(at), NODE, heartbeat(fresh=at > 0))
    row = node.state.node.rows[NODE]
    assert heartbeat_times(row) == [second(at) for at in looks]
    assert unbroken_heartbeats(row) == [second(at) for at in heartbeat_count]


def test_a_late_loss_keeps_what_was_stable_before_the_last_run() -> None:
    node = prepared("d1", facts=all_ready(), heartbeat_count=0)
    looked(node, "+++++-++++")
    node.record(17.5, NODE, heartbeat(fresh=False))
    assert heartbeat_times(node.state.node.rows[NODE])[-3] == second(10)
    assert node.phase() == "ValidatingFailed"


def test_a_card_recovers_by_heartbeats_in_a_row() -> None:
    node = prepared("d1", facts=all_ready())
    node.record(8, "GPU-d1", DeviceHealthChanged(healthy=False))
    node.record(9, "GPU-d1", DeviceHealthChanged(healthy=True))
    looked(node, "++++-++++")
    assert node.device("d1") == ("Faulted", "Recovering")
    looked(node, "+", first=20)
    assert node.device("d1") == ("Ready", "Validated")
