"""A simulated fleet begins with the example of preflight checks, and keeps what people make of it."""

from pathlib import Path

import yaml

from gpuledger.api.preflight import CheckName
from gpuledger.compose.preflight_example import LOCAL_FILE, example, place_example
from support.paths import ROOT


def test_the_example_is_placed_once(tmp_path: Path) -> None:
    place_example(tmp_path)
    file = tmp_path / LOCAL_FILE
    assert file.read_bytes() == example() == (ROOT / "examples" / LOCAL_FILE).read_bytes()
    file.write_text("")
    place_example(tmp_path)
    assert not file.read_text(), "an empty file is a configuration without checks"


def test_the_example_has_checks_of_our_own() -> None:
    found = yaml.safe_load(example())
    assert {one["name"] for one in found["checks"]} < set(CheckName)
    assert found["namespaces"] == ["training"]
