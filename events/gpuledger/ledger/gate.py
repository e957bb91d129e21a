"""What calls that publish do while the server acknowledges nothing: one at a time tries, the others wait for it.

A cluster that elects a leader refuses every message, or is silent. Were each of thousands of calls to try again by
itself, they would keep the cluster, and us, from everything else. Nothing here sends anything.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

SILENCE_MAX_S: Final = 1.0
"""How long nothing at all may be answered before the gate closes."""

PROBE_PAUSE_S: Final = 0.1
"""Between a probe that was not acknowledged and the next one, whoever sends it."""

PROBE_ANSWER_MAX_S: Final = 0.25
"""How long a probe keeps its turn; one that comes while leaders change is lost, and its answer counts even later."""

NO_ANSWER: Final = "no acknowledgement"


class Sent(Protocol):
    """Messages that wait for their answers."""

    last_number: int
    """The number under which the last of them was sent; 0 while none is."""

    def lapse(self, problem: str) -> None:
        """The messages are lost: stop waiting."""
        ...


class PublishGate:
    """Open while the server answers; of what waits before a closed gate, one at a time has its turn to try.

    A stream answers in the order in which it was sent to. A message may thus wait long behind others, and is lost only
    if something that was sent after it was answered `silence_s` ago, or nothing is answered for so long.
    """

    def __init__(self, silence_s: float = SILENCE_MAX_S, on_trouble: Callable[[], None] = lambda: None) -> None:
        """`on_trouble` is called whenever the server acknowledges nothing, also behind a gate that is closed."""
        self.problem = ""
        self._on_trouble = on_trouble
        self._silence_s = silence_s
        self._turn_is_taken = False
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._watched: dict[int, Sent] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._answers = self._answers_before = 0
        self._newest = self._newest_before = 0
        self._sent = self._sent_before = 0

    @property
    def is_open(self) -> bool:
        """Whether everybody may send."""
        return not self.problem

    def send(self) -> int:
        """The number of a message that is sent now; they count up."""
        self._sent += 1
        return self._sent

    def open(self, number: int) -> None:
        """The message of that number was acknowledged, or refused for a reason of its own."""
        self._answers += 1
        self._newest = max(self._newest, number)
        self.problem = ""
        while self._waiting:
            _resolve(self._waiting.popleft(), is_our_turn=False)

    def close(self, problem: str) -> None:
        """Nothing is acknowledged, and this is why; whatever waits for an answer stops waiting."""
        self._on_trouble()
        if self.is_open:
            self.problem = problem
            for sent in tuple(self._watched.values()):
                sent.lapse(problem)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Whether it is our turn to try, as long as the block lasts; not so once the gate is open for everybody."""
        is_our_turn = await self._wait_for_turn()
        try:
            yield is_our_turn
        finally:
            if is_our_turn:
                self._pass_on()

    async def _wait_for_turn(self) -> bool:
        if self.is_open:
            return False
        if not self._turn_is_taken:
            self._turn_is_taken = True
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        self._turn_is_taken = False
        while self._waiting and not self._turn_is_taken:
            self._turn_is_taken = _resolve(self._waiting.popleft(), is_our_turn=True)

    @contextmanager
    def watching(self, sent: Sent) -> Iterator[None]:
        """Have these messages lapse when they are lost."""
        self._watched[id(sent)] = sent
        if self._timer is None:
            self._remember()
            self._start_timer()
        try:
            yield
        finally:
            del self._watched[id(sent)]

    def check(self) -> None:
        """Have what is lost lapse; called once in `silence_s` while something waits."""
        is_silent = self._answers == self._answers_before
        lost = [
            sent
            for sent in self._watched.values()
            if 0 < sent.last_number <= (self._sent_before if is_silent else self._newest_before - 1)
        ]
        self._remember()
        if lost:
            self._on_trouble()
        if lost and is_silent:
            self.problem = self.problem or NO_ANSWER
        for sent in lost:
            sent.lapse(NO_ANSWER)

    def _remember(self) -> None:
        self._answers_before, self._newest_before, self._sent_before = self._answers, self._newest, self._sent

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._watched:
            self.check()
            self._start_timer()


def _resolve(turn: asyncio.Future[bool], *, is_our_turn: bool) -> bool:
    """Say to who waits whether it is their turn; False if they do not wait any more."""
    if turn.done():
        return False
    turn.set_result(is_our_turn)
    return True
