"""How the container of a check reaches who takes its report, by what the namespace's Pod Security allows."""

import pytest

from gpuledger.edge.preflight.configuration import Connector
from gpuledger.edge.preflight.connection import connection_of

TARGET = "gpuledger-gateway.gpu-system.svc:9444"


@pytest.mark.parametrize(
    ("mode", "target", "level", "expected"),
    [
        ("auto", "", "privileged", "hostPath"),
        ("auto", "", "", "hostPath"),
        ("auto", "", None, "hostPath"),
        ("auto", "", "baseline", None),
        ("auto", "", "restricted", None),
        ("auto", TARGET, "privileged", "hostPath"),
        ("auto", TARGET, "", "hostPath"),
        ("auto", TARGET, None, "projected"),
        ("auto", TARGET, "baseline", "projected"),
        ("auto", TARGET, "restricted", "projected"),
        ("socket", TARGET, "privileged", "hostPath"),
        ("socket", TARGET, "restricted", None),
        ("tcp", TARGET, "privileged", "projected"),
    ],
)
def test_a_namespace_that_refuses_folders_of_nodes_gets_none(
    mode: str, target: str, level: str | None, expected: str | None
) -> None:
    connector = Connector.model_validate({"mode": mode, "target": target})
    found = connection_of(connector, level, "")
    assert (None if found is None else {*found.volume} - {"name"}) == (None if expected is None else {expected})
