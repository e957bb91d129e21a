"""`gpuledger up`, started once for each module of tests: `FLEET` of the module are its options."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gpuledger.edge.kube.client import KubeClient, open_client
from support.servers import short_directory
from support.up import Up, running_up


@pytest.fixture(scope="module")
def up(request: pytest.FixtureRequest) -> Iterator[Up]:
    """It runs until the module's last test has ended."""
    with short_directory() as directory, running_up(directory, *request.module.FLEET) as up:
        yield up


@pytest.fixture
async def client(up: Up) -> AsyncIterator[KubeClient]:
    """A client of its API server."""
    async with open_client(up.data_dir / "kubeconfig") as client:
        yield client
