"""The seals of a log, made by the service itself."""

from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.ledger.api import Ledger
from gpuledger.projection.runner import Runner
from support.ledgers import everything
from support.projections import QUICK, reaches, running
from support.waiting import eventually

SEALS = "ledger.svc.seals.>"


async def seal(ledger: Ledger, url: str, count: int) -> None:
    """Run the service until there are so many seals and it has read them."""

    async def are_there() -> bool:
        return len(await everything(ledger, subject_filter=SEALS)) == count

    async with running(Runner(SealsProjection(), ledger, url, settings=QUICK)):
        await eventually(are_there)
        await reaches(url, "seals", await ledger.head())
