"""What a pod with preflight checks waits for or failed at, in the words of `preflight show`."""

import pytest

from gpuledger.tools.preflight_story import PreflightStory
from support.events import hour


@pytest.mark.parametrize(
    ("outcome", "exit_code", "situation"),
    [
        ("not-reported", 0, "Its checks are over."),
        ("not-reported", 4, "dcgm-diag: not-reported. The check could not run or report:"),
        ("config-error", 2, "dcgm-diag: config-error. A setting of the check is wrong:"),
        ("passed", 0, "Its checks are over."),
    ],
)
def test_a_check_that_lets_the_pod_start_is_no_failure(outcome: str, exit_code: int, situation: str) -> None:
    attempt = {"check_name": "dcgm-diag", "state": "ended", "outcome": outcome, "exit_code": exit_code, "node": "n1"}
    found = PreflightStory({"over_at": hour(1)}, [attempt], None, [], [])
    assert found.situation().startswith(situation)
