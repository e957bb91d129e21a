"""NATS as the chart's pod runs it, and what holds for each server of the chart: a Secret that changes, and its end."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpuledger.local.pods.foreground import serve
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.go_memory import LIMIT, container_limit
from support.pod_place import CHECK_S, Place, running
from support.servers import short_directory
from support.waiting import eventually


@pytest.fixture
def place() -> Iterator[Place]:
    with short_directory() as root:
        yield Place(root)


async def test_another_password_of_nats_takes_effect_without_a_restart(place: Place) -> None:
    async with running(place.nats()):
        await eventually(lambda: place.lets_in("reader"))
        place.renew("nats", "reader")
        await eventually(lambda: place.lets_in("reader"))
        assert await place.lets_in("services")


async def test_the_memory_of_nats_follows_from_the_containers(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "memory.max"
    file.write_text("1073741824\n")
    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setattr(container_limit, "__defaults__", (file,))
    assert place.nats().prepare().environment[LIMIT] == "858993459"
    async with running(place.nats()):
        await eventually(lambda: place.lets_in("reader"))
        servers = [one for one in psutil.Process().children(recursive=True) if one.name() == "nats-server"]
        assert "858993459" in [one.environ().get(LIMIT) for one in servers]


async def test_a_server_that_ends_by_itself_ends_the_container(place: Place) -> None:
    (place.root / "nats" / "tls.key").write_bytes(b"no key")
    with pytest.raises(ServerStartError, match="ended by itself"):
        await serve(place.nats(), check_interval_s=CHECK_S)


async def test_a_secret_that_lacks_something_is_named(place: Place) -> None:
    (place.root / "postgres" / "password").unlink()
    with pytest.raises(ServerStartError, match=r"no password .*gpuledger credentials create"):
        await serve(place.postgres(), check_interval_s=CHECK_S)
