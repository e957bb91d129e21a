"""What the ConfigMap of a gang is to have, when it is written, and when a gang forms anew: values in, values out."""

from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.preflight.coordinator.decide import (
    GangConfig,
    Pacing,
    config_of,
    config_of_row,
    data_of,
    has_all,
    is_ours,
    is_too_large,
    new_config_map,
    size_of,
    size_of_row,
    write_at,
)
from gpuledger.edge.preflight.coordinator.state import GangRow, Gangs, GangsProjection
from gpuledger.events.payload import Payload
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangNotConfigured,
    GangPeer,
    GangTimedOut,
    PodPreflightGone,
)
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, event, message
from support.gangs import PASSED, WAITING, observed
from support.snapshots import reloaded

GANG = "default/g"
SECOND = timedelta(seconds=1)
WRITES_MAX = 20
FAILED = {"name": "nccl-allreduce", "state": "ended", "exit_code": 1}


class Log:
    """Facts about pods of one namespace, and outcomes about their gang, folded as they come."""

    def __init__(self) -> None:
        self.fold = Fold(GangsProjection(), GENERATION, state=Gangs())
        self._numbers = count(1)

    @property
    def gangs(self) -> Gangs:
        state = self.fold.state
        assert isinstance(state, Gangs)
        return state

    def row(self) -> GangRow:
        row = self.gangs.get(GANG)
        assert row is not None
        return row

    def record(self, subject: str, data: Payload, at: datetime = START) -> None:
        number = next(self._numbers)
        is_ours = data.AGGREGATE == "gang"
        source = "/services/preflight" if is_ours else "/watchers/preflight-pods"
        hours = (at - START) / timedelta(hours=1)
        one = event(data, subject, number=number, at=hours, source=source)
        self.last = message(one, number)
        self.fold.apply_all([self.last])

    def pod(self, name: str, uid: str = "", ip: str | None = None, at: datetime = START, **fields: Any) -> None:
        self.record(f"default/{name}", observed(uid or name, ip, **fields), at)

    def gone(self, name: str, uid: str = "") -> None:
        self.record(f"default/{name}", PodPreflightGone(uid=uid or name))

    def config(self) -> GangConfig | None:
        pods = self.gangs.pods(GANG)
        return config_of(self.row(), pods, size_of(pods))

    def write(self, at: datetime = START) -> None:
        config = self.config()
        assert config is not None
        data = GangConfigured(
            config_map="m", source="s", expected=config.expected, passed=config.passed, peers=config.peers,
            complete=config.is_complete,
        )  # fmt: skip
        self.record(GANG, data, at)


def names(config: GangConfig | None) -> list[str]:
    return [] if config is None else [one.pod for one in config.peers]


@pytest.fixture
def log() -> Log:
    return Log()


def complete(log: Log) -> Log:
    log.pod("b", ip="10.0.0.2")
    log.pod("a", ip="10.0.0.1")
    log.write()
    assert log.row().is_complete
    return log


def test_ranks_are_in_the_order_of_names_and_pods_without_an_address_are_no_peers(log: Log) -> None:
    log.pod("b", ip="10.0.0.2", gang_size=3)
    log.pod("c", gang_size=3)
    log.pod("a", ip="10.0.0.1", gang_size=3)
    config = log.config()
    assert config is not None
    assert (names(config), config.expected, config.is_complete) == (["a", "b"], 3, False)


def test_pods_with_a_node_beyond_the_size_count(log: Log) -> None:
    for name in ("a", "b", "c"):
        log.pod(name, ip=f"10.0.0.{ord(name)}")
    log.pod("d")
    config = log.config()
    assert config is not None
    assert (config.expected, config.is_complete) == (3, True)


def test_a_gang_of_unknown_size_is_never_complete(log: Log) -> None:
    log.pod("a", ip="10.0.0.1", gang_size=None)
    config = log.config()
    assert config is not None
    assert (config.expected, config.is_complete) == (0, False)
    assert data_of("g", config)["expected_count"] is None


