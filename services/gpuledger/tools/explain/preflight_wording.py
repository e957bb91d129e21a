"""The sentences about a pod's preflight checks. Pure; they name pods of its own namespace alone."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from gpuledger.domain.preflight.pod_checks import PodChecks, Stage, not_carried_out
from gpuledger.domain.preflight.results import MICROSECONDS_PER_S
from gpuledger.domain.preflight.results_rows import CODES_SEPARATOR, GangState, PreflightAttempt, PreflightGang

SHOWN_MAX: Final = 3
"""Pods of a gang that a sentence names."""

WITHOUT_NEWS: Final = frozenset({"Completed", "Error"})
"""Reasons of Kubernetes for the end of a container that say no more than its exit code."""

FROM_KUBERNETES: Final = (
    "The preflight checks are those of the Pod in Kubernetes, which has the last attempt at each: the ledger has none "
    "of this pod."
)


def checks_words(found: PodChecks) -> str:
    """The sentence about the checks; empty while they are not what the pod waits for."""
    one = found.present
    if one is None:
        return _passed(found)
    return _WORDS[found.stage](found, one)


def _passed(found: PodChecks) -> str:
    missed = not_carried_out(found.latest)
    names = ", ".join(one.check_name for one in missed)
    return f"its preflight checks have passed{f', but {names} could not be carried out' if missed else ''}"


def _nothing(found: PodChecks, one: PreflightAttempt) -> str:
    del found, one
    return ""


def _over(found: PodChecks, one: PreflightAttempt) -> str:
    del found
    return f"it ended before its preflight check {one.check_name} did"


def _not_started(found: PodChecks, one: PreflightAttempt) -> str:
    node = "" if one.node is None else f" on node {one.node}"
    hint = "`kubectl describe pod` says why, such as an image that is being pulled"
    return f"{_progress(found)}its preflight check {one.check_name} has not started{node}: {hint}"


def _runs(found: PodChecks, one: PreflightAttempt) -> str:
    """All pods of a complete gang are there, and yet one of them may never come to the check of all."""
    held_up = _held_up_words(found) if found.needs_gang(one) else ""
    return f"{_progress(found)}its preflight check {one.check_name} runs{_where(one)}{held_up}"


def _waits_for_gang(found: PodChecks, one: PreflightAttempt) -> str:
    until = found.gives_up_at(one)
    end = "" if until is None else f" and gives up at {_time(until)}"
    waits = f"its preflight check {one.check_name} waits for its gang {one.gang}{_where(one)}{end}"
    return f"{_progress(found)}{waits}: {_gang_words(found.gang)}{_held_up_words(found)}"


def _failed(found: PodChecks, one: PreflightAttempt) -> str:
    del found
    hint = "" if one.node is None else f"; `gpuledger why node {one.node}` says what came of it"
    return f"its preflight check {one.check_name} failed{_end(one)}{_again(one)}{hint}"


def _misconfigured(found: PodChecks, one: PreflightAttempt) -> str:
    del found
    return f"a setting of its preflight check {one.check_name} is wrong{_end(one)}{_again(one)}"


def _not_reported(found: PodChecks, one: PreflightAttempt) -> str:
    del found
    return f"its preflight check {one.check_name} could not run or report{_end(one)}{_again(one)}"


def _gang_timed_out(found: PodChecks, one: PreflightAttempt) -> str:
    waited = "" if one.gang_wait_us is None else f" after {one.gang_wait_us / MICROSECONDS_PER_S:g} s"
    gang = "" if one.gang is None else f" {one.gang}"
    gave_up = f"its preflight check {one.check_name} gave its gang{gang} up{waited}"
    return f"{gave_up}: {_gang_words(found.gang)}{_held_up_words(found)}{_again(one)}"


def _gang_words(gang: PreflightGang | None) -> str:
    """What is there of a gang."""
    if gang is None:
        return "nothing is known yet, as gpuledger's service preflight has not written its ConfigMap"
    if gang.state == GangState.NOT_CONFIGURED:
        message = f": {gang.message.rstrip('. ')}" if gang.message else ""
        return f"its ConfigMap cannot be written ({gang.reason}{message})"
    if not gang.expected:
        return f"{gang.found or 0} pods are there, and nothing says how many it has"
    return f"{gang.found or 0} of {gang.expected} pods are there"


def _held_up_words(found: PodChecks) -> str:
    return "".join(f"; {words}" for words in _held_up(found))


def _held_up(found: PodChecks) -> Iterator[str]:
    """Other pods of the gang that do not get as far as its check."""
    pods = found.held_up_by
    for pod in pods[:SHOWN_MAX]:
        one = pod.present
        if one is not None:
            yield f"{one.pod} {_PEER_WORDS[pod.stage]} {one.check_name}"
    if len(pods) > SHOWN_MAX:
        more = len(pods) - SHOWN_MAX
        yield f"{more} more pod{' does' if more == 1 else 's do'} not come to it either"


def _progress(found: PodChecks) -> str:
    """How many checks have passed, where any have."""
    latest = found.latest
    passed = next(number for number, one in enumerate(latest) if one is found.present)
    return f"{passed} of {len(latest)} preflight checks have passed; " if passed else ""


def _where(one: PreflightAttempt) -> str:
    node = "" if one.node is None else f" on node {one.node}"
    since = one.started_at or one.running_at
    return f"{node}{'' if since is None else f' since {_time(since)}'}"


def _end(one: PreflightAttempt) -> str:
    """Where and how an attempt ended, with what it says about itself."""
    node = "" if one.node is None else f" on node {one.node}"
    code = "" if one.exit_code is None else f"exit code {one.exit_code}"
    reason = "" if one.reason in WITHOUT_NEWS else one.reason
    details = ", ".join(filter(None, (code, reason, one.codes.replace(CODES_SEPARATOR, ", "))))
    message = f": {one.message.rstrip('. ')}" if one.message else ""
    return f"{node}{f' ({details})' if details else ''}{message}"


def _again(one: PreflightAttempt) -> str:
    """How often it was tried, and whether it will be again."""
    attempts = one.attempt + 1
    tried = "" if attempts == 1 else f"; it was tried {attempts} times"
    return tried if one.over_at is not None else f"{tried}; Kubernetes tries it again as the pod's restartPolicy says"


def _time(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


_PEER_WORDS: Final[Mapping[Stage, str]] = {
    Stage.NOT_PLACED: "has no node yet for",
    Stage.NOT_STARTED: "has not started",
    Stage.FAILED: "failed at",
    Stage.MISCONFIGURED: "has a wrong setting of",
    Stage.NOT_REPORTED: "could not carry out",
}
_WORDS: Final[Mapping[Stage, Callable[[PodChecks, PreflightAttempt], str]]] = {
    Stage.NOT_PLACED: _nothing,
    Stage.NOT_STARTED: _not_started,
    Stage.RUNNING: _runs,
    Stage.WAITS_FOR_GANG: _waits_for_gang,
    Stage.FAILED: _failed,
    Stage.MISCONFIGURED: _misconfigured,
    Stage.GANG_TIMED_OUT: _gang_timed_out,
    Stage.NOT_REPORTED: _not_reported,
    Stage.OVER: _over,
}
