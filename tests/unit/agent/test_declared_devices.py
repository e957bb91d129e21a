"""Files that declare devices: what counts, and what is left out with which reason."""

from typing import Any

import pytest

from gpuledger.agent.declared_devices import DECLARED_TYPES_MAX, Unreadable, declared, devices_of
from gpuledger.agent.declared_files import FILES_BYTES_MAX
from gpuledger.api.sharing import DEFAULT_NAMES, SharingNames
from gpuledger.events.node_devices import DECLARED_DEVICES_MAX
from gpuledger.events.sharing import VFS_MAX, SharedDevice, SharedFunction, SharedFunctionGroup, SharedTopology
from gpuledger.ledger.memory import MESSAGE_BYTES_MAX
from support.declared import FPGA, file_of, fpga

WHOLE_FORM = """
- type: fpga
  id: "0000:3b:00.0"
  minor: 0
  moduleID: 2
  health: true
  resources: {kooperator/fpga: "100"}
  topology: {socketID: 0, nodeID: 1, pcieID: "0000:3a:00.0", busID: "0000:3b:00.0"}
  labels: {model: u280}
  vfGroups:
  - labels: {speed: fast}
    vfs:
    - {minor: 0, busID: "0000:3b:00.1"}
"""


def reasons(**files: Any) -> dict[str, str]:
    found = declared({f"{name}.json": file_of(*devices) for name, devices in files.items()}, DEFAULT_NAMES)
    return {one.file: one.reason for one in found.left_out}


def test_a_device_has_the_form_of_a_devices_spec() -> None:
    (found,) = devices_of("a.yaml", WHOLE_FORM.encode(), DEFAULT_NAMES)
    assert found == SharedDevice(
        type="fpga",
        id="0000:3b:00.0",
        minor=0,
        module_id=2,
        healthy=True,
        resources={"fpga": 100},
        topology=SharedTopology(socket=0, numa=1, pcie="0000:3a:00.0", bus_id="0000:3b:00.0"),
        labels={"model": "u280"},
        function_groups=(
            SharedFunctionGroup(labels={"speed": "fast"}, functions=(SharedFunction(minor=0, bus_id="0000:3b:00.1"),)),
        ),
    )


def test_json_and_yaml_declare_the_same() -> None:
    text = file_of(fpga(0), fpga(1))
    assert devices_of("a.json", text, DEFAULT_NAMES) == devices_of("a.yml", text, DEFAULT_NAMES)


