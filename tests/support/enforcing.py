"""Has the service `sources` enforce what this build enforces."""

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.catalogue import registry
from gpuledger.events.position import number_of
from gpuledger.events.publishing import Rule
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from support.projections import QUICK_SERVICE, reaches, running

ENFORCED: list[str] = [*Rule, *sorted(registry.introduced)]
"""What `sources` enforces in this build: the rules, and the types of events that came later."""


async def enforce(ledger: JetStreamLedger, url: str) -> int:
    """Have the service `sources` enforce all rules; returns the position of the last one."""
    before = number_of(await ledger.head())
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK_SERVICE)):
        await reaches(url, "sources", before + len(ENFORCED))
    return number_of(await ledger.head())