def test_pods_that_have_passed_stay_peers_of_those_that_are_at_their_checks(log: Log) -> None:
    complete(log).pod("a", ip="10.0.0.1", checks=[PASSED], done=True)
    assert log.config() == config_of_row(log.row())
    log.pod("b", ip="10.0.0.2", checks=[PASSED], done=True)
    assert log.config() is None, "nobody reads it any more"


@pytest.mark.parametrize("how", ["gone", "ended", "replaced"])
def test_a_pod_that_leaves_others_at_their_checks_begins_a_round(log: Log, how: str) -> None:
    first = complete(log).row().round
    if how == "ended":
        log.pod("b", ip="10.0.0.2", checks=[FAILED], done=True)
    else:
        log.gone("b")
    assert (log.row().is_complete, log.row().writes, names(log.config())) == (False, 0, ["a"])
    assert log.row().round != first
    if how == "replaced":
        log.pod("b", uid="new", ip="10.0.0.9")
        config = log.config()
        assert config is not None
        assert (names(config), config.is_complete) == (["a", "b"], True)


def all_passed(log: Log, size: int = 3) -> Log:
    """A gang whose pods have passed, of which the last one is gone then."""
    pods = {f"p{number}": f"10.0.0.{number}" for number in range(size)}
    for name, ip in pods.items():
        log.pod(name, ip=ip, gang_size=size)
    log.write()
    for name, ip in pods.items():
        log.pod(name, ip=ip, gang_size=size, checks=[PASSED], done=True)
    log.gone(f"p{size - 1}")
    return log


def shown(config: GangConfig | None) -> tuple[list[str], int, int, bool]:
    assert config is not None
    return names(config), config.expected, config.passed, config.is_complete


def test_the_successor_of_a_pod_of_a_gang_that_has_passed_waits_for_none_of_the_others(log: Log) -> None:
    all_passed(log).pod("q", gang_size=3)
    assert shown(log.config()) == ([], 1, 2, False)
    log.pod("q", ip="10.0.0.9", gang_size=3)
    assert shown(log.config()) == (["q"], 1, 2, True)
    log.write()
    assert log.config() == config_of_row(log.row())
    data = data_of("g", log.config() or GangConfig((), 0, is_complete=False))
    assert (data["expected_count"], data["passed_count"], data["master_addr"]) == ("1", "2", "10.0.0.9")


def test_several_successors_go_through_their_checks_together(log: Log) -> None:
    all_passed(log, 4).gone("p2")
    log.pod("q", ip="10.0.0.8", gang_size=4)
    assert shown(log.config()) == (["q"], 2, 2, False)
    log.pod("r", ip="10.0.0.9", gang_size=4)
    assert shown(log.config()) == (["q", "r"], 2, 2, True)
    log.write()
    log.pod("q", ip="10.0.0.8", gang_size=4, checks=[PASSED], done=True)
    assert log.config() == config_of_row(log.row()), "who has passed stays a peer of the other one"


def test_a_successor_does_not_wait_for_a_pod_that_ended_and_stays_as_an_object(log: Log) -> None:
    all_passed(log).pod("p2", ip="10.0.0.2", gang_size=3, checks=[PASSED], done=True)
    log.pod("q", ip="10.0.0.9", gang_size=3)
    assert shown(log.config()) == (["q"], 1, 2, True)


def test_a_gang_that_is_replaced_as_a_whole_is_complete_with_all_of_its_new_pods(log: Log) -> None:
    all_passed(log)
    for name in ("q", "r", "s"):
        log.pod(name, gang_size=3)
    assert shown(log.config()) == ([], 3, 0, False)
    for name in ("p0", "p1"):
        log.gone(name)
    for number, name in enumerate(("q", "r", "s")):
        log.pod(name, ip=f"10.0.1.{number}", gang_size=3)
    assert shown(log.config()) == (["q", "r", "s"], 3, 0, True)


