"""Outputs of others' tools: every parser of the product reads all that was recorded of its tool."""

from pathlib import Path

import pytest

from support.paths import ROOT
from support.tool_outputs import Reading, main, readings

FOLDER = ROOT.parent / "shared" / "recordings"

EXPECTED = {
    "dcgm-exporter/l4-4.x-gpu-operator-default-counters-idle.prom": "a heartbeat by its advancing samples",
    "dcgm-exporter/vgpu-grid-a100-10c.prom": "a heartbeat by its samples",
    "node-labels/gfd-mig-invalid.txt": "product NVIDIA-A100-SXM4-80GB",
    "node-labels/gfd-memory-in-bytes-gke-a100.txt": "memory_mib 40536",
    "gpu-operator/validator-driver-completed-1.9.0.describe.txt": "every step is done",
    "gpu-operator/validator-main-container-podinitializing-23.3.1.describe.txt": "nvidia-operator-validator waits",
    "gpu-operator/validator-plugin-waiting-25.10.1.describe.txt": "plugin-validation waits",
    "gpu-operator/validator-toolkit-crashloop-1.7.1.describe.txt": "toolkit-validation fails",
    "cdi/nvidia-wsl2-0.3.0.yaml": "nvidia.com/gpu=all",
    "dra/nvidia-gb200-oke-resourceslice-gpu.yaml": "1 objects with 4 devices",
    "kubelet/podresources-dra-example-driver.json": "workload-pod/workload has 0 resources and 1 claims",
    "xid/dmesg-xid-119-h100.log": "119",
    "xid/kmsg-oom-and-xid-13.log": "13, 43",
    "xid/kmsg-raw.log": "no XID",
    "nvidia-smi/mig-lgip-rtx-pro-6000.txt": "1g.24gb, 1g.24gb+gfx, 1g.24gb+me",
    "mco-lite/sample-mco_v1alpha1_machineconfig.yaml": "MachineConfig chrony-config, MachineConfig sysctl-config",
    "mco-lite/sample-mco_v1alpha1_renderedmachineconfig.yaml": "RenderedMachineConfig rendered-worker-a1b2c3d4e5: "
    "its hash is made up",
    "mco-lite/scenario-001-manifest.yaml": "MachineConfig 50-sysctl-test",
    "nvsentinel/fault-quarantine-log-xid79-a100.jsonl": "GpuXidError RESTART_VM DCGM_FR_GPU_FALLEN_OFF_BUS of GPU 0 "
    "PCI 0002:00:00.0 GPU_UUID GPU-3d7408b2-d525-643f-5bfc-45a761045e14",
    "nvsentinel/healthevent-xid48.json": "XID_ERROR_48 REPLACE_VM XID-48 of "
    "GPU GPU-12345678-abcd-1234-abcd-123456789abc",
    "nvsentinel/syslog-monitor-log-xid45.jsonl": "SysLogsXIDError CONTACT_SUPPORT 45 of PCI 0002:00:00 "
    "GPU_UUID GPU-71931caa-87dd-d978-77c0-d8d42e5d425c",
}


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no outputs of tools in {FOLDER}")
def test_every_parser_reads_what_was_recorded_of_its_tool() -> None:
    found = {one.file: one for one in readings(FOLDER)}
    assert [one for one in found.values() if one.defect] == []
    assert {name: found[name].found for name in EXPECTED if name in found} == {
        name: text for name, text in EXPECTED.items() if (FOLDER / name).is_file()
    }


@pytest.mark.parametrize(
    ("file", "text", "reading"),
    [
        ("dcgm-exporter/a.prom", 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 31\n', Reading("", "a heartbeat by its samples")),
        ("node-labels/a.txt", "nvidia.com/gpu.memory=12\n", Reading("", "memory_mib 12", "no card has 12 MiB")),
        ("cdi/a.yaml", "kind: nvidia.com/gpu\n", Reading("", "", "it names no device")),
        (
            "gpu-operator/validator-a.describe.txt",
            "Status: Running\n",
            Reading("", "every step is done", "no container"),
        ),
        (
            "gpu-operator/validator-init-containers-by-version.txt",
            "v1: driver-validation toolkit-validation plugin-validation cuda-validation main\n",
            Reading(
                "",
                "driver-validation DriverMissing, toolkit-validation ToolkitMissing, plugin-validation "
                "Fine, cuda-validation ValidationFailed, main ValidationFailed",
                "plugin-validation is not the last step",
            ),
        ),
        ("xid/a.log", "kern: NVRM: Xid (PCI:0000:01:00): 79, x\nNVRM: Xid (...)\n", Reading("", "79")),
        ("xid/a.log", "NVRM: Xid (PCI:1:2): 79, x\n", Reading("", "no XID", "not read: NVRM: Xid (PCI:1:2): 79")),
        ("kubelet/podresources.json", "nothing\n", Reading("", "", "JSONDecodeError: ")),
        ("dra/a.yaml", "spec:\n  devices: 1\n", Reading("", "", "TypeError: ")),
        (
            "mco-lite/sample-a.yaml",
            "kind: MachineConfig\nmetadata: {name: a}\nspec: {files: [{path: /boot/a}]}\n",
            Reading("", "MachineConfig a", "spec.files[0].path '/boot/a' is refused"),
        ),
        ("mco-lite/sample-a.yaml", "kind: Other\n", Reading("", "", "no object is found")),
        ("nvidia-smi/a-L.txt", "MIG 1g.12 Device 0\n", Reading("", "1g.12", "no profiles: 1g.12")),
    ],
)
def test_what_cannot_be_true_is_a_defect(tmp_path: Path, file: str, text: str, reading: Reading) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(text)
    found = list(readings(tmp_path))
    assert [(one.file, one.found) for one in found] == [(file, reading.found)]
    assert found[0].defect.startswith(reading.defect)
    assert main(tmp_path) == int(bool(reading.defect))


def test_a_folder_without_outputs_passes_nothing(tmp_path: Path) -> None:
    assert main(tmp_path) == 1
