"""The facts of MachineConfigs and of the Nodes that get them: whole specs, and what is refused or not understood."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
)
from gpuledger.domain.machineconfig.canonical_files import checked_content, content_hash
from gpuledger.domain.machineconfig.rendering import RenderProblem, render
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.resources import machineconfigs, nodemachines
from gpuledger.events.machine_config import (
    CONTENT_BYTES_MAX,
    FILES_MAX,
    ConfigFile,
    ConfigUnit,
    MachineConfigDefined,
    NodeMachineObserved,
    pack_content,
)
from gpuledger.events.payload import DATA_BYTES_MAX, TEXT_LENGTH_MAX
from support.machine_configs import config_pool, incompressible
from support.odd_objects import a_list, a_map, an_object, recorded, texts

Json = dict[str, Any]
KIND = machineconfigs.KIND


def config(spec: object = None, **metadata: Any) -> Json:
    named = {"name": "c", "uid": "u", "generation": 3}
    return {"metadata": named | metadata, "spec": {} if spec is None else spec}


def payload_of(obj: Json) -> MachineConfigDefined:
    return KIND.combine([KIND.read(obj).content])


def with_file(**fields: Any) -> Json:
    return config({"files": [{"path": "/etc/a"} | fields]})


def test_one_with_nothing_has_the_defaults() -> None:
    assert payload_of(config()) == MachineConfigDefined(uid="u", generation=3)
    (file,) = payload_of(with_file()).files
    assert file == ConfigFile(path="/etc/a", hash=content_hash(""), mode=0o644, owner="root:root", state="present")


def test_a_whole_spec() -> None:
    spec = {
        "priority": 0,
        "files": [{"path": "/etc/a", "content": "ä\n", "mode": 384, "owner": "0:0", "state": "absent"}],
        "systemd": {
            "units": [{"name": "a.service", "enabled": False, "state": "reloaded", "mask": True}, {"name": "b.timer"}]
        },
        "reboot": {"required": True, "reason": "kernel"},
    }
    assert payload_of(config(spec, labels={"team": "a"})) == MachineConfigDefined(
        uid="u",
        generation=3,
        labels={"team": "a"},
        priority=0,
        files=(
            ConfigFile(
                path="/etc/a",
                content=pack_content("ä\n"),
                hash=content_hash("ä\n"),
                mode=384,
                owner="0:0",
                state="absent",
            ),
        ),
        units=(ConfigUnit(name="a.service", enabled=False, state="reloaded", mask=True), ConfigUnit(name="b.timer")),
        reboot_required=True,
        reboot_reason="kernel",
    )


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (config({"priority": 100_000}), "spec.priority is 100000; give a whole number from 0 to 99999"),
        (config({"priority": True}), "spec.priority is True; give a whole number from 0 to 99999"),
        (config({"ignition": {}}), "'ignition' in spec is not known"),
        (config({"files": [{}]}), "spec.files[0].path is None"),
        (config({"files": [1]}), "spec.files[0].path is None"),
        (with_file(encoding="base64"), "spec.files[0].'encoding' is not known"),
        (with_file(content=1), "spec.files[0].content is 1"),
        (with_file(mode="0644"), "spec.files[0].mode is '0644'; give a whole number from 0 to 4095"),
        (with_file(state="gone"), "spec.files[0].state is 'gone'"),
        (with_file(content="ä" * CONTENT_BYTES_MAX), "spec.files[0].content is larger than 1048576 bytes"),
        (
            with_file(content=incompressible(1, CONTENT_BYTES_MAX)),
            "spec.files[0].content is larger than 1048576 bytes even",
        ),
        (with_file(path="/boot/a"), "spec.files[0].path '/boot/a' is refused"),
        (config({"files": [{"path": "/etc/a"}] * 2}), "spec.files has '/etc/a' more than once"),
        (
            config({"systemd": {"units": [{"name": "crio.service"}]}}),
            "spec.systemd.units[0].name 'crio.service' is refused",
        ),
        (config({"systemd": {"units": [{"enabled": True}]}}), "spec.systemd.units[0].name is None"),
        (config({"systemd": {"unit": []}}), "'unit' in spec.systemd is not known"),
        (config({"reboot": {"required": "yes"}}), "spec.reboot.required is 'yes'"),
        (config("all"), "spec is 'all'"),
    ],
)
def test_what_is_not_understood_is_a_problem_that_no_pool_renders(obj: Json, problem: str) -> None:
    part = KIND.read(obj)
    definition = KIND.combine([part.content])
    assert any(one.startswith(problem) for one in definition.problems), definition.problems
    assert definition.problems == part.problems
    found = render("worker", config_pool(), [("c", definition)], {})
    assert isinstance(found, RenderProblem)
    assert found.config == "c"


def test_one_that_is_too_large_for_an_event_is_defined_with_a_problem() -> None:
    files = [{"path": f"/etc/{n}", "content": incompressible(n, 400_000)} for n in range(3)]
    definition = payload_of(config({"files": files}, labels={"team": "a"}))
    assert (definition.files, definition.labels, len(definition.problems)) == ((), {"team": "a"}, 1)
    assert "too large for the ledger" in definition.problems[0]


def test_too_many_files_are_a_problem() -> None:
    definition = payload_of(config({"files": [{"path": f"/etc/{n}"} for n in range(FILES_MAX + 1)]}))
    assert definition.problems == ("spec.files has 1025 entries; only 1024 of them are recorded",)


def test_large_texts_that_are_small_when_packed_are_kept() -> None:
    (file,) = payload_of(with_file(content="a" * CONTENT_BYTES_MAX)).files
    assert checked_content(file) == "a" * CONTENT_BYTES_MAX


def test_what_others_write_into_it_changes_nothing() -> None:
    assert KIND.read(config() | {"status": {"a": 1}}) == KIND.read(config(annotations={"a": "b"}))


_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(name=st.just("c"), uid=texts, generation=st.integers(0), labels=a_map(texts)),
        "spec": an_object(
            priority=st.integers(-1, 100_000),
            files=a_list(
                an_object(
                    path=texts | st.sampled_from(["/etc/a", "/etc/b", "/boot/a"]), content=texts,
                    mode=st.integers(-1, 5000), owner=texts | st.just("root:root"),
                    state=st.sampled_from(["present", "absent"]),
                )
            ),
            systemd=an_object(
                units=a_list(
                    an_object(
                        name=texts | st.just("a.service"), enabled=st.booleans(), state=st.just("started"),
                        mask=st.booleans(),
                    )
                )
            ),
            reboot=an_object(required=st.booleans(), reason=texts),
        ),
    },
)  # fmt: skip


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    part = KIND.read(obj)
    assert len(part.content) <= DATA_BYTES_MAX
    assert WatchedObjects(KIND, [part]).subjects() == ({part.subject} if part.subject else set())
    if part.subject is not None:
        recorded(KIND, part.subject, part.content)


@given(obj=_odd)
def test_one_without_a_problem_was_understood_whole(obj: Json) -> None:
    part = KIND.read(obj)
    if part.subject is None or part.problems:
        return
    spec = obj.get("spec") or {}
    definition = KIND.combine([part.content])
    assert [one.path for one in definition.files] == [one["path"] for one in spec.get("files") or []]
    contents = [one.get("content") or "" for one in spec.get("files") or []]
    assert [checked_content(one) for one in definition.files] == contents
    units = (spec.get("systemd") or {}).get("units") or []
    assert [one.enabled for one in definition.units] == [one.get("enabled") for one in units]
    assert not isinstance(render("worker", config_pool(), [("c", definition)], {}), RenderProblem)


def node(annotations: object = None, spec: object = None, **metadata: Any) -> Json:
    named = {"name": "w1", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"metadata": named | {"annotations": annotations} | metadata, "spec": spec}


def observed(obj: Json) -> NodeMachineObserved:
    return nodemachines.KIND.combine([nodemachines.KIND.read(obj).content])


def test_a_node_without_an_agent() -> None:
    created = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert observed(node()) == NodeMachineObserved(uid="u", created=created)
    assert observed(node(spec={"unschedulable": True})).unschedulable


def test_what_an_agent_says() -> None:
    found = observed(
        node(
            {
                ANNOTATION_CURRENT: "rendered-worker-a1b2c3d4e5",
                ANNOTATION_STATE: "error",
                ANNOTATION_LAST_ERROR: "x" * (TEXT_LENGTH_MAX + 1) + "\0",
                ANNOTATION_REBOOT_PENDING: "true",
            }
        )
    )
    assert (found.current_revision, found.agent_state, found.reboot_pending) == (
        "rendered-worker-a1b2c3d4e5",
        "error",
        True,
    )
    assert len(found.last_error) == TEXT_LENGTH_MAX


def test_what_gpuledger_writes_is_no_fact() -> None:
    ours = node({ANNOTATION_DESIRED: "rendered-worker-a1b2c3d4e5"}, {"taints": []}, labels={"a": "b"})
    assert nodemachines.KIND.read(ours) == nodemachines.KIND.read(node())


_ANNOTATIONS = (ANNOTATION_CURRENT, ANNOTATION_STATE, ANNOTATION_LAST_ERROR)
_odd_node = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(
            name=st.just("w1"),
            uid=texts,
            creationTimestamp=st.just("2026-01-02T03:04:05Z"),
            annotations=an_object(**dict.fromkeys(_ANNOTATIONS, texts)),
        ),
        "spec": an_object(unschedulable=st.booleans()),
    },
)


@given(obj=_odd_node)
def test_any_node_can_be_read_and_recorded(obj: Json) -> None:
    part = nodemachines.KIND.read(obj)
    if part.subject is not None:
        recorded(nodemachines.KIND, part.subject, part.content)
