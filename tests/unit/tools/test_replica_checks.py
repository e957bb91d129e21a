"""What `doctor` says of a read replica, by how far it has replayed."""

from datetime import UTC, datetime, timedelta

import pytest

from gpuledger.db.replica import REPLAY_DELAY_WARN_S, Replay
from gpuledger.tools.doctor import Status
from gpuledger.tools.replica_checks import replay_check

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG_AGO, LATELY = NOW - timedelta(seconds=REPLAY_DELAY_WARN_S + 1), NOW - timedelta(seconds=1)


def replay(
    replayed_at: datetime | None = LONG_AGO,
    *,
    has_more: bool = False,
    is_paused: bool = False,
    is_receiving: bool = True,
) -> Replay:
    return Replay(True, NOW, replayed_at, has_more, is_paused, is_receiving)


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (replay(), Status.OK, "is a standby, 0 s behind its primary"),
        (replay(None), Status.OK, "0 s behind"),
        (replay(LATELY, has_more=True), Status.OK, "1 s behind"),
        (replay(has_more=True), Status.WARNING, "31 s behind its primary. Reports are as old as that"),
        (replay(is_paused=True), Status.WARNING, "31 s behind its primary, as its replay is paused"),
        (replay(LATELY, is_receiving=False), Status.WARNING, "1 s behind its primary, as it receives nothing"),
        (replay(None, is_receiving=False), Status.WARNING, "as it receives nothing from its primary"),
        (Replay(False, NOW, None, False, False, False), Status.OK, "is no standby: it answers as a primary does"),
    ],
)
def test_a_replica_keeps_up_or_is_warned_of(found: Replay, status: Status, words: str) -> None:
    check = replay_check(found, "s:5432/gpuledger")
    assert (check.status, words in check.detail) == (status, True), check.detail
