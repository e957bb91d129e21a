"""Waits until the cluster belongs to this ledger, and notices when it no longer does.

Nothing else of the status writer may write before `acquire` has returned, nor after `keep` has raised. Who had the
cluster and lost it lets others claim it first: somebody may have deleted its ConfigMap to give it to another ledger.
"""

import asyncio
from collections.abc import Callable

import structlog

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForeignClusterError, KubeError, TransientError
from gpuledger.edge.kube.ownership import ClusterOwner, claim, confirm_owner
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.runtime.backoff import Jitter, Retries

log = structlog.get_logger("gpuledger.statuswriter")


class Ownership:
    """The claim of one ledger to one cluster, which `cluster` names in messages.

    `problem` says why the cluster is not ours, or not as far as can be found out; None while it is. `is_foreign`:
    it belongs to another ledger.
    """

    def __init__(
        self,
        client: KubeClient,
        ours: Callable[[], ClusterOwner],
        cluster: str,
        settings: StatusWriterSettings,
        jitter: Jitter,
    ) -> None:
        self._client = client
        self._ours = ours
        self._cluster = cluster
        self._settings = settings
        self._jitter = jitter
        self.problem: str | None = None
        self.is_foreign = False
        self._claims_from_s = 0.0

    async def acquire(self) -> None:
        """Return once the cluster belongs to our ledger."""
        retries = Retries(self._settings.backoff, self._jitter)
        while True:
            try:
                await self._claim_or_confirm()
            except ForeignClusterError as error:
                self._report(error, is_foreign=True)
                pause_s = self._settings.ownership_check_s
            except KubeError as error:
                self._report(error, is_foreign=False)
                pause_s = retries.pause_s(error.retry_after_s if isinstance(error, TransientError) else None)
            else:
                self.problem, self.is_foreign = None, False
                return
            await asyncio.sleep(pause_s)

    async def keep(self) -> None:
        """Look again from time to time.

        Raises:
            ForeignClusterError: the cluster belongs to another ledger by now, or to none.
        """
        while True:
            await asyncio.sleep(self._settings.ownership_check_s)
            try:
                await confirm_owner(self._client, self._ours().ledger_id, self._cluster)
            except ForeignClusterError:
                self._claims_from_s = asyncio.get_running_loop().time() + self._settings.reclaim_pause_s
                raise
            except KubeError as error:
                log.warning("statuswriter.owner-unread", reason=str(error))

    async def _claim_or_confirm(self) -> None:
        ours = self._ours()
        if asyncio.get_running_loop().time() < self._claims_from_s:
            await confirm_owner(self._client, ours.ledger_id, self._cluster)
        else:
            await claim(self._client, ours, self._cluster)

    def _report(self, error: KubeError, *, is_foreign: bool) -> None:
        before, self.problem, self.is_foreign = self.problem, str(error), is_foreign
        if before != self.problem:
            log.error("statuswriter.foreign-cluster" if is_foreign else "statuswriter.unclaimed", reason=self.problem)
