"""The configuration of preflight checks: what it may say, and how what is wrong is worded."""

from pathlib import Path

import pytest
import yaml

from gpuledger.api.preflight import Variable
from gpuledger.edge.preflight.configuration import read_configuration
from gpuledger.edge.preflight.configuration_file import ConfigurationFile
from gpuledger.edge.preflight.errors import ConfigurationError
from gpuledger.preflight.settings import read_check_settings

FILE = "preflight.yaml"
ONE = b"checks: [{name: dcgm-diag, image: i}]\nnamespaces: [training]\n"


def test_an_empty_file_has_the_defaults_and_no_checks() -> None:
    found = read_configuration(b"", FILE)
    assert (found.checks, found.check_timeout, found.gpu_detection.resource_names) == ((), "300s", ("nvidia.com/gpu",))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"checks: [{name: a}]", "checks[0].image"),
        (b"checks: [{name: A_b, image: i}]", "checks[0].name"),
        (b"checks: [{name: a, image: i}, {name: a, image: i}]", "more than once"),
        (b"checkTimeout: 5 minutes", "checkTimeout"),
        (b"gangTimeout: 0s", "gangTimeout"),
        (b"gangDiscovery: {method: labels}", "gangIdLabel"),
        (b"gangDiscovery: {method: [volcano, none]}", "gangDiscovery.method[1]"),
        (b"checkTimeout: +5m", "checkTimeout"),
        (b"gangTimeout: 25h", "gangTimeout"),
        (b"dcgm: {diagLevel: 3}", "dcgm.diagLevel"),
        (b"dcgm: {hostengineAddr: dcgm-hostengine.nvsentinel.svc}", "dcgm.hostengineAddr"),
        (b"connector: {target: 'gateway:99999'}", "connector.target"),
        (b"ncclTopology: {instanceTypeMapping: {p5.48xlarge: /opt/p5.xml}}", "ncclTopology.instanceTypeMapping"),
        (b'gpuDetection: {deviceClasses: ["a\'b"]}', "gpuDetection.deviceClasses[0]"),
        (b"nccl: {loopbackThresholdGBps: fast}", "nccl.loopbackThresholdGBps"),
        (b"connector: {mode: tcp}", "connector"),
        (b"webhook: {failurePolicy: Maybe}", "webhook.failurePolicy"),
        (b'gpuDetection: {resourceNames: ["a\'b"]}', "gpuDetection.resourceNames[0]"),
        (b"unknown: 1", "unknown"),
        (b"a: [", "no YAML"),
        (b"- 1", "the document"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: bytes, place: str) -> None:
    with pytest.raises(ConfigurationError, match=FILE) as caught:
        read_configuration(text, FILE)
    assert place in str(caught.value)


SEED = b"""
enabled: false
checks:
  - {name: dcgm-diag, image: "ghcr.io/nvidia/nvsentinel/preflight-dcgm-diag:v1"}
  - {name: nccl-loopback, image: "ghcr.io/nvidia/nvsentinel/preflight-nccl-loopback:v1"}
dcgm: {hostengineAddr: "dcgm-hostengine.nvsentinel.svc:5555", diagLevel: 1}
nccl: {loopbackThresholdGBps: 10.0, allreduceThresholdGBps: 5.0}
checkTimeout: "300s"
gangTimeout: "600s"
gangDiscovery: {method: workloadRef}
gpuDetection: {resourceNames: [nvidia.com/gpu], deviceClasses: [gpu.nvidia.com, nvidia.com/gpu]}
networkDetection: {resourceNames: [nvidia.com/mlnxnics], deviceClasses: [rdma.nvidia.com, infiniband.mellanox.com]}
ncclEnvPatterns: ["NCCL_*", "UCX_*", "OMPI_*"]
ncclTopology:
  instanceTypeLabel: node.kubernetes.io/instance-type
  instanceTypeMapping: {Standard_ND96isr_H100_v5: azure-ndv5.xml, p5.48xlarge: aws-p5.48xlarge.xml}
  enableFallback: true
namespaces: [training]
excludeNamespaces: [nvsentinel, kube-system, kube-public, kube-node-lease]
webhook: {failurePolicy: Fail}
"""
"""The values of NVSentinel's design, as somebody pastes them into the file."""


