"""NATS as the chart's pod runs it, and what holds for each server of the chart: a Secret that changes, and its end."""

from collections.abc import Iterator

import pytest

from gpuledger.local.pods.foreground import serve
from gpuledger.local.servers.errors import ServerStartError
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


async def test_a_server_that_ends_by_itself_ends_the_container(place: Place) -> None:
    (place.root / "nats" / "tls.key").write_bytes(b"no key")
    with pytest.raises(ServerStartError, match="ended by itself"):
        await serve(place.nats(), check_interval_s=CHECK_S)


async def test_a_secret_that_lacks_something_is_named(place: Place) -> None:
    (place.root / "postgres" / "password").unlink()
    with pytest.raises(ServerStartError, match=r"no password .*gpuledger credentials create"):
        await serve(place.postgres(), check_interval_s=CHECK_S)