def test_the_resource_has_the_installations_domain() -> None:
    names = SharingNames("example.com")
    (found,) = devices_of("a.json", file_of(FPGA | {"resources": {"example.com/fpga": 50}}), names)
    assert found.resources == {"fpga": 50}
    with pytest.raises(ValueError, match=r"has the field 'kooperator/fpga'; allowed are example\.com/fpga"):
        devices_of("a.json", file_of(FPGA), names)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "gpu"}, "it[0].type is 'gpu': the agent finds such devices itself"),
        ({"type": "rdma"}, "it[0].type is 'rdma': the agent finds such devices itself"),
        ({"type": "gpu-core"}, "it[0].type is 'gpu-core'; it names the resource kooperator/TYPE"),
        ({"type": "FPGA"}, "it[0].type is 'FPGA'"),
        ({"type": None}, "it[0].type has to be a text"),
        ({"id": ""}, "it[0].id has to be a text"),
        ({"id": 5}, "it[0].id has to be a text"),
        ({"minor": None}, "it[0].minor has to be a whole number from 0"),
        ({"minor": -1}, "it[0].minor has to be a whole number from 0"),
        ({"minor": True}, "it[0].minor has to be a whole number from 0"),
        ({"minor": 2**31}, "it[0].minor has to be a whole number from 0"),
        ({"health": None}, "it[0].health has to be true or false"),
        ({"health": "true"}, "it[0].health has to be true or false"),
        ({"resources": {}}, "it[0].resources['kooperator/fpga'] is None"),
        ({"resources": {"kooperator/fpga": 0}}, "it is a percentage of the device, 1 to 100"[3:]),
        ({"resources": {"kooperator/fpga": 101}}, "is 101; it is a percentage of the device"),
        ({"resources": {"kooperator/fpga": "1.5"}}, "it has to be a whole number"),
        ({"resources": {"kooperator/fpga": 100, "kooperator/gpu-core": 100}}, "has the field 'kooperator/gpu-core'"),
        ({"topology": {"socketID": 0, "nodeID": 0}}, "it[0].topology.pcieID has to be a text"),
        ({"topology": {"socketID": "0", "nodeID": 0, "pcieID": "a"}}, "it[0].topology.socketID has to be a whole"),
        ({"labels": {"a": 1}}, "it[0].labels['a'] has to be a text"),
        ({"labels": ["a"]}, "it[0].labels has to be an object"),
        ({"vfGroups": [{"vfs": [{"minor": 0}]}]}, "it[0].vfGroups[0].vfs[0].busID has to be a text"),
        ({"vfGroups": [{"vfs": [{"minor": 0, "busID": "a"}] * 2}]}, "the virtual function 'a' of the type fpga is dec"),
        ({"vfGroups": [{"vfs": [{}] * (VFS_MAX + 1)}]}, f"it[0].vfGroups[0].vfs has {VFS_MAX + 1} items"),
        ({"moduleId": 1}, "it[0] has the field 'moduleId'; allowed are type, id, minor, moduleID"),
    ],
)
def test_a_device_with_anything_wrong_leaves_its_file_out(change: dict[str, Any], reason: str) -> None:
    found = reasons(a=[FPGA | change], b=[fpga(7)])
    assert list(found) == ["a.json"]
    assert reason in found["a.json"]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("a.json", b"[", "it is not JSON"),
        ("a.json", b"{}", "it has to be a list of devices"),
        ("a.json", b"[5]", "it[0] has to be a JSON object"),
        ("a.json", b"", "it is not JSON"),
        ("a.yaml", b"", "it has to be a list of devices"),
        ("a.yaml", b"- {1: 2}", "it[0] has a field whose name is no text"),
        ("a.yaml", b"- {", "it is not YAML that can be read"),
        ("a.yaml", b"\xff\xff\xff", "it is not YAML that can be read"),
        ("a.yaml", b"- &a {type: x}\n- *a", "aliases are not allowed"),
        ("a.yaml", b"- !!python/object:os.system {}", "it is not YAML that can be read"),
        ("a.yaml", b"[" * 5000, "it is not YAML that can be read"),
        ("a.yaml", b"[]\n---\n[]", "it is not YAML that can be read"),
        ("a.json", Unreadable("it is no regular file"), "it is no regular file"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_out(file: str, content: Any, reason: str) -> None:
    found = declared({file: content, "b.json": file_of(fpga(1))}, DEFAULT_NAMES)
    assert [one.minor for one in found.devices] == [1]
    assert [one.file for one in found.left_out] == [file]
    assert reason in found.left_out[0].reason


def test_ids_and_minors_are_unique_per_type() -> None:
    other = fpga(0) | {"type": "npu", "resources": {"kooperator/npu": 100}}
    assert reasons(a=[fpga(0), other]) == {}
    assert "the minor 0 of the type fpga is declared twice" in reasons(a=[fpga(0), fpga(0, id="x")])["a.json"]
    assert "the id 'x' of the type fpga is declared twice" in reasons(a=[fpga(0, id="x"), fpga(1, id="x")])["a.json"]


def test_of_two_files_with_one_device_the_first_by_name_counts() -> None:
    assert list(reasons(b=[fpga(0), fpga(1)], a=[fpga(1)])) == ["b.json"]


def test_bounds_of_a_node_hold_over_all_files() -> None:
    many = [fpga(minor) for minor in range(DECLARED_DEVICES_MAX)]
    assert reasons(a=many) == {}
    assert f"the node declares {DECLARED_DEVICES_MAX + 1} devices" in reasons(a=many, b=[fpga(9999)])["b.json"]
    assert f"it has {DECLARED_DEVICES_MAX + 1} items" in reasons(a=[*many, fpga(9999)])["a.json"]
    kinds = [fpga(0, type=f"t{at}", resources={f"kooperator/t{at}": 1}) for at in range(DECLARED_TYPES_MAX + 1)]
    assert f"the node declares {DECLARED_TYPES_MAX + 1} types" in reasons(a=kinds)["a.json"]


def test_what_files_of_the_largest_size_declare_fits_into_one_event() -> None:
    function = "{minor: 0,busID: x%04x},"
    used = functions = 0
    lines: list[str] = []
    while used < FILES_BYTES_MAX:
        vfs = "".join(function % (functions + at) for at in range(VFS_MAX))
        functions += VFS_MAX
        head = "{type: f,id: a%d,minor: %d,health: on,resources: {kooperator/f: 1},vfGroups: [{vfs: [%s]}]}"
        lines.append("- " + head % (len(lines), len(lines), vfs))
        used += len(lines[-1]) + 1
    found = declared({"a.yaml": "\n".join(lines).encode()}, DEFAULT_NAMES)
    assert (len(found.devices), found.left_out) == (len(lines), ())
    assert len(found.model_dump_json()) < MESSAGE_BYTES_MAX // 2
