"""When a gang is complete for a pod, and how its files are read while the kubelet replaces them."""

from pathlib import Path

import pytest

from gpuledger.api.preflight import GangKey
from gpuledger.preflight.errors import GangTimeoutError
from gpuledger.preflight.gang import gang_view
from gpuledger.preflight.gang_files import read_gang_files, wait_for_gang
from gpuledger.preflight.settings import GangSettings, PodIdentity
from support.checks import Watch, gang_files, write_gang

POD = PodIdentity("training", "pod-1", "u-1", "10.0.0.2")


def test_ranks_follow_the_order_of_names() -> None:
    view = gang_view(gang_files("pod-2:10.0.0.1", "pod-10:10.0.0.3", "pod-1:10.0.0.2", expected=3), "pod-2", "")
    assert view.gang is not None
    assert [member.pod for member in view.gang.members] == ["pod-1", "pod-10", "pod-2"]
    assert view.gang.rank_of("pod-2") == 2


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({GangKey.EXPECTED_COUNT: ""}, "nobody knows yet how many pods it has"),
        ({GangKey.EXPECTED_COUNT: "3"}, "it has 2 of 3 pods"),
        ({GangKey.PEERS: "pod-0:10.0.0.1\npod-1:10.0.0.9\n"}, "pod-1 is not among its pods with its address"),
        ({GangKey.PEERS: "pod-0:10.0.0.1\npod-2:10.0.0.2\n"}, "pod-1 is not among its pods with its address"),
        ({GangKey.MASTER_ADDRESS: "10.0.0.7"}, "its first pod, pod-0, is not its master yet"),
        ({GangKey.MASTER_PORT: "99999"}, "its master_port is '99999', which is no port"),
        ({GangKey.EXPECTED_COUNT: "0", GangKey.PEERS: ""}, "pod-1 is not among its pods"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, str], missing: str) -> None:
    view = gang_view(gang_files("pod-0:10.0.0.1", "pod-1:10.0.0.2") | changes, POD.name, POD.ip)
    assert view.gang is None
    assert missing in view.missing


def test_an_address_of_ipv6_is_whole() -> None:
    files = gang_files("pod-0:fd00::1", "pod-1:fd00::2")
    view = gang_view(files | {GangKey.MASTER_ADDRESS: "fd00::1"}, "pod-1", "fd00::2")
    assert view.gang is not None
    assert view.gang.master_address == "fd00::1"


def test_files_that_are_not_there_are_none(tmp_path: Path) -> None:
    assert read_gang_files(tmp_path) == {}
    (tmp_path / "..data").symlink_to("gone")
    assert read_gang_files(tmp_path) == {}


async def test_a_gang_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """The ConfigMap appears, grows, and a peer of a pod before is replaced, each by a turn of the link."""
    steps = {
        30.0: gang_files("pod-0:10.0.0.1"),
        60.0: gang_files("pod-0:10.0.0.1", "pod-1:10.0.0.9"),
        90.0: gang_files("pod-0:10.0.0.1", "pod-1:10.0.0.2"),
    }
    watch = Watch(lambda now_s: write_gang(tmp_path, steps[now_s]) if now_s in steps else None)
    formed = await wait_for_gang(GangSettings(tmp_path, 600.0), POD, monotonic=watch.monotonic, sleep=watch.sleep)
    assert formed.waited_s == 90.0
    assert formed.gang.rank_of("pod-1") == 1


async def test_a_gang_that_does_not_come_is_given_up_in_time(tmp_path: Path) -> None:
    write_gang(tmp_path, gang_files("pod-1:10.0.0.2"))
    watch = Watch()
    with pytest.raises(GangTimeoutError, match=r"gang-a was not complete in 600 s: it has 1 of 2 pods") as ended:
        await wait_for_gang(GangSettings(tmp_path, 600.0), POD, monotonic=watch.monotonic, sleep=watch.sleep)
    assert ended.value.waited_s == watch.now_s == 600.0
