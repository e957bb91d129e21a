"""The name of a container in the kubelet's links to logs, as long as a file's name may be and longer."""

import pytest

from gpuledger.agent.gateway.containers import FILE_NAME_MAX, ID_LENGTH_MIN, SUFFIX, container_name
from gpuledger.agent.gateway.decide import PodName

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
POD = PodName("team-a", "train-0")


def link(pod: PodName, container: str, container_id: str) -> str:
    """The name of a link as the kubelet gives it."""
    stem = f"{pod.name}_{pod.namespace}_{container}-{container_id}"
    return stem[: FILE_NAME_MAX - len(SUFFIX)] + SUFFIX


@pytest.mark.parametrize("name", ["preflight-dcgm-diag", "main", "a-b-c"])
def test_a_link_names_its_container(name: str) -> None:
    links = [link(POD, "other", OTHER), link(PodName("team-b", "train-0"), "x", ID), link(POD, name, ID)]
    assert container_name(links, POD, ID) == name
    assert container_name(links[:2], POD, ID) is None


@pytest.mark.parametrize(
    "other",
    [
        f"train-0_team-a_x-{ID}",
        f"train-0_team-a_x-{ID}.txt",
        f"train-0_team-a_x-{ID[:40]}.log",
        f"train-0_team-a_-{ID}.log",
    ],
)
def test_other_files_name_none(other: str) -> None:
    assert container_name([other], POD, ID) is None


@pytest.mark.parametrize("left", [ID_LENGTH_MIN - 1, ID_LENGTH_MIN, 40, 63, 64])
def test_a_cut_link_names_its_container_while_enough_of_its_id_is_left(left: int) -> None:
    length = FILE_NAME_MAX - len(SUFFIX) - len("_team-a_preflight-x-") - left
    pod = PodName("team-a", "p" * length)
    links = [link(pod, "preflight-y", OTHER), link(pod, "preflight-x", ID)]
    assert container_name(links, pod, ID) == ("preflight-x" if left >= ID_LENGTH_MIN else None)
