"""How a service of the edge comes to lead, and begins anew after errors; each of them has one active instance.

An attempt is everything from standing by for the lock to losing it. Errors that pass are followed by another attempt
after a pause. Those that need an operator stop the service, which still tries again now and then: somebody may have
repaired what stopped it, and no restart of the process is to be needed for that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import structlog

from gpuledger.db.locks import LockCheck, while_locked
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForeignClusterError, KubeError
from gpuledger.edge.kube.ownership import confirm_owner
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff, Jitter, Retries
from gpuledger.runtime.tasks import Work

Errors = tuple[type[Exception], ...]


class RestartPolicy(NamedTuple):
    """The pauses after errors that pass, how often a stopped service tries again, and which errors are which.

    Of an error that is among both, `transient` holds.
    """

    backoff: Backoff
    stopped_retry_s: float
    transient: Errors
    stopping: Errors


class Restarts:
    """Makes one attempt after the other for a service, by whose name its log lines begin.

    `problem` is why the last attempt ended, until `recovered`; `is_stopped`: it needs an operator. While it is stopped,
    `problem` is what stopped it: an error that passes is over long before that.
    """

    def __init__(self, service: str, policy: RestartPolicy, jitter: Jitter) -> None:
        self._service = service
        self._policy = policy
        self._retries = Retries(policy.backoff, jitter)
        self._log = structlog.get_logger(f"gpuledger.{service}")
        self.problem: str | None = None
        self.is_stopped = False

    def followed(self) -> None:
        """An attempt has come so far that the next pause is a short one."""
        self._retries.reset()

    def recovered(self) -> None:
        """The service does its work again."""
        self.problem, self.is_stopped = None, False

    async def run(self, attempt: Callable[[], Awaitable[None]], ended: Callable[[], None]) -> None:
        """Make attempts until cancelled; `ended` is called after each."""
        clock = asyncio.get_running_loop().time
        while True:
            begun_s = clock()
            try:
                await attempt()
                pause_s = self._retries.pause_s()
            except self._policy.transient as error:
                if clock() - begun_s >= self._policy.backoff.healthy_after_s:
                    self._retries.reset()
                pause_s, reason = self._retries.pause_s(), str(error).strip()
                self.problem = self.problem if self.is_stopped else reason
                self._log.warning(f"{self._service}.interrupted", reason=reason, retry_s=round(pause_s, 3))
            except self._policy.stopping as error:
                pause_s, self.problem, self.is_stopped = self._policy.stopped_retry_s, str(error).strip(), True
                self._log.error(f"{self._service}.stopped", reason=self.problem, retry_s=pause_s)
            ended()
            await asyncio.sleep(pause_s)


class Election(NamedTuple):
    """Which lock the leader of a service holds, in which database, and how often it is checked."""

    service: str
    database_url: str
    lock: str
    check: LockCheck

    async def lead(self, followed: FollowedLog, work: Callable[[], Work]) -> None:
        """Wait until the rows follow the log, and for the lock; run `work` while both last."""
        await followed.wait()
        await while_locked(
            self.database_url,
            self.lock,
            partial(followed.while_followed, work),
            application_name=f"gpuledger {self.service}",
            check=self.check,
        )


class OwnedCluster(NamedTuple):
    """The cluster that has to belong to a ledger for a service to write to it; `cluster` names it in messages."""

    service: str
    client: KubeClient
    ledger_id: str
    cluster: str

    async def confirm(self) -> None:
        """Return if it belongs to the ledger.

        Raises:
            ForeignClusterError: it belongs to another one, or to none.
        """
        await confirm_owner(self.client, self.ledger_id, self.cluster)

    async def keep(self, interval_s: float) -> None:
        """Look again from time to time; raises ForeignClusterError once the cluster belongs to another ledger."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.confirm()
            except ForeignClusterError:
                raise
            except KubeError as error:
                own_log = structlog.get_logger(f"gpuledger.{self.service}")
                own_log.warning(f"{self.service}.owner-unread", reason=str(error))
