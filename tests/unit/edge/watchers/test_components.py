"""What watchers make of the pods of components: how far each is, and why it gets no further."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.resources import components
from gpuledger.edge.watchers.resources.pod_progress import (
    FAILING_REASONS,
    MESSAGE_LENGTH_MAX,
    TERMINATING,
    PodProgress,
    progress_of,
)
from gpuledger.events.node import COMPONENT_PODS_MAX, ComponentPod, NodeComponentsObserved
from support.odd_objects import a_list, an_object, recorded, texts

Json = dict[str, Any]

READY: Json = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
DRIVER, TOOLKIT, CUDA = "driver-validation", "toolkit-validation", "cuda-validation"


def component(app: str, name: str = "p", node: str | None = "w1", status: Json | None = None, **metadata: Any) -> Json:
    named = {"name": name, "namespace": "d8-gpu-operator", "labels": {"app": app}} | metadata
    return {"metadata": named, "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": status or {}}


def validator(init: list[Json], main: Json | None = None, **status: Any) -> Json:
    """A validator with two init containers, of which statuses are given in any order, and a container."""
    spec = {"initContainers": [{"name": DRIVER}, {"name": TOOLKIT}], "containers": [{"name": CUDA}]}
    shown = {
        "phase": "Pending",
        "initContainerStatuses": init,
        "containerStatuses": [main] if main else [],
    } | status
    return {"metadata": {"name": "v"}, "spec": spec, "status": shown}


def on(name: str, **state: Json) -> Json:
    return {"name": name, "state": state}


def ended(name: str, code: int = 0, **more: str) -> Json:
    return on(name, terminated={"exitCode": code} | more)


def waits(name: str, reason: str, **more: Any) -> Json:
    return on(name, waiting={"reason": reason} | more)


RUNS: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("pod", "progress"),
    [
        (validator([]), PodProgress(ready=False, step=DRIVER)),
        (validator([on(DRIVER, **RUNS)]), PodProgress(ready=False, step=DRIVER)),
        (validator([waits(TOOLKIT, "PodInitializing"), ended(DRIVER)]), PodProgress(ready=False, step=TOOLKIT)),
        (validator([ended(DRIVER), ended(TOOLKIT)]), PodProgress(ready=False, step=CUDA)),
        (validator([ended(DRIVER), ended(TOOLKIT)], on(CUDA, **RUNS)), PodProgress(ready=False, step=CUDA)),
        (validator([ended(DRIVER), ended(TOOLKIT)], on(CUDA, **RUNS) | {"ready": True}), PodProgress(ready=False)),
        (validator([], **READY), PodProgress(ready=True)),
        (validator([], conditions=[{"type": "Ready", "status": "False"}]), PodProgress(ready=False, step=DRIVER)),
        (validator([ended(DRIVER), ended(TOOLKIT)], ended(CUDA)), PodProgress(ready=False, step=CUDA)),
        ({}, PodProgress(ready=False)),
    ],
)
def test_the_step_that_a_pod_is_at(pod: Json, progress: PodProgress) -> None:
    assert progress_of(pod) == progress


@pytest.mark.parametrize("reason", sorted(FAILING_REASONS - {"CrashLoopBackOff"}))
def test_what_waiting_does_not_help(reason: str) -> None:
    pod = validator([ended(DRIVER), waits(TOOLKIT, reason, message="no such image")])
    assert progress_of(pod) == PodProgress(
        ready=False, failing=True, step=TOOLKIT, reason=reason, message=f"{TOOLKIT}: no such image"
    )


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (ended(DRIVER, 1), "Error", f"{DRIVER} ended with exit code 1"),
        (ended(DRIVER, 137, reason="OOMKilled"), "OOMKilled", f"{DRIVER} ended with exit code 137"),
        (ended(DRIVER, 2, reason="Error", message="no driver"), "Error", f"{DRIVER} ended with exit code 2: no driver"),
        (waits(DRIVER, "CrashLoopBackOff"), "CrashLoopBackOff", f"{DRIVER} ended"),
    ],
)
def test_a_step_that_ended_badly(status: Json, reason: str, message: str) -> None:
    progress = progress_of(validator([status]))
    assert progress == PodProgress(ready=False, failing=True, step=DRIVER, reason=reason, message=message)


def test_a_later_container_that_fails_has_the_pod_fail() -> None:
    pod = validator([ended(DRIVER)], waits(CUDA, "InvalidImageName"))
    progress = progress_of(pod)
    assert (progress.failing, progress.step, progress.reason) == (True, TOOLKIT, "InvalidImageName")


def crashes(restarts: int) -> Json:
    pause = waits(DRIVER, "CrashLoopBackOff", message=f"back-off {restarts * 10}s restarting failed container")
    last = {"exitCode": 1, "reason": "Error", "message": f"no driver in container {restarts:064x}"}
    return validator([pause | {"restartCount": restarts, "lastState": {"terminated": last}}])


def test_a_pod_that_crashes_again_and_again_has_the_same_progress() -> None:
    assert progress_of(crashes(1)) == progress_of(crashes(99))
    assert progress_of(crashes(1)).message == f"{DRIVER} ended with exit code 1: no driver in container ..."


def test_restarts_are_no_news_of_a_pod_that_gets_along() -> None:
    one, other = (validator([on(DRIVER, **RUNS) | {"restartCount": restarts}]) for restarts in (0, 7))
    assert progress_of(one) == progress_of(other)


def test_a_pod_that_its_node_put_out() -> None:
    pod = validator([ended(DRIVER, 137)], phase="Failed", reason="Evicted", message="The node was low on memory")
    assert progress_of(pod) == PodProgress(
        ready=False, failing=True, step=DRIVER, reason="Evicted", message="The node was low on memory"
    )
    assert progress_of(validator([ended(DRIVER, 1)], phase="Failed")).reason == "Error"
    assert progress_of(validator([], phase="Failed")).reason == "Failed"
    assert not progress_of(validator([], **READY | {"phase": "Failed"})).ready


def test_a_pod_that_is_ending_is_neither_ready_nor_failing() -> None:
    pod = validator([ended(DRIVER, 143)], **READY)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert progress_of(pod) == PodProgress(ready=False, reason=TERMINATING)


def test_an_init_container_that_stays_is_done_when_it_is_ready() -> None:
    pod = validator([on(DRIVER, **RUNS) | {"ready": True}, on(TOOLKIT, **RUNS)])
    for one in pod["spec"]["initContainers"]:
        one["restartPolicy"] = "Always"
    assert progress_of(pod).step == TOOLKIT


def test_long_messages_are_cut() -> None:
    pod = validator([ended(DRIVER, 1, message="x\0" * 5_000)])
    assert len(progress_of(pod).message) == MESSAGE_LENGTH_MAX
    assert "\0" not in progress_of(pod).message


@pytest.mark.parametrize(("app", "name"), COMPONENT_BY_APP.items())
def test_a_label_identifies_every_component(app: str, name: str) -> None:
    payload = WatchedObjects(components.kind(NAMESPACE), [components.read(component(app, status=READY))]).payload("w1")
    assert payload == NodeComponentsObserved(pods=(ComponentPod(component=name, pod="p", ready=True),))  # type: ignore[arg-type] # the table's


def test_the_exporters_own_chart_is_identified_by_its_label_and_nothing_else_is() -> None:
    def named(**labels: str) -> str | None:
        given = {name.replace("__", ".").replace("_", "-"): value for name, value in labels.items()}
        pod = component("other", labels={"app.kubernetes.io/name": "dcgm-exporter"} | given, status=READY)
        payload = WatchedObjects(components.kind(NAMESPACE), [components.read(pod)]).payload("w1")
        return payload.pods[0].component if isinstance(payload, NodeComponentsObserved) else None

    assert named() == "dcgm-exporter"
    assert named(app="nvidia-dcgm") == "dcgm"
    assert components.read(component("other", labels={"app.kubernetes.io/name": "other"})).subject is None
    assert components.kind(NAMESPACE).labels == ""


@pytest.mark.parametrize(
    "obj", [component("other"), component("nvidia-dcgm", node=None), {}, component("nvidia-dcgm", name="")]
)
def test_a_pod_that_is_no_component_on_a_node_is_skipped(obj: Json) -> None:
    assert components.read(obj).subject is None


def test_the_components_of_a_node_are_one_fact_and_the_last_one_ends_it() -> None:
    objects = WatchedObjects(components.kind(NAMESPACE))
    assert objects.put(components.read(component("nvidia-dcgm", "b"))) == ("w1",)
    assert objects.put(components.read(component("gpu-feature-discovery", "a", status=READY))) == ("w1",)
    both = objects.payload("w1")
    assert isinstance(both, NodeComponentsObserved)
    assert [(one.component, one.ready, one.step) for one in both.pods] == [("gfd", True, None), ("dcgm", False, "c")]
    assert objects.drop("d8-gpu-operator/a") == ("w1",)
    assert objects.drop("d8-gpu-operator/b") == ("w1",)
    assert objects.payload("w1") is None
    assert components.kind(NAMESPACE).tombstone_of(None) == NodeComponentsObserved()


def test_more_pods_than_an_event_holds_are_cut() -> None:
    status = validator([ended(DRIVER, 1, message="\x01" * 5_000)])["status"]
    many = [component("nvidia-dcgm", f"p{index:03}", status=status) for index in range(COMPONENT_PODS_MAX + 1)]
    payload = components.merge([components.read(one).content for one in many])
    assert len(payload.pods) == COMPONENT_PODS_MAX


_state = an_object(
    waiting=an_object(reason=st.sampled_from(sorted(FAILING_REASONS)) | texts, message=texts),
    terminated=an_object(exitCode=st.integers(), reason=texts, message=texts),
    running=an_object(),
)
_name = st.sampled_from("abc")
_statuses = a_list(an_object(name=_name, state=_state, lastState=_state, ready=st.booleans()))
_containers = a_list(an_object(name=_name, restartPolicy=st.just("Always")))
_odd = st.fixed_dictionaries(
    {
        "metadata": an_object(
            name=st.just("n"),
            labels=st.just({"app": "nvidia-dcgm"}),
            deletionTimestamp=st.none(),
        ),
        "spec": an_object(nodeName=st.just("w1") | texts, initContainers=_containers, containers=_containers),
    },
    optional={
        "status": an_object(
            phase=st.sampled_from(["Failed", "Running"]),
            reason=texts,
            message=texts,
            conditions=a_list(an_object(type=st.just("Ready"), status=st.sampled_from(["True", "False"]))),
            initContainerStatuses=_statuses,
            containerStatuses=_statuses,
        )
    },
)


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    part = components.read(obj)
    assert WatchedObjects(components.kind(NAMESPACE), [part]).subjects() == ({part.subject} if part.subject else set())
    if part.subject is None:
        return
    (one,) = recorded(components.kind(NAMESPACE), part.subject, part.content).data.pods
    assert not (one.ready and (one.failing or one.step or one.reason or one.message))
    assert one.reason or not one.failing
