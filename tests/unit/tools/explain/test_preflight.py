"""What keeps a pod from starting, by the rows of its preflight checks."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gpuledger.domain.preflight.pod_checks import PodChecks, Stage
from gpuledger.domain.preflight.results_rows import PreflightAttempt, PreflightGang, PreflightGangEvent
from gpuledger.events.position import ORIGIN
from gpuledger.tools.explain.preflight_document import checks_document
from gpuledger.tools.explain.preflight_wording import checks_words
from support.events import hour
from support.preflight_attempts import GANG, allreduce, attempt, ended, gang

DESCRIBED = "`kubectl describe pod` says why, such as an image that is being pulled"
HALF = "1 of 2 preflight checks have passed; "
AGAIN = "; Kubernetes tries it again as the pod's restartPolicy says"
AGAIN_AND_WHY = f"; it was tried 3 times{AGAIN}; `gpuledger why node n1` says what came of it"


PASSED = ended("passed", 0)
STUCK = PreflightGangEvent(
    GANG, hour(2), "not-configured", ORIGIN, reason="ForeignConfigMap", message="It is another's."
)


@pytest.mark.parametrize(
    ("attempts", "stage", "words"),
    [
        ([PASSED, ended("skipped", 0, "bandwidth", 1)], Stage.PASSED, "its preflight checks have passed"),
        ([ended("passed", None)], Stage.PASSED, "its preflight checks have passed"),
        (
            [ended("not-reported", 0), PASSED._replace(check_name="bandwidth")],
            Stage.PASSED,
            "its preflight checks have passed, but dcgm-diag could not be carried out",
        ),
        ([attempt(node=None)], Stage.NOT_PLACED, ""),
        (
            [PASSED, attempt("bandwidth", 1)],
            Stage.NOT_STARTED,
            f"{HALF}its preflight check bandwidth has not started on node n1: {DESCRIBED}",
        ),
        (
            [attempt(state="running", started_at=hour(1)), attempt("bandwidth", 1)],
            Stage.RUNNING,
            f"its preflight check dcgm-diag runs on node n1 since {hour(1).isoformat()}",
        ),
        (
            [ended("failed", 1, reason="Error", codes="NVLINK,PCIE", message="GPU 3.", attempt=2)],
            Stage.FAILED,
            f"its preflight check dcgm-diag failed on node n1 (exit code 1, NVLINK, PCIE): GPU 3{AGAIN_AND_WHY}",
        ),
        (
            [ended("config-error", 2, message="DCGM_DIAG_LEVEL is 7", over_at=hour(2))],
            Stage.MISCONFIGURED,
            "a setting of its preflight check dcgm-diag is wrong on node n1 (exit code 2): DCGM_DIAG_LEVEL is 7",
        ),
        (
            [ended("not-reported", 137, reason="OOMKilled")],
            Stage.NOT_REPORTED,
            f"its preflight check dcgm-diag could not run or report on node n1 (exit code 137, OOMKilled){AGAIN}",
        ),
        ([ended("not-reported", None)], Stage.NOT_REPORTED, None),
        ([attempt(over_at=hour(2))], Stage.OVER, "it ended before its preflight check dcgm-diag did"),
    ],
)
def test_the_first_check_without_a_pass_decides(
    attempts: Sequence[PreflightAttempt], stage: Stage, words: str | None
) -> None:
    found = PodChecks(tuple(reversed(attempts)))
    assert found.stage is stage
    assert words is None or checks_words(found) == words


def test_of_several_attempts_the_last_counts() -> None:
    failed = ended("failed", 1, attempt=0, over_at=hour(2))
    assert PodChecks((failed._replace(attempt=1, exit_code=0), failed)).stage is Stage.PASSED


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (gang(2), "2 of 3 pods are there"),
        (gang(2, None), "2 pods are there, and nothing says how many it has"),
        (gang(2, 3, STUCK), "its ConfigMap cannot be written (ForeignConfigMap: It is another's)"),
        (None, "nothing is known yet, as gpuledger's service preflight has not written its ConfigMap"),
    ],
)
def test_a_check_waits_for_its_gang(row: PreflightGang | None, words: str) -> None:
    found = PodChecks((PASSED, allreduce()), row, gang_timeouts={"nccl-allreduce": timedelta(minutes=10)})
    assert found.stage is Stage.WAITS_FOR_GANG
    assert checks_words(found) == (
        f"{HALF}its preflight check nccl-allreduce waits for its gang ml/g on node n1 since "
        f"{hour(1).isoformat()} and gives up at {(hour(1) + timedelta(minutes=10)).isoformat()}: {words}"
    )


def test_a_complete_gang_is_not_waited_for() -> None:
    assert PodChecks((allreduce(),), gang(3, complete=True)).stage is Stage.RUNNING


def test_a_pod_of_a_complete_gang_that_cannot_come_is_named() -> None:
    failed = ended("failed", 1)._replace(uid="u1", pod="ml/w-1", gang=GANG)
    found = PodChecks((allreduce(),), gang(3, complete=True), (failed,))
    runs = f"its preflight check nccl-allreduce runs on node n1 since {hour(1).isoformat()}"
    assert checks_words(found) == f"{runs}; ml/w-1 failed at dcgm-diag"
    alone = PodChecks((attempt(state="running", started_at=hour(1)),), gang(3, complete=True), (failed,))
    assert "ml/w-1" not in checks_words(alone)


def test_which_checks_are_of_gangs_their_containers_say() -> None:
    other = allreduce(check_name="fabric")
    assert PodChecks((other,), gang(2)).stage is Stage.RUNNING
    assert PodChecks((other,), gang(2), gang_timeouts={"fabric": timedelta(minutes=1)}).stage is Stage.WAITS_FOR_GANG
    assert PodChecks((allreduce(gang=None),)).stage is Stage.RUNNING


def test_pods_that_hold_a_gang_up_are_named() -> None:
    def other(number: int, one: PreflightAttempt) -> PreflightAttempt:
        return one._replace(uid=f"u{number}", pod=f"ml/w-{number}", gang=GANG)

    peers = (
        other(5, attempt()),
        other(1, ended("failed", 1)),
        other(2, PASSED),
        other(2, allreduce()),
        other(3, attempt(node=None)),
        other(4, ended("config-error", 2)),
    )
    found = PodChecks((allreduce(),), gang(2), peers)
    assert [(one.attempts[0].pod, one.stage) for one in found.held_up_by] == [
        ("ml/w-1", Stage.FAILED),
        ("ml/w-3", Stage.NOT_PLACED),
        ("ml/w-4", Stage.MISCONFIGURED),
        ("ml/w-5", Stage.NOT_STARTED),
    ]
    assert checks_words(found).endswith(
        "2 of 3 pods are there; ml/w-1 failed at dcgm-diag; ml/w-3 has no node yet for dcgm-diag; ml/w-4 has a wrong "
        "setting of dcgm-diag; 1 more pod does not come to it either"
    )
    assert checks_document(found)["heldUpBy"][0] == {"pod": "ml/w-1", "reason": "CheckFailed", "check": "dcgm-diag"}


def test_a_gang_that_was_not_complete_in_time_blames_no_node() -> None:
    waited = ended("gang-timeout", 3, "nccl-allreduce", gang=GANG, gang_wait_us=600_000_000)
    found = PodChecks((waited,), gang(2))
    assert found.stage is Stage.GANG_TIMED_OUT
    words = f"its preflight check nccl-allreduce gave its gang ml/g up after 600 s: 2 of 3 pods are there{AGAIN}"
    assert checks_words(found) == words


def test_the_document_has_every_check_and_the_gang() -> None:
    found = checks_document(PodChecks((allreduce(), PASSED._replace(codes="A,B")), gang(2)))
    assert [(one["check"], one["state"], one["exitCode"], one["codes"]) for one in found["checks"]] == [
        ("dcgm-diag", "ended", 0, ["A", "B"]),
        ("nccl-allreduce", "running", None, []),
    ]
    assert (found["reason"], found["check"], found["gangTimeoutAt"]) == ("CheckWaitsForGang", "nccl-allreduce", None)
    assert (found["gang"]["state"], found["gang"]["found"], found["gang"]["expected"]) == ("forming", 2, 3)
