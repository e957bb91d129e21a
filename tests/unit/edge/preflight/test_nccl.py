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
