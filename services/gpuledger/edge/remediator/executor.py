"""Creates the objects of remediations, watches them, and has records of what becomes of each.

The name of an object follows from its intent, and the object says which intent it is of. So what stands in the cluster
says what was done: whoever begins again, killed at whatever step, looks before creating, and no object is created
twice. An object that somebody else has under that name is never touched.
"""

from collections.abc import Iterable

import structlog

from gpuledger.api.kinds import NODES, Resource
from gpuledger.domain.remediation.rules import is_owned, owned
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.kube.circuit_breaker import is_refusal
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.remediator import metrics
from gpuledger.edge.remediator.decide import keeps_pods_away, not_set_aside, outcome_of, superseded
from gpuledger.edge.remediator.intents import RemedyIntent, RemedyIntents
from gpuledger.edge.remediator.settings import RemediatorSettings
from gpuledger.events.payload import Payload, truncated
from gpuledger.events.remediation import (
    RemediationCreated,
    RemediationFinished,
    RemediationObjectDeleted,
    RemediationSuperseded,
    RemedyObject,
)

log = structlog.get_logger("gpuledger.remediator")

RemediatorTools = EffectTools[RemediatorSettings]


class RemedyExecutor:
    """Works on remediations, each by one worker at a time.

    What was recorded here counts at once: the fold has it only when it comes back with the log, and the row of the
    remediation is another one then.
    """

    def __init__(self, intents: RemedyIntents, queue: WorkQueue[str], tools: RemediatorTools) -> None:
        self._intents = intents
        self._queue = queue
        self._tools = tools
        self._recorded: dict[str, RemedyIntent] = {}
        self._failures: dict[str, int] = {}
        self._refusals: dict[str, int] = {}

    @property
    def failing(self) -> int:
        """How many remediations are tried again later."""
        return len(self._failures)

    def enqueue(self, intents: Iterable[str]) -> None:
        """Work on these."""
        for one in intents:
            self._queue.add(one)
        self.forget_returned()
        metrics.OPEN.set(len(self._intents.ids()))

    def forget_returned(self) -> None:
        """Forget what was recorded of remediations that are over in the fold too."""
        for kept in (self._recorded, self._failures, self._refusals):
            for one in [one for one in kept if self._intents.get(one) is None]:
                del kept[one]

    async def run(self) -> None:
        """Work for ever."""
        while True:
            one = await self._queue.take()
            try:
                await self._work_on(one)
            finally:
                self._queue.done(one)

    async def _work_on(self, one: str) -> None:
        intent = self._intents.get(one)
        if intent is None or self._recorded.get(one) == intent:
            return  # What was recorded has not come back with the log.
        try:
            data = await self._advance(intent)
        except KubeError as error:
            self._retry_later(intent, error)
            return
        self._failures.pop(one, None)
        if data is None:
            pause_s = self._tools.settings.poll_s
            if intent.delete_at is not None:
                pause_s = max(pause_s, (intent.delete_at - self._tools.clock()).total_seconds())
            self._queue.add(one, self._queue.now_s() + pause_s)
            return
        await self._tools.recorder.record(intent, data)
        self._recorded[one] = intent
        self._refusals.pop(one, None)
        _report(intent, data)

    async def _advance(self, intent: RemedyIntent) -> Payload | None:
        """Do what is next; returns what is to be recorded of it, None while nothing is."""
        if intent.delete_at is not None:
            return await self._delete(intent)
        if intent.created_at is not None:
            return await self._watch(intent)
        try:
            return await self._create(intent)
        except RefusedError as error:
            if not is_refusal(error) and not isinstance(error, AlreadyExistsError):
                raise
            refusals = self._refusals[intent.intent] = self._refusals.get(intent.intent, 0) + 1
            if refusals < self._tools.settings.refusals_max:
                raise
            return RemediationFinished(intent=intent.intent, result="Refused", message=truncated(str(error)))

    async def _watch(self, intent: RemedyIntent) -> RemediationFinished | None:
        try:
            found = await self._own_object(intent)
        except RefusedError:
            late = outcome_of(intent, {}, self._tools.clock())  # Nothing is seen of it, and its time passes.
            if late is None:
                raise
            return late
        return outcome_of(intent, found, self._tools.clock())

    async def _create(self, intent: RemedyIntent) -> Payload | None:
        found = await self._own_object(intent)
        if found is not None:
            return RemediationCreated(intent=intent.intent, uid=found["metadata"]["uid"])
        return await self._superseded(intent) or await self._create_object(intent)

    async def _superseded(self, intent: RemedyIntent) -> RemediationSuperseded | None:
        """Why the object is not to be created; the Node is the last that is asked."""
        over = self._is_superseded(intent)
        if over is not None:
            return over
        try:
            async with self._tools.breaker.request():
                node = await self._tools.client.get(NODES, intent.node)
        except NotFoundError:
            return RemediationSuperseded(intent=intent.intent, reason="NodeGone")
        if node["metadata"]["uid"] != intent.data.uid:
            return RemediationSuperseded(intent=intent.intent, reason="NodeGone")
        return None if keeps_pods_away(node) else not_set_aside(intent)

    def _is_superseded(self, intent: RemedyIntent) -> RemediationSuperseded | None:
        newest = self._intents.get(intent.intent) or intent
        return superseded(newest, now=self._tools.clock(), max_age=self._tools.settings.max_age)

    async def _create_object(self, intent: RemedyIntent) -> Payload | None:
        obj = intent.data.object
        async with self._tools.breaker.request():
            if (over := self._is_superseded(intent)) is not None:
                return over
            made = await self._tools.client.create(resource_of(obj), owned(obj.content, intent.intent))
        metrics.CREATED.inc()
        return RemediationCreated(intent=intent.intent, uid=made["metadata"]["uid"])

    async def _own_object(self, intent: RemedyIntent) -> Object | None:
        """The object of the remediation, None where it is not there; one of somebody else is none."""
        obj = intent.data.object
        try:
            async with self._tools.breaker.request():
                found = await self._tools.client.get(resource_of(obj), obj.name, obj.namespace)
        except NotFoundError:
            return None
        is_same = not intent.object_uid or found["metadata"]["uid"] == intent.object_uid
        return found if is_same and is_owned(found, intent.intent) else None

    async def _delete(self, intent: RemedyIntent) -> Payload | None:
        """Delete the object once its retention is over, if it is still ours."""
        if intent.delete_at is not None and self._tools.clock() < intent.delete_at:
            return None
        obj = intent.data.object
        if await self._own_object(intent) is not None:
            try:
                async with self._tools.breaker.request():
                    await self._tools.client.delete(resource_of(obj), obj.name, obj.namespace, uid=intent.object_uid)
            except NotFoundError:
                pass
        return RemediationObjectDeleted(intent=intent.intent)

    def _retry_later(self, intent: RemedyIntent, error: KubeError) -> None:
        metrics.RETRIES.labels(type(error).__name__).inc()
        failures = self._failures[intent.intent] = self._failures.get(intent.intent, 0) + 1
        pause_s = self._tools.pause_s(error, failures)
        log.warning("remediator.failed", node=intent.node, reason=str(error), retry_s=round(pause_s, 3))
        self._queue.add(intent.intent, self._queue.now_s() + pause_s)


def resource_of(obj: RemedyObject) -> Resource:
    """Where the object lives in the API."""
    group, _, version = obj.api_version.rpartition("/")
    return Resource(group, version, obj.resource, obj.kind, namespaced=obj.namespace is not None)


def _report(intent: RemedyIntent, data: Payload) -> None:
    shown = {"node": intent.node, "remediation": intent.intent, "object": intent.data.object.name}
    if isinstance(data, RemediationCreated):
        log.info("remediator.created", **shown)
    elif isinstance(data, RemediationObjectDeleted):
        log.info("remediator.deleted", **shown)
    elif isinstance(data, RemediationFinished):
        metrics.count(data)
        level = log.info if data.result == "Succeeded" else log.error
        level("remediator.finished", **shown, result=data.result, message=data.message)
    elif isinstance(data, RemediationSuperseded):
        metrics.count(data)
        log.info("remediator.superseded", **shown, reason=data.reason)