def test_successors_are_written_once_nothing_was_recorded_for_a_while(log: Log) -> None:
    all_passed(log).pod("q", ip="10.0.0.9", gang_size=3)
    config = log.config()
    assert config is not None
    assert write_at(log.row(), config, Pacing(settle_s=7.0)) == log.row().fact_recorded_at + 7 * SECOND


def test_who_has_passed_is_not_waited_for_by_one_whose_gang_broke_up(log: Log) -> None:
    for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")):
        log.pod(name, ip=ip, gang_size=3)
    log.write()
    log.pod("a", ip="10.0.0.1", gang_size=3, checks=[PASSED], done=True)
    log.gone("b")
    assert shown(log.config()) == (["c"], 2, 1, False)
    log.pod("b", uid="new", ip="10.0.0.9", gang_size=3)
    assert shown(log.config()) == (["b", "c"], 2, 1, True)


def test_the_size_of_a_gang_is_what_its_config_map_expects_and_what_has_passed(log: Log) -> None:
    all_passed(log).pod("q", ip="10.0.0.9", gang_size=3)
    log.write()
    assert size_of_row(log.row()) == 3
    assert size_of_row(log.row()._replace(expected=0, passed=0)) is None


def test_a_gang_is_over_with_its_dissolution_unless_a_pod_has_come_meanwhile(log: Log) -> None:
    complete(log)
    for name in ("a", "b"):
        log.gone(name)
    log.pod("a", uid="new")
    log.record(GANG, GangDissolved(removed=True))
    assert (log.row().configured_at, log.row().writes) == (None, 0)
    log.gone("a", "new")
    log.record(GANG, GangDissolved())
    assert log.gangs.ids() == []


def test_time_outs_and_problems_are_of_a_round(log: Log) -> None:
    log.pod("a", ip="10.0.0.1")
    log.record(GANG, GangTimedOut(expected=2, found=1, waited_s=600.0))
    log.record(GANG, GangNotConfigured(reason="Refused"))
    assert (log.row().has_timed_out, log.row().problem) == (True, "Refused")
    log.pod("b", ip="10.0.0.2")
    log.write()
    assert (log.row().has_timed_out, log.row().problem) == (True, "")
    log.gone("b")
    assert not log.row().has_timed_out


def test_a_gang_that_comes_again_beside_pods_that_are_done_begins_anew(log: Log) -> None:
    """Such as a Job that is run again while pods of the run before, which timed out, are still there."""
    log.pod("a", ip="10.0.0.1", gang_size=4)
    log.record(GANG, GangTimedOut(expected=4, found=1, waited_s=600.0))
    log.pod("a", ip="10.0.0.1", gang_size=4, checks=[FAILED], done=True)
    later = START + timedelta(hours=2)
    log.pod("b", at=later)
    assert (log.row().began_at, log.row().has_timed_out) == (later, False)
    log.pod("c", ip="10.0.0.3", at=later)
    log.pod("b", ip="10.0.0.2", at=later)
    config = log.config()
    assert config is not None
    assert (names(config), config.expected, config.is_complete) == (["b", "c"], 2, True)


def test_a_pod_whose_checks_run_once_more_waits_for_none_that_has_passed(log: Log) -> None:
    """Its node was restarted, so that the kubelet begins with its init containers again."""
    complete(log)
    for name in ("a", "b"):
        log.pod(name, ip="10.0.0.1", checks=[PASSED], done=True)
    first = log.row().round
    log.pod("b", ip="10.0.0.9", checks=[WAITING | {"attempt": 1}])
    config = log.config()
    assert config is not None
    assert (names(config), config.expected, config.passed, config.is_complete) == (["b"], 1, 1, True)
    assert log.row().round != first
    log.pod("a", ip="10.0.0.8", checks=[WAITING | {"attempt": 1}])
    config = log.config()
    assert config is not None
    assert (names(config), config.expected, config.passed, config.is_complete) == (["a", "b"], 2, 0, True)


