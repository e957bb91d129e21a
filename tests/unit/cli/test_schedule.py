"""`gpuledger schedule simulate`: its table, its errors, and that it needs no server."""

from pathlib import Path

import pytest

from support.cli import Cli, Result
from support.imports import NODE_HEADER, POD_HEADER, write

PODS = (
    "p1,1000,64,1,460,,LS,Running,0,9,1",
    "p2,1000,64,2,1000,,LS,Running,1,9,1",
    "p3,1000,64,1,335,,LS,Running,2,9,2",
)


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Simulate":
    """Simulates a node of two GPUs and three pods."""
    return Simulate(tmp_path, Cli(capsys))


class Simulate:
    """Runs the command on two lists."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self._cli = cli
        self._nodes = write(folder / "nodes.csv", NODE_HEADER, "n1,64000,262144,2,T4")
        self._pods = write(folder / "pods.csv", POD_HEADER, *PODS)

    def __call__(self, *arguments: str) -> Result:
        """Run it."""
        return self._cli("schedule", "simulate", "--nodes", str(self._nodes), "--pods", str(self._pods), *arguments)


def test_all_strategies_are_compared(simulate: Simulate) -> None:
    result = simulate("--strategy", "all", "-o", "json")
    assert result.code == 0
    rows = result.json()
    assert [row["strategy"] for row in rows] == [
        "MinorOrder",
        "LeastAllocated",
        "MostAllocated",
        "FragmentationGradientDescent",
        "BestFit",
        "Random",
    ]
    assert [(row["pods"], row["placed"], row["gpus"], row["asked"]) for row in rows] == [(3, 2, 2, 2.8)] * 6
    assert "1 of 3 pods ask for no whole percent of a GPU, and get the next one." in result.err


def test_a_strategy_is_named_once_and_pods_are_drawn(simulate: Simulate) -> None:
    result = simulate(
        "--strategy", "Random", "--strategy", "Random", "--inflate", "2", "--seed", "7", "--learn", "-o", "yaml"
    )
    assert result.code == 0
    assert result.out.count("strategy: Random") == 1
    again = simulate("--strategy", "Random", "--inflate", "2", "--seed", "7", "--learn")
    assert "Random" in again.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--strategy", "Best"), "There is no strategy Best. Name MinorOrder, LeastAllocated"),
        (("--strategy", "all", "--nodes", "none.csv"), "none.csv cannot be read: No such file or directory"),
    ],
)
def test_errors_are_one_sentence_and_a_next_step(simulate: Simulate, arguments: tuple[str, ...], says: str) -> None:
    result = simulate(*arguments)
    assert result.code == 2
    assert says in result.err
    assert result.out == ""
