"""Puts the messages of a ledger's partitions into the order of the log. Pure.

It is fed what the order says and what each partition has, each in its own order, and gives out messages under their
places in the log. Nothing comes out before everything in front of it has come out, or is known not to match.
"""

from bisect import bisect_right
from collections import deque

from gpuledger.events.position import number_of
from gpuledger.ledger.api import Message
from gpuledger.ledger.partitions import Block, Upto, blocks_between


class Merge:
    """The log behind a place, at which `upto` is in the log and of each partition `counts` have been read."""

    def __init__(self, upto: Upto, counts: Upto) -> None:
        self.upto = upto
        self.blocks: deque[Block] = deque()
        self._begin = counts
        self._complete = list(counts)
        self._waiting = [_Waiting() for _ in counts]

    def order(self, upto: Upto) -> None:
        """The log goes on up to this."""
        self.blocks += (one for one in blocks_between(self.upto, upto) if one.upto > self._begin[one.partition])
        self.upto = upto

    def add(self, partition: int, messages: list[Message]) -> None:
        """These follow in a partition."""
        self._waiting[partition].add(messages)
        self._complete[partition] = number_of(messages[-1].sequence)

    def complete(self, partition: int, upto: int) -> None:
        """Of a partition everything up to its message `upto` has been added that matches."""
        self._complete[partition] = max(self._complete[partition], upto)

    def complete_of(self, partition: int) -> int:
        """Up to which of its messages a partition is known."""
        return self._complete[partition]

    def waiting_of(self, partition: int) -> int:
        """How many messages of a partition wait for their turn."""
        return self._waiting[partition].count

    @property
    def has_waiting(self) -> bool:
        """Whether any message waits for its turn."""
        return any(one.count for one in self._waiting)

    def take(self, limit: int) -> list[Message]:
        """The next messages of the log, as far as they are known."""
        taken: list[Message] = []
        while self.blocks and len(taken) < limit:
            partition, upto, shift = self.blocks[0]
            waiting = self._waiting[partition]
            for subject, data, number, recorded_ns in waiting.take(upto, limit - len(taken)):
                taken.append(Message(subject, data, number_of(number) + shift, recorded_ns))
            if not waiting.count and self._complete[partition] < upto:
                break
            if not waiting.has(upto):
                self.blocks.popleft()
        return taken


class _Waiting:
    """The messages of a partition that wait for their turn."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._at = 0

    @property
    def count(self) -> int:
        return len(self._messages) - self._at

    def add(self, messages: list[Message]) -> None:
        if self._at:
            del self._messages[: self._at]
            self._at = 0
        self._messages += messages

    def has(self, upto: int) -> bool:
        """Whether any stands up to the partition's message `upto`."""
        return self.count > 0 and number_of(self._messages[self._at].sequence) <= upto

    def take(self, upto: int, limit: int) -> list[Message]:
        """Those that stand up to the partition's message `upto`, and at most `limit`."""
        if not self.has(upto):
            return []
        messages, begin = self._messages, self._at
        end = begin + 1 + upto - number_of(messages[begin].sequence)
        if end > len(messages) or number_of(messages[end - 1].sequence) != upto:  # a filter passed over some
            end = bisect_right(messages, upto, begin, key=_number)
        self._at = min(end, begin + limit)
        return messages[begin : self._at]


def _number(message: Message) -> int:
    return number_of(message.sequence)
