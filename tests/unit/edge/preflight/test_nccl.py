"""Which variables of a pod its checks with NCCL have too: none that names a file, and none that is a check's own."""

from typing import Any

import pytest

from gpuledger.edge.preflight.nccl import nccl_settings

PATTERNS = ("NCCL_*", "UCX_*", "OMPI_*")
ELSEWHERE = {"configMapKeyRef": {"name": "n", "key": "k"}}


def taken(*env: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [*nccl_settings([{"env": list(env), **more}], PATTERNS, []).env]


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "NCCL_IB_HCA", "value": "=mlx5_0:1,mlx5_1:1"},
        {"name": "NCCL_SOCKET_IFNAME", "value": "^lo,docker0"},
        {"name": "UCX_TLS", "valueFrom": ELSEWHERE},
        {"name": "OMPI_MCA_btl_tcp_if_include", "value": "10.0.0.0/24,fd00::/64"},
        {"name": "NCCL_NET_PLUGIN", "value": "none"},
        {"name": "NCCL_DEBUG"},
        {"name": "NCCL_ALGO", "value": "$(SOME_SERVICE_PORT)"},
    ],
)
def test_what_tells_nccl_about_the_network_comes_along(variable: dict[str, Any]) -> None:
    assert taken(variable) == [variable]


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "NCCL_NET_PLUGIN", "value": "/topology/net.so"},
        {"name": "NCCL_NET_PLUGIN", "value": "topology/net.so"},
        {"name": "NCCL_TUNER_PLUGIN", "valueFrom": ELSEWHERE},
        {"name": "NCCL_CONF_FILE", "value": "/topology/nccl.conf"},
        {"name": "NCCL_GRAPH_FILE", "value": "/workload/graph.xml"},
        {"name": "OMPI_MCA_mca_component_path", "valueFrom": ELSEWHERE},
        {"name": "UCX_MODULE_DIR", "value": "a,/topology"},
        {"name": "NCCL_COMM_ID", "value": "10.0.0.1:4242"},
        {"name": "NCCL_TOPOLOGY_DIR", "value": "x"},
        {"name": "NCCL_TOPO_FILE", "value": "/not/mounted.xml"},
        {"name": "LD_PRELOAD", "value": "x.so"},
    ],
)
def test_no_code_or_setting_comes_along(variable: dict[str, Any]) -> None:
    assert taken(variable) == []


def test_what_a_variable_refers_to_is_put_in_its_place() -> None:
    env: list[dict[str, Any]] = [
        {"name": "RAIL", "value": "1"},
        {"name": "LD_PRELOAD", "value": "/topology/mine.so"},
        {"name": "FABRIC", "value": "mlx5_$(RAIL)"},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NCCL_IB_HCA", "value": "$(FABRIC):1$(LATER)"},
        {"name": "NCCL_NET_PLUGIN", "value": "$(LD_PRELOAD)"},
        {"name": "NCCL_SOCKET_IFNAME", "value": "$(ADDRESS)"},
        {"name": "NCCL_DEBUG", "value": "$$(RAIL)"},
        {"name": "LATER", "value": "x"},
    ]
    assert taken(*env) == [
        {"name": "NCCL_IB_HCA", "value": "mlx5_1:1$(LATER)"},
        {"name": "NCCL_DEBUG", "value": "$$(RAIL)"},
    ]


def test_of_one_name_the_last_holds_and_of_containers_the_first() -> None:
    first = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_DEBUG", "value": "WARN"}]}
    second = {"env": [{"name": "NCCL_DEBUG", "value": "TRACE"}, {"name": "NCCL_ALGO", "value": "Ring"}]}
    found = nccl_settings([first, second], PATTERNS, []).env
    assert found == ({"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "NCCL_ALGO", "value": "Ring"})


def test_the_topology_files_path_may_refer_to_another_variable() -> None:
    env = [{"name": "TYPE", "value": "p5"}, {"name": "NCCL_TOPO_FILE", "value": "/topologies/$(TYPE).xml"}]
    mount = {"name": "topologies", "mountPath": "/topologies"}
    found = nccl_settings([{"env": env, "volumeMounts": [mount]}], PATTERNS, [])
    assert found.env == ({"name": "NCCL_TOPO_FILE", "value": "/topologies/p5.xml"},)
    assert found.mounts == ({**mount, "readOnly": True},)


def with_topology(mount: str, file: str) -> dict[str, Any]:
    env = [{"name": "NCCL_TOPO_FILE", "value": file}]
    return {"env": env, "volumeMounts": [{"name": "mine", "mountPath": mount}]}


@pytest.mark.parametrize(
    ("mount", "file"),
    [
        ("/opt/microsoft", "/opt/microsoft/ndv5-topo.xml"),
        ("/etc/nccl/topo.xml", "/etc/nccl/topo.xml"),
        ("/usr/local/gib/configs", "/usr/local/gib/configs/topo.xml"),
        ("/var/run/nvidia-topologyd/", "/var/run/nvidia-topologyd/virtualTopology.xml"),
    ],
)
def test_a_topology_file_of_a_folder_of_its_own_comes_along(mount: str, file: str) -> None:
    assert [one["mountPath"] for one in nccl_settings([with_topology(mount, file)], PATTERNS, []).mounts] == [mount]


@pytest.mark.parametrize(
    "mount",
    ["/", "/usr", "/usr/local", "/usr/bin/", "/opt", "/opt/gpuledger/bin", "/opt/x/../gpuledger", "/tmp", "/tmp/a",
     "/etc", "/etc/ld.so.preload", "/lib64", "/var", "/run/gpuledger", "/proc/self"],
)  # fmt: skip
def test_no_volume_of_a_pod_takes_the_place_of_a_checks_programs(mount: str) -> None:
    assert nccl_settings([with_topology(mount, f"{mount.rstrip('/')}/topo.xml")], PATTERNS, []) == ((), ())