def test_the_values_of_the_design_are_a_configuration() -> None:
    assert not read_configuration(SEED, FILE).covers("training", "gpu-system"), "it is not enabled"
    found = read_configuration(SEED.replace(b"enabled: false", b"enabled: true"), FILE)
    assert found.covers("training", "gpu-system")
    assert [check.name for check in found.checks] == ["dcgm-diag", "nccl-loopback"]


@pytest.mark.parametrize("text", ["1h30m", "300s", "24h", "1.5m", "500ms"])
def test_a_duration_that_is_taken_here_is_taken_by_checks(text: str) -> None:
    found = read_configuration(f"checkTimeout: {text}".encode(), FILE)
    assert found.check_timeout == text
    environ: dict[str, str] = {Variable.CHECK_TIMEOUT: found.check_timeout, Variable.SOCKET: "unix:///health.sock"}
    assert read_check_settings(environ).check_timeout_s > 0


def test_a_command_may_be_a_whole_program() -> None:
    program = "print('checked')\n" * 1_000
    given = {"checks": [{"name": "mine", "image": "i", "command": ["python", "-c", program]}]}
    (check,) = read_configuration(yaml.safe_dump(given).encode(), "preflight.yaml").checks
    assert check.command[2] == program


def test_system_namespaces_and_our_own_never_get_checks() -> None:
    found = read_configuration(
        b"namespaces: [kube-system, gpu-system, training, left]\nexcludeNamespaces: [left]", FILE
    )
    covered = [name for name in found.namespaces if found.covers(name, "gpu-system")]
    assert covered == ["training"]


async def test_a_broken_file_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    path, changes = tmp_path / FILE, []
    found = ConfigurationFile(path, 60.0, lambda: changes.append(1))
    await found.look()
    assert found.in_force is None
    assert str(path) in (found.problem or "")
    path.write_bytes(ONE)
    await found.look()
    before = found.in_force
    assert (before is not None, found.problem, len(changes)) == (True, None, 1)
    path.write_bytes(b"checks: nothing")
    await found.look()
    assert found.in_force is before
    assert "checks" in (found.problem or "")
    path.write_bytes(b"\n")
    await found.look()
    assert found.in_force is before, "somebody is writing it"
    assert "is empty" in (found.problem or "")
    path.write_bytes(ONE.replace(b"dcgm-diag", b"bandwidth"))
    await found.look()
    assert found.in_force is not None
    assert [check.name for check in found.in_force.configuration.checks] == ["bandwidth"]
    assert (found.problem, len(changes)) == (None, 2)


async def test_a_renamed_link_is_followed_as_kubelets_write_config_maps(tmp_path: Path) -> None:
    for version, name in (("v1", b"dcgm-diag"), ("v2", b"bandwidth")):
        (tmp_path / version).mkdir()
        (tmp_path / version / FILE).write_bytes(ONE.replace(b"dcgm-diag", name))
    data = tmp_path / "..data"
    data.symlink_to("v1")
    found = ConfigurationFile(data / FILE, 60.0)
    await found.look()
    (tmp_path / "..tmp").symlink_to("v2")
    (tmp_path / "..tmp").rename(data)
    await found.look()
    assert found.in_force is not None
    assert found.in_force.configuration.checks[0].name == "bandwidth"


async def test_the_authority_is_read_with_the_configuration(tmp_path: Path) -> None:
    path, authority = tmp_path / FILE, tmp_path / "ca.crt"
    path.write_text(f"connector: {{mode: tcp, target: 'g:1', authorityFile: {authority}}}")
    found = ConfigurationFile(path, 60.0)
    await found.look()
    assert "authorityFile" in (found.problem or "")
    authority.write_text("PEM")
    await found.look()
    assert found.in_force is not None
    assert found.in_force.authority == "PEM"
