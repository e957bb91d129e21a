"""What watchers make of pods with injected checks: values in, values out."""

from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.preflight import (
    ANNOTATION_GANG,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_GANG_SOURCE,
    ANNOTATION_INJECTED,
    LABEL_PREFLIGHT,
)
from gpuledger.edge.watchers.decide import LastRecord
from gpuledger.edge.watchers.resources import preflight_pods
from gpuledger.events.preflight import (
    CHECKS_MAX,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightCheck,
    PreflightResult,
)
from support.odd_objects import a_list, a_map, an_object, recorded, texts

Json = dict[str, Any]
STARTED, ENDED = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
TIMES = {"started_at": datetime.fromisoformat(STARTED), "ended_at": datetime.fromisoformat(ENDED)}
GANG = {ANNOTATION_GANG: "g-1", ANNOTATION_GANG_SOURCE: "volcano/g", ANNOTATION_GANG_SIZE: "2"}


def pod(checks: str = "dcgm-diag", *statuses: Json, annotations: Json | None = None, **status: Any) -> Json:
    names = [name.strip() for name in checks.split(",")]
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "labels": {LABEL_PREFLIGHT: "true"},
            "annotations": {ANNOTATION_INJECTED: checks, **(annotations or {})},
        },
        "spec": {"nodeName": "w1", "initContainers": [{"name": f"preflight-{name}"} for name in names if name]},
        "status": {"podIP": "10.0.0.1", "phase": "Pending", "initContainerStatuses": list(statuses)} | status,
    }


def container(state: Json, last: Json | None = None, restarts: int = 0, name: str = "dcgm-diag") -> Json:
    found = {"name": f"preflight-{name}", "state": state, "restartCount": restarts}
    return found | ({"lastState": last} if last else {})


def ended(code: int, message: str = "", reason: str = "Error") -> Json:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": STARTED,
            "finishedAt": ENDED,
            "message": message,
        }
    }


RUNNING = {"running": {"startedAt": STARTED}}
BACKING_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}


def observed(obj: Json) -> PodPreflightObserved:
    part = preflight_pods.read(obj)
    assert part.subject == "ns/p"
    return preflight_pods.KIND.combine([part.content])


def check(obj: Json) -> PreflightCheck:
    (found,) = observed(obj).checks
    return found


def test_only_pods_of_namespaces_with_checks_count_and_those_that_were_recorded_before() -> None:
    last = LastRecord(b"1", "u", datetime.fromisoformat(STARTED))
    for namespaces, record, is_followed in (
        (["ns"], None, True),
        ([], None, False),
        (["other"], last, True),
        ([], last._replace(uid="before"), False),
        ([], last._replace(digest=None), False),
    ):
        kind = preflight_pods.kind(namespaces, {"ns/p": record}.get)
        assert (kind.read(pod()).subject == "ns/p") is is_followed, (namespaces, record)


def test_a_label_alone_makes_no_pod_with_checks() -> None:
    for marked in (pod(), pod("dcgm-diag,nccl-allreduce", annotations=GANG)):
        marked["spec"]["initContainers"] = [{"name": "preflight-other"}, {"name": "own"}]
        part = preflight_pods.read(marked)
        assert part.subject is None
        assert "has none of those that it names" in part.problems[0]


def test_a_pod_is_observed_with_its_gang() -> None:
    assert observed(pod(annotations=GANG)) == PodPreflightObserved(
        uid="u", node="w1", ip="10.0.0.1", gang="g-1", gang_source="volcano/g", gang_size=2,
        checks=(PreflightCheck(name="dcgm-diag", state="waiting"),),
    )  # fmt: skip


def test_a_pod_without_our_label_is_none_of_ours() -> None:
    for labels in ({}, {LABEL_PREFLIGHT: "false"}):
        obj = pod()
        obj["metadata"]["labels"] = labels
        assert preflight_pods.read(obj).subject is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (container({"waiting": {"reason": "PodInitializing"}}), {"state": "waiting"}),
        (container(RUNNING), {"state": "running", "started_at": TIMES["started_at"]}),
        (container(ended(1)), {"state": "ended", "exit_code": 1, "reason": "Error", **TIMES}),
        (container(ended(0, reason="Completed")), {"state": "ended", "exit_code": 0, "reason": "Completed", **TIMES}),
        (container({}), {"state": "waiting"}),
        (container(RUNNING, ended(0), 1), {"state": "running", "attempt": 1, "started_at": TIMES["started_at"]}),
    ],
)
def test_a_check_is_as_its_container(status: Json, expected: Json) -> None:
    assert check(pod("dcgm-diag", status)) == PreflightCheck.model_validate({"name": "dcgm-diag", **expected})