def test_the_time_of_a_gang_that_is_queued_begins_with_the_first_address(log: Log) -> None:
    log.pod("a")
    log.pod("b")
    began, first = log.row().began_at, log.row().round
    log.pod("a", node="n1", at=START + timedelta(hours=3))
    assert log.row().began_at == began
    placed = START + timedelta(hours=4)
    log.pod("a", ip="10.0.0.1", at=placed)
    assert (log.row().began_at, log.row().round != first) == (placed, True)
    log.pod("b", ip="10.0.0.2", at=placed + SECOND)
    log.pod("c", ip="10.0.0.3", at=placed + SECOND)
    assert log.row().began_at == placed


def test_a_check_fails_once_for_each_pod(log: Log) -> None:
    log.pod("a", checks=[FAILED])
    log.pod("a", checks=[FAILED | {"attempt": 1}])
    assert [one.check for one in log.gangs.take_failures()] == ["nccl-allreduce"]
    log.pod("a", uid="new", checks=[FAILED])
    assert [one.uid for one in log.gangs.take_failures()] == ["new"]


def test_whoever_leads_next_begins_at_a_snapshot_with_the_same_gangs(log: Log) -> None:
    complete(log).pod("c", gang=None, checks=[FAILED])
    log.pod("a", ip="10.0.0.1", checks=[PASSED], done=True)
    log.record(GANG, GangTimedOut(expected=2, found=1, waited_s=600.0))
    again = reloaded(log.fold, log.last).state.tables()
    assert {name: table.rows for name, table in again.items()} == {
        name: table.rows for name, table in log.gangs.tables().items()
    }


arrivals = st.lists(st.floats(0.0, 86_400.0), min_size=2, max_size=60)


@given(arrivals)
def test_a_gang_forms_with_few_writes_however_its_pods_arrive(given_s: list[float]) -> None:
    """The coordinator looks whenever a pod arrives, and whenever a write is due."""
    log, pacing, writes = Log(), Pacing(), 0
    for number, arrival_s in enumerate(sorted(given_s)):
        now = START + arrival_s * SECOND
        while (due := _due(log, pacing)) is not None and due <= now:
            log.write(due)
            writes += 1
        log.pod(f"p{number:02}", ip=f"10.0.0.{number}", at=now, gang_size=len(given_s))
        due = _due(log, pacing)
        if due is not None and due <= now:
            log.write(now)
            writes += 1
    assert log.row().is_complete
    assert writes <= WRITES_MAX


def _due(log: Log, pacing: Pacing) -> datetime | None:
    if log.gangs.get(GANG) is None:
        return None
    config = log.config()
    assert config is not None
    return None if config == config_of_row(log.row()) else write_at(log.row(), config, pacing)


def test_a_complete_gang_is_written_at_once_whatever_the_clock_of_the_watchers_says(log: Log) -> None:
    log.pod("a", ip="10.0.0.1", gang_size=1, at=START + timedelta(hours=5))
    config = log.config()
    assert config is not None
    due = write_at(log.row(), config, Pacing())
    assert due is not None
    assert due < START


@pytest.mark.parametrize(("pods", "length", "is_over"), [(4096, 20, False), (4097, 1, True), (4096, 250, True)])
def test_what_no_event_can_hold_is_too_large(pods: int, length: int, is_over: bool) -> None:
    peer = GangPeer(pod="p" * length, uid="u" * 36, ip="10.0.0.1", node="n" * 20)
    assert is_too_large(GangConfig((peer,) * pods, pods, is_complete=True)) is is_over


def test_only_a_config_map_of_ours_for_this_gang_is_ours() -> None:
    config = GangConfig((), 2, is_complete=False)
    made = new_config_map("g", "default", data_of("g", config))
    assert is_ours(made, "g")
    assert has_all(made, data_of("g", config))
    assert not has_all(made, data_of("g", config._replace(expected=0)))
    assert not is_ours(made, "other")
    assert not is_ours({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}, "g")
    assert not is_ours({"metadata": {}}, "g")
