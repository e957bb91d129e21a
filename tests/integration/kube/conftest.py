"""An API server for each test: the embedded one, and a real one too where KUBEBUILDER_ASSETS names its programs.

The ids of the tests tell which ran on which: `[embedded]`, `[real]`.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.kube import Kube, kube_api
from support.real_kube import ASSETS, assets, real_kube

SERVERS = [
    "embedded",
    pytest.param("real", marks=pytest.mark.skipif(assets() is None, reason=f"{ASSETS} names no real API server")),
]


@pytest.fixture(params=SERVERS)
async def kube(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kube]:
    programs = assets()
    if request.param == "real" and programs is not None:
        async with real_kube(tmp_path, programs) as real:
            yield real
    else:
        async with kube_api(tmp_path) as api:
            yield Kube(api.url, api.kubeconfig)