def test_a_crash_loop_is_one_fact_for_each_attempt() -> None:
    """Ended, backing off and running again: the failed end holds until the next one."""
    seen = [
        observed(pod("dcgm-diag", one))
        for attempt in range(3)
        for one in (
            container(ended(3), ended(3) if attempt else None, attempt),
            container(BACKING_OFF, ended(3), attempt),
            container(RUNNING, ended(3), attempt + 1),
        )
    ]
    assert [one.checks[0].attempt for one in seen] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    ("obj", "is_done"),
    [
        (pod("dcgm-diag", container(ended(0))), True),
        (pod("dcgm-diag", container(ended(1))), False),
        (pod("dcgm-diag,bandwidth", container(ended(0))), False),
        (pod("dcgm-diag,bandwidth", container(ended(0)), container(ended(0), name="bandwidth")), True),
        (pod("dcgm-diag", container(ended(1)), phase="Failed"), True),
        (pod("dcgm-diag", container(RUNNING), phase="Succeeded"), True),
    ],
)
def test_a_pod_is_done_once_no_check_will_run(obj: Json, is_done: bool) -> None:
    assert observed(obj).done is is_done


def test_a_pod_that_is_being_deleted_is_done() -> None:
    obj = pod("dcgm-diag", container(RUNNING))
    obj["metadata"]["deletionTimestamp"] = ENDED
    assert observed(obj).done


RESULT = PreflightResult(outcome="failed", codes=("NCCL_SYSTEM_ERROR",), message="m", duration_s=3.5, gang_wait_s=1.0)


@pytest.mark.parametrize(
    ("message", "result"),
    [
        (RESULT.model_dump_json(), RESULT),
        (orjson.dumps({"outcome": "passed", "later": [1]}).decode(), PreflightResult(outcome="passed")),
        ("", None),
        ("Killed", None),
        ('{"outcome": "perhaps"}', None),
        ('{"outcome": "failed", "message": ', None),
        ('{"outcome": "failed", "message": "\\u0000"}', None),
        ('{"outcome": "failed", "duration_s": NaN}', None),
        ('["failed"]', None),
        ('{"outcome": "failed"}' + " " * 5000, None),
    ],
)
def test_a_result_is_read_from_the_termination_message(message: str, result: PreflightResult | None) -> None:
    assert check(pod("dcgm-diag", container(ended(1, message)))).result == result


def test_what_cannot_be_understood_is_left_out_and_noted() -> None:
    names = ",".join(f"c{number}" for number in range(CHECKS_MAX + 1)) + ",\0"
    gang = {ANNOTATION_GANG: 7, ANNOTATION_GANG_SIZE: "²"}
    part = preflight_pods.read(pod(names, annotations=gang, podIP="10.0.0.1\nother:10.0.0.2"))
    found = preflight_pods.KIND.combine([part.content])
    assert (len(found.checks), found.ip, found.gang, found.gang_size) == (CHECKS_MAX, None, None, None)
    assert len(part.problems) == 4
    assert observed(pod(podIP="FD00::1")).ip == "fd00::1"


def test_the_tombstone_names_the_pod_that_is_gone() -> None:
    assert preflight_pods.KIND.tombstone_of("u") == PodPreflightGone(uid="u")


ends = an_object(
    exitCode=st.integers(),
    reason=texts,
    startedAt=st.just(STARTED),
    finishedAt=texts,
    message=st.just(RESULT.model_dump_json()),
)
states = an_object(terminated=ends, running=an_object(startedAt=texts), waiting=an_object(reason=texts))
statuses = an_object(name=st.just("preflight-a"), state=states, lastState=states, restartCount=st.integers(-1, 2**70))


@given(
    metadata=an_object(
        name=texts,
        namespace=texts,
        uid=texts,
        labels=st.just({LABEL_PREFLIGHT: "true"}),
        annotations=a_map(texts) | st.just({ANNOTATION_INJECTED: "a,b", **GANG}),
    ),
    spec=an_object(nodeName=texts, initContainers=st.just([{"name": "preflight-a"}]) | a_list(texts)),
    status=an_object(podIP=texts, phase=texts, initContainerStatuses=a_list(statuses)),
)
def test_any_object_is_read_and_recorded(metadata: Any, spec: Any, status: Any) -> None:
    part = preflight_pods.read({"metadata": metadata, "spec": spec, "status": status})
    if part.subject is not None:
        recorded(preflight_pods.KIND, part.subject, part.content)
