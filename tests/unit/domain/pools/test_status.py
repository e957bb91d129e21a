"""The status of a pool: what a valid spec does in vain is a warning, not a problem, and is seen in both conditions."""

from gpuledger.domain.pools.pools import PoolCondition
from gpuledger.domain.pools.status import WITH_WARNING, pool_status
from support.events import START

CONFIGURED = PoolCondition("p", "Configured", "True", "Configured", "", START)
NOT_MISCONFIGURED = PoolCondition("p", "Misconfigured", "False", "NoProblems", "", START)
WRONG = "spec.resource.migProfile is missing."
NOT_CONFIGURED = CONFIGURED._replace(status="False", reason="MIGProfileMissing", message=WRONG)
MISCONFIGURED = NOT_MISCONFIGURED._replace(status="True", reason="MIGProfileMissing", message=WRONG)


def shown(*conditions: PoolCondition, warning: str = "") -> dict[str, tuple[str, str]]:
    status = pool_status(None, conditions, 0, warning)
    return {one["type"]: (one["reason"], one["message"]) for one in status["conditions"]}


def test_a_pool_without_a_warning_is_configured_and_has_no_problems() -> None:
    assert shown(CONFIGURED, NOT_MISCONFIGURED) == {
        "Configured": ("Configured", "The pool's configuration is valid."),
        "Misconfigured": ("NoProblems", "The pool has no problems."),
    }


def test_a_warning_is_a_reason_of_configured_and_nobody_says_that_there_is_nothing() -> None:
    assert shown(CONFIGURED, NOT_MISCONFIGURED, warning="It selects nothing.") == {
        "Configured": ("ConfiguredWithWarning", "It selects nothing."),
        "Misconfigured": ("NoProblems", WITH_WARNING),
    }


def test_a_problem_comes_before_a_warning() -> None:
    assert shown(NOT_CONFIGURED, MISCONFIGURED, warning="It selects nothing.") == {
        "Configured": ("MIGProfileMissing", WRONG),
        "Misconfigured": ("MIGProfileMissing", WRONG),
    }
