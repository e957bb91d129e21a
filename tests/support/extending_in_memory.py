"""The effects of an extender's leader, with a ledger and pods in memory: a test decides what comes in between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException, JsonPointer

from gpuledger.domain.fact import Fact
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.extender.errors import BindError
from gpuledger.edge.extender.service import ExtenderEffects
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.edge.extender.wire import BindingArgs
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.errors import ConflictError, InvalidError, NotFoundError
from gpuledger.edge.outcomes import OutcomeRecorder, RecordedIntent
from gpuledger.events.envelope import Event
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.runtime.backoff import Backoff
from support.events import hour
from support.extending import gpu, pod_of

QUICK = Backoff(first_s=0.001, max_s=0.002)

Hook = Callable[[str, Any], Awaitable[None]]
"""Called with a verb and what it is about, before it is carried out."""


async def nothing(_verb: str, _about: Any) -> None:
    """Nothing comes in between."""


class PodsInMemory(KubeClient):
    """An API server that has pods alone."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.before: Hook = nothing
        self.writes: list[str] = []
        self.url = "memory:"

    def put(self, name: str, **amounts: int) -> Object:
        """A user creates a pod, whose name is its UID."""
        pod = self.pods[name] = pod_of(name, **amounts)
        pod["metadata"]["uid"] = name
        return pod

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Object:
        """A pod."""
        await self.before("get", name)
        return self._found(name)

    async def json_patch(self, resource: Any, name: str, operations: Any, *_: Any, **__: Any) -> Object:
        """Write or remove an annotation, if all tests before hold; what is absent is null."""
        *tests, last = operations
        verb = "remove" if last["op"] == "remove" else "annotate"
        await self.before(verb, name)
        pod = self._found(name)
        if any(JsonPointer(one["path"]).resolve(pod, None) != one["value"] for one in tests):
            raise InvalidError("a test fails", 422, "Invalid")
        try:
            JsonPatch([last]).apply(pod, in_place=True)
        except JsonPatchException as error:
            raise InvalidError(str(error), 422, "Invalid") from error
        self.writes.append(f"{verb} {name}")
        return pod

    async def send(self, request: KubeRequest) -> Object:
        """Bind a pod."""
        assert isinstance(request.body, dict)
        name = request.body["metadata"]["name"]
        await self.before("bind", name)
        pod = self._found(name)
        if pod["metadata"]["uid"] != request.body["metadata"]["uid"] or pod["spec"].get("nodeName"):
            raise ConflictError("bound, or another one", 409, "Conflict")
        pod["spec"]["nodeName"] = request.body["target"]["name"]
        self.writes.append(f"bind {name}")
        return pod

    def _found(self, name: str) -> Object:
        if name not in self.pods:
            raise NotFoundError("no such pod", 404, "NotFound")
        return self.pods[name]


@dataclass
class LedgerInMemory:
    """Folds what is recorded; `late` events are folded in one batch with the next one of the extender."""

    state: ExtenderState = field(default_factory=ExtenderState)
    late: list[tuple[str, Payload]] = field(default_factory=list)
    recorded: list[Payload] = field(default_factory=list)
    number: int = 0

    def now(self) -> datetime:
        """A second has passed with every event."""
        return hour(0) + timedelta(seconds=self.number)

    def fold(self, subject: str, data: Payload, event_id: str = "", at: datetime | None = None) -> None:
        """An event is folded."""
        self.number += 1
        event = Event(
            event_id or f"e{self.number}", "/services/x", data.TYPE, subject, at or self.now(), data, "e",
            self.number,
        )  # fmt: skip
        self.recorded.append(data)
        handler = ExtenderProjection.handlers.get(type(data))
        if handler is not None:
            handler(self.state, Fact(event, self.number, 0), data)


class RecorderInMemory(OutcomeRecorder):
    """Records into a ledger in memory, whose leader follows at once."""

    def __init__(self, ledger: LedgerInMemory) -> None:
        self._log = ledger
        self._ids: set[str] = set()
        self.advance: Callable[[], None] = lambda: None

    async def record(self, intent: RecordedIntent, outcome: Payload, part: str = "") -> None:
        """An outcome; one that is there already is no new event."""
        event_id = f"{intent.intent}/{outcome.TYPE}"
        await asyncio.sleep(0)
        if event_id not in self._ids:
            self._ids.add(event_id)
            self._fold([(intent.node, outcome, event_id)])

    async def record_together(
        self, facts: Iterable[tuple[str, Payload, str]], not_before: datetime | None = None
    ) -> None:
        """Facts of the extender."""
        await asyncio.sleep(0)
        self._fold(facts)

    def _fold(self, facts: Iterable[tuple[str, Payload, str]]) -> None:
        late, self._log.late = self._log.late, []
        for subject, data, event_id in facts:
            self._log.fold(subject, data, event_id)
        for subject, data in late:
            self._log.fold(subject, data)
        self.advance()


def in_memory_settings() -> ExtenderSettings:
    """No other process is about to bind anything, and everything is tried again at once."""
    return ExtenderSettings(settle_backoff=QUICK, backoff=QUICK, predecessor_max_s=0.0)


class ExtenderInMemory:
    """A leader over a ledger and pods in memory; `working` runs its workers."""

    def __init__(self, settings: ExtenderSettings | None = None) -> None:
        settings = settings or in_memory_settings()
        loop = asyncio.get_running_loop()
        self.ledger, self.kube = LedgerInMemory(), PodsInMemory()
        self.recorder = RecorderInMemory(self.ledger)
        breaker = CircuitBreaker(RateLimiter(1e6, 10**6, loop.time), QUICK, lambda: 1.0, loop.time)
        tools = EffectTools(self.kube, breaker, self.recorder, settings, self.ledger.now, lambda: 1.0)
        self.effects = ExtenderEffects(tools)
        self.ledger.state = self.effects.state

    def share(self, node: str, cards: int = 1) -> None:
        """A node shares cards of 16 GiB."""
        self.ledger.fold(node, NodeDevicesShared(devices=tuple(gpu(node, minor) for minor in range(cards))))

    def resume(self) -> None:
        """Lead; nobody works yet."""
        self.effects.resume()
        self.recorder.advance = self.effects.advance

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run the workers in the block."""
        workers = [asyncio.ensure_future(one) for one in self.effects.work()]
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()

    def record(self, subject: str, data: Payload) -> None:
        """Another service records something, which the leader follows."""
        self.ledger.fold(subject, data)
        self.effects.advance()

    async def bind(self, name: str, node: str = "n1") -> str:
        """Bind a pod; returns the reason of a refusal, empty for none."""
        try:
            await self.effects.bind(BindingArgs("default", name, self.kube.pods[name]["metadata"]["uid"], node))
        except BindError as error:
            return error.reason
        return ""
