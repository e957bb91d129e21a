"""What a pod with preflight checks waits for or failed at, in the words of `gpuledger preflight show`."""

from typing import Any

import pytest

from gpuledger.tools.preflight_story import PreflightStory
from support.events import hour

TIMED_OUT = {
    "check_name": "nccl-allreduce", "outcome": "gang-timeout", "state": "ended", "exit_code": 3, "node": "n1",
    "over_at": None,
}  # fmt: skip


def situation(**gang: Any) -> str:
    return PreflightStory({"over_at": None}, [TIMED_OUT], gang or None, [], []).situation()


@pytest.mark.parametrize(
    ("gang", "advice"),
    [
        ({}, "start the pods that are missing"),
        ({"state": "timed-out", "message": ""}, "start the pods that are missing"),
        ({"state": "not-configured", "message": "There is no PodGroup train."}, "There is no PodGroup train."),
    ],
)
def test_a_gang_that_cannot_be_configured_lacks_no_pods(gang: dict[str, Any], advice: str) -> None:
    assert advice in situation(**gang)


@pytest.mark.parametrize(
    ("outcome", "exit_code", "words"),
    [
        ("not-reported", 0, "Its checks are over."),
        ("not-reported", 4, "dcgm-diag: not-reported. The check could not run or report:"),
        ("config-error", 2, "dcgm-diag: config-error. A setting of the check is wrong:"),
        ("passed", 0, "Its checks are over."),
    ],
)
def test_a_check_that_lets_the_pod_start_is_no_failure(outcome: str, exit_code: int, words: str) -> None:
    attempt = {"check_name": "dcgm-diag", "state": "ended", "outcome": outcome, "exit_code": exit_code, "node": "n1"}
    found = PreflightStory({"over_at": hour(1)}, [attempt], None, [], [])
    assert found.situation().startswith(words)
