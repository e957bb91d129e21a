"""Waits until the cluster belongs to this ledger, and notices when it no longer does.

Nothing else of the status writer may write before `acquire` has returned, nor after `keep` has raised.
"""

import asyncio
from collections.abc import Callable

import structlog

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForeignClusterError, KubeError, TransientError
from gpuledger.edge.kube.ownership import ClusterOwner, claim
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

    async def acquire(self) -> None:
        """Return once the cluster belongs to our ledger."""
        retries = Retries(self._settings.backoff, self._jitter)
        while True:
            try:
                await claim(self._client, self._ours(), self._cluster)
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
            ForeignClusterError: the cluster belongs to another ledger by now.
        """
        while True:
            await asyncio.sleep(self._settings.ownership_check_s)
            try:
                await claim(self._client, self._ours(), self._cluster)
            except ForeignClusterError:
                raise
            except KubeError as error:
                log.warning("statuswriter.owner-unread", reason=str(error))

    def _report(self, error: KubeError, *, is_foreign: bool) -> None:
        before, self.problem, self.is_foreign = self.problem, str(error), is_foreign
        if before != self.problem:
            log.error("statuswriter.foreign-cluster" if is_foreign else "statuswriter.unclaimed", reason=self.problem)
