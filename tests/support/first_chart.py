"""The chart as the history first has it, with the build that belonged to it."""

import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from support import builds
from support.builds import Build
from support.paths import ROOT

FOLDER: Final = "charts/gpuledger"


class FirstChart(NamedTuple):
    """Its folder, and the commit that it is of."""

    commit: str
    folder: Path

    def values(self) -> dict[str, Any]:
        """Its defaults."""
        values: dict[str, Any] = yaml.safe_load((self.folder / "values.yaml").read_text())
        return values

    def build(self, folder: Path) -> Build:
        """What its image contains."""
        return builds.of_commit(self.commit, folder, {})


def first_chart(folder: Path) -> FirstChart:
    """The chart, unpacked in a folder; skips the test, visibly, where the history does not reach back so far."""
    if _git("rev-parse", "--is-shallow-repository").strip() != b"false":
        pytest.skip("the history of this checkout does not reach back to the first chart")
    commit = _git("log", "--reverse", "--format=%h", "--", f"{FOLDER}/Chart.yaml").decode().split()[0]
    folder.mkdir()
    subprocess.run(("tar", "-x", "-C", folder), input=_git("archive", commit, FOLDER), check=True)
    return FirstChart(commit, folder / FOLDER)


def _git(*arguments: str) -> bytes:
    ran = subprocess.run(("git", "-C", ROOT, *arguments), capture_output=True, check=False)
    return ran.stdout if ran.returncode == 0 else b""
