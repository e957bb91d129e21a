"""Lists of nodes and pods for simulations: what rows mean, and what is wrong with bad ones."""

from pathlib import Path

import pytest

from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import Hint, LabelRequirement, LabelSelector, PodRequest
from gpuledger.tools.errors import RequestError
from gpuledger.tools.scheduling.trace import percent_of, read_nodes, read_pods
from gpuledger.tools.scheduling.workload import SimulatedNode, SimulatedPod
from support.imports import NODE_HEADER, POD_HEADER, write
from support.sharing_nodes import share, whole


def _pods(folder: Path, *rows: str) -> Path:
    return write(folder / "pods.csv", POD_HEADER, *rows)


def _pod(gpus: str, milli: str, spec: str = "", name: str = "p1", created: str = "0") -> str:
    return f"{name},12000,16384,{gpus},{milli},{spec},LS,Running,{created},9,1"


def test_nodes(tmp_path: Path) -> None:
    file = write(tmp_path / "nodes.csv", NODE_HEADER, "n1,64000,262144,2,T4", "n2,96000,393216,0,")
    assert read_nodes(file) == [SimulatedNode("n1", 2, 64_000, 262_144, "T4"), SimulatedNode("n2", 0, 96_000, 393_216)]


@pytest.mark.parametrize(
    ("gpus", "milli", "request_"),
    [("1", "460", share(46)), ("1", "1000", whole(1)), ("8", "1000", whole(8)), ("2", "5", whole(2))],
)
def test_what_a_pod_asks_for(tmp_path: Path, gpus: str, milli: str, request_: PodRequest) -> None:
    pods, rounded = read_pods(_pods(tmp_path, _pod(gpus, milli)))
    assert pods == [SimulatedPod("p1", request_, Needs(12_000, 16_384))]
    assert rounded == 0 or milli == "5"


def test_pods_come_in_the_order_of_their_creation_and_some_ask_for_no_gpu(tmp_path: Path) -> None:
    rows = (_pod("1", "500", name="late", created="7"), _pod("0", "0", name="early", created="0.5"))
    pods, _ = read_pods(_pods(tmp_path, *rows))
    assert [(pod.name, pod.gpu_percent) for pod in pods] == [("early", 0), ("late", 50)]


def test_a_pod_gets_no_less_than_it_asks_for(tmp_path: Path) -> None:
    assert [percent_of(milli) for milli in (1, 10, 333, 990, 999)] == [1, 1, 34, 99, 100]
    pods, rounded = read_pods(_pods(tmp_path, _pod("1", "333")))
    assert (pods[0].gpu_percent, rounded) == (34, 1)


def test_a_pod_takes_the_models_of_its_spec_alone(tmp_path: Path) -> None:
    pods, _ = read_pods(_pods(tmp_path, _pod("1", "1000", "T4|V100M16")))
    selector = LabelSelector((LabelRequirement("model", "In", frozenset({"T4", "V100M16"})),))
    assert pods[0].request.types[0].hint == Hint(selector)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (_pod("1", "0"), "pods.csv, line 2: gpu_milli is 0, and num_gpu is not: of one GPU it is 1 to 1000. Correct"),
        (_pod("1", "1001"), "line 2: gpu_milli is 1001; 1000 is the limit"),
        (_pod("x", "1"), "line 2: num_gpu is not a non-negative whole number: 'x'"),
        (_pod("1", "1", created="soon"), "line 2: creation_time is not a number of seconds: 'soon'"),
        (_pod("1", "1", created="-1"), "line 2: creation_time is not a number of seconds from 0: '-1'"),
        ("p1,1,1", "line 2: the row has 3 columns, the header 11"),
        (_pod("0", "0"), "has no pod that asks for GPUs. Name a list of pods"),
    ],
)
def test_a_bad_row_of_a_pod(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(RequestError) as raised:
        read_pods(_pods(tmp_path, row))
    assert says in str(raised.value)


def test_other_bad_files(tmp_path: Path) -> None:
    node = "n1,1,1,1,T4"
    for file, says in (
        (write(tmp_path / "twice.csv", NODE_HEADER, node, node), "the name 'n1' is in two rows. Rename one of them."),
        (write(tmp_path / "cpu.csv", NODE_HEADER, "n1,1,1,0,"), "has no node with GPUs. Name a list of nodes"),
        (write(tmp_path / "other.csv", "a,b"), "other.csv is not openb's node list, whose header is"),
        (tmp_path / "none.csv", "none.csv cannot be read: No such file or directory"),
    ):
        with pytest.raises(RequestError) as raised:
            read_nodes(file)
        assert says in str(raised.value)
