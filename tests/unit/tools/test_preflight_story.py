"""What `gpuledger preflight show` advises: values in, a sentence out."""

from typing import Any

import pytest

from gpuledger.tools.preflight_story import PreflightStory

TIMED_OUT = {"check_name": "nccl-allreduce", "outcome": "gang-timeout", "state": "ended", "node": "n1", "over_at": None}


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
