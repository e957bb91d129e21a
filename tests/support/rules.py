"""The rule files of Prometheus that the project ships, and Debian's promtool, where it is there."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from support.chart import CHART
from support.paths import ROOT

RULE_FILES: Final = (
    *sorted((CHART / "alerts").glob("*.yaml")),
    ROOT / "docs" / "alerts" / "dra-availability.rules.yaml",
)
RULE_TESTS: Final = tuple(sorted((ROOT / "tests" / "rules").glob("*.yaml")))
PROMTOOL_S: Final = 120.0

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not there: it comes with Debian's package prometheus"
)


class Rule(NamedTuple):
    """An alert of a rule file."""

    file: Path
    alert: str
    expr: str
    document: dict[str, Any]


def rules(files: tuple[Path, ...] = RULE_FILES) -> list[Rule]:
    """The alerts of files, as they lie there."""
    return [
        Rule(path, one["alert"], one["expr"], one)
        for path in files
        for group in yaml.safe_load(path.read_text())["groups"]
        for one in group["rules"]
    ]


def promtool(*arguments: str | Path) -> str:
    """What promtool says; it fails a test that it finds an error in."""
    ended = subprocess.run(
        ("promtool", *map(str, arguments)), capture_output=True, text=True, timeout=PROMTOOL_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
