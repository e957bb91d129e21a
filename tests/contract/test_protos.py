"""The committed messages of the kubelet's APIs and of health monitors are those of their .proto files."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

PROTOS = ROOT / "schemas/gpuledger/schemas/proto"
COMMITTED = ROOT / "services/gpuledger"


def test_generating_again_gives_what_is_committed(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="needs grpcio-tools of the dev group")
    names = sorted(path.name for path in PROTOS.glob("*.proto"))
    options = [f"--proto_path={PROTOS}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *names], check=True)
    generated = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in COMMITTED.glob("**/*_pb2.py*")}
    assert len(generated) == 2 * len(names)
    assert committed == generated, "run `make protos`"
