"""Installing CRDs waits for a server that takes its time, by answers that a working one shows for a moment only."""

from typing import Any

import pytest

from gpuledger.edge.kube import crds
from gpuledger.edge.kube.errors import UnavailableError
from support.scripted_api import Answer, ScriptedApi, answer, listing, refuse

CRD: dict[str, Any] = crds.shipped()[0]
ESTABLISHED = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
LIVE = CRD | {"metadata": CRD["metadata"] | {"resourceVersion": "1"}} | ESTABLISHED
NOT_YET: tuple[Answer, ...] = (
    refuse(404, "NotFound"),
    answer("404 page not found", 404),
    refuse(429, "TooManyRequests", "storage is (re)initializing", headers={"Retry-After": "1"}),
)


@pytest.mark.parametrize("not_yet", NOT_YET)
async def test_it_waits_until_the_kind_can_be_listed(not_yet: Answer) -> None:
    served = (answer(LIVE), not_yet, answer(LIVE), listing(version="2"))
    api = ScriptedApi(refuse(404, "NotFound"), answer(LIVE), *served)
    async with api.serving() as client:
        assert [one.change for one in await crds.install(client, [CRD])] == ["created"]
    assert len(api.requests) == 6


async def test_a_server_that_fails_is_no_server_that_takes_its_time() -> None:
    api = ScriptedApi(refuse(404, "NotFound"), answer(LIVE), answer(LIVE), refuse(503))
    async with api.serving() as client:
        with pytest.raises(UnavailableError):
            await crds.install(client, [CRD])
