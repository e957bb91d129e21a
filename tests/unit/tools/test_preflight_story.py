"""What a pod with preflight checks waits for or failed at, in the words of `gpuledger preflight show`."""

import pytest

from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.domain.preflight.results_rows import PreflightAttempt, PreflightGang, PreflightGangEvent
from gpuledger.events.position import ORIGIN
from gpuledger.tools.preflight_story import PreflightStory
from support.events import hour
from support.preflight_attempts import GANG, allreduce, attempt, ended, gang

TIMED_OUT = allreduce(state="ended", outcome="gang-timeout", exit_code=3, gang_wait_us=600_000_000)
STUCK = PreflightGangEvent(
    GANG, hour(2), "not-configured", ORIGIN, reason="PodGroupMissing", message="There is no PodGroup train."
)


def situation(*attempts: PreflightAttempt, others: PodChecks | None = None) -> str:
    return PreflightStory({}, others or PodChecks(attempts), []).situation()


@pytest.mark.parametrize(
    ("attempts", "words", "advice"),
    [
        ([ended("passed", 0)], "Its preflight checks have passed.", ""),
        ([ended("not-reported", 0)], "Its preflight checks have passed, but dcgm-diag could not be carried out.", ""),
        ([ended("not-reported", 4)], "Its preflight check dcgm-diag could not run", "container's logs say why."),
        ([ended("config-error", 2)], "A setting of its preflight check dcgm-diag is wrong", "names the setting."),
        ([ended("failed", 1)], "Its preflight check dcgm-diag failed", "says what came of it."),
        ([attempt(node=None)], "It waits for a node:", "say why it has none."),
    ],
)
def test_the_situation_is_one_sentence_and_what_to_do_next(
    attempts: list[PreflightAttempt], words: str, advice: str
) -> None:
    found = situation(*attempts)
    assert found.startswith(words)
    assert found.endswith(advice)


@pytest.mark.parametrize(
    ("of_gang", "words"),
    [
        (None, "Start the pods that are missing"),
        (gang(1), "1 of 3 pods are there"),
        (gang(1, 3, STUCK), "There is no PodGroup train"),
    ],
)
def test_a_gang_that_timed_out_says_what_is_missing(of_gang: PreflightGang | None, words: str) -> None:
    found = PodChecks((ended("passed", 0), TIMED_OUT), of_gang)
    assert words in situation(others=found)


def test_the_document_has_the_attempts_in_their_order_and_names_each_peer_once() -> None:
    later, earlier = attempt("bandwidth", 1), attempt("dcgm-diag", 0, attempt=1)
    peers = (allreduce(pod="ml/w-1", uid="u2"), allreduce(pod="ml/w-1", uid="u2", check_name="bandwidth"))
    story = PreflightStory({"pod": "ml/w-0"}, PodChecks((later, earlier, attempt()), None, peers), [])
    document = story.document()
    assert [(one["check_name"], one["attempt"]) for one in document["checks"]] == [
        ("dcgm-diag", 0), ("dcgm-diag", 1), ("bandwidth", 0),
    ]  # fmt: skip
    assert document["peers"] == ["ml/w-1"]
