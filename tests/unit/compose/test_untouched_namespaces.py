"""Which namespaces no drain evicts from."""

from pathlib import Path

import pytest

from gpuledger.compose import edge
from gpuledger.runtime.settings import read_settings


def test_in_a_pod_drains_leave_its_own_namespace_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    (tmp_path / "namespace").write_text("ours")
    for module in ("gpuledger.runtime.settings", "gpuledger.compose.edge"):
        monkeypatch.setattr(f"{module}.SERVICE_ACCOUNT_TOKEN", token)
    environ = {"GPULEDGER_UNTOUCHED_NAMESPACES": "infra-*"}
    assert edge.untouched_namespaces(read_settings(environ)) == ("infra-*", "d8-gpu-operator")
    in_pod = environ | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert edge.untouched_namespaces(read_settings(in_pod)) == ("infra-*", "d8-gpu-operator", "ours")
