"""The devices that CDI specifications name, whatever else is in their folders."""

import json
import os
from pathlib import Path

import pytest

from gpuledger.agent.plugin import cdi
from gpuledger.agent.plugin.cdi import CdiFolders

SPECIFICATION = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "GPU-0", "containerEdits": {}}, {"name": "all"}],
}
NAMES = {"nvidia.com/gpu=GPU-0", "nvidia.com/gpu=all"}


def test_json_and_yaml_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(SPECIFICATION))
    (tmp_path / "two.yaml").write_text("kind: example.com/card\ndevices:\n- name: '7'\n- name: 8\n")
    (tmp_path / "three.txt").write_text(json.dumps(SPECIFICATION | {"kind": "example.com/other"}))
    assert CdiFolders([tmp_path]).names() == NAMES | {"example.com/card=7", "example.com/card=8"}


def test_folders_that_are_not_there_name_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(SPECIFICATION))
    assert CdiFolders([tmp_path / "none", tmp_path]).names() == NAMES
    assert CdiFolders([]).names() == frozenset()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad.json", "{"),
        ("bad.yaml", "kind: [\n"),
        ("deep.yaml", "[" * 5000),
        ("list.json", "[]"),
        ("kindless.json", json.dumps(SPECIFICATION | {"kind": 7})),
        ("odd.yaml", "kind: a/b\ndevices: 7\n"),
        ("tagged.yaml", "!!python/object/apply:os.getcwd []\n"),
        ("big.json", json.dumps(SPECIFICATION) + " " * cdi.FILE_BYTES_MAX),
    ],
)
def test_a_file_that_cannot_be_read_harms_no_other(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "good.json").write_text(json.dumps(SPECIFICATION))
    assert CdiFolders([tmp_path]).names() == NAMES


def test_a_file_is_read_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    whole = cdi._document

    def counted(path: Path) -> object:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(cdi, "_document", counted)
    path = tmp_path / "one.json"
    path.write_text(json.dumps(SPECIFICATION))
    folders = CdiFolders([tmp_path])
    assert folders.names() == folders.names() == NAMES
    assert read == [path]
    path.write_text(json.dumps(SPECIFICATION | {"devices": []}))
    os.utime(path, ns=(1, 1))
    assert folders.names() == frozenset()
    path.unlink()
    assert folders.names() == frozenset()
    assert read == [path, path]
