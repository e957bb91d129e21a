"""Reads the table that `dcgmi diag` prints where it is not asked for JSON, of DCGM 2.x to 4.x, whole or cut. Pure."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.domain.preflight.diagnosis import (
    DiagError,
    DiagFamily,
    Diagnosis,
    DiagResult,
    DiagStatus,
    family_of,
    status_of,
)
from gpuledger.domain.preflight.text import message_of

CELL: Final = 45
"""A cell has so many characters of a message; the next ones follow in the next row, in the middle of words."""

_TITLE: Final = "Diagnostic"
_SECTION: Final = re.compile(r"^\s*[|+]-{2,} {1,4}([A-Za-z ]{1,40}?) {1,4}-{2,}")
_BORDER: Final = re.compile(r"^\s*\+[-+]{20,}\s*$")
_NOTE: Final = re.compile(r"^(Warning|Error|Info)(?:: *GPU *([0-9]{1,4})|: *[A-Za-z]{1,12}[0-9]{1,4})?$")
_OF_ENTITY: Final = re.compile(r"^([A-Za-z]{1,12}) ?([0-9]{1,4}): ([A-Za-z ]{2,10})$")
_OF_CARDS: Final = re.compile(r"- *GPUs?: *([0-9, ]{1,4000})")
_CARD_IN_MESSAGE: Final = re.compile(r"\bGPU ([0-9]{1,4})\b")


class _Note(NamedTuple):
    """A message below a test, which goes on over rows."""

    kind: str
    gpu: int | None
    pieces: list[str]

    def error(self) -> DiagError:
        return DiagError(message_of("".join(self.pieces)))

    def card(self) -> int | None:
        """The card that the row or the message names."""
        found = _CARD_IN_MESSAGE.search(self.error().message) if self.gpu is None else None
        return self.gpu if found is None else int(found[1])


class _Test(NamedTuple):
    """A row with a test's status, and what stands below it."""

    name: str
    family: DiagFamily
    status: DiagStatus
    cards: tuple[int, ...]
    of_entities: list[tuple[int | None, DiagStatus]]
    notes: list[_Note]

    def results(self) -> Iterator[DiagResult]:
        """A result for each card that the table names; one for the node where it names none."""
        faults = [(note.card(), note.error()) for note in self.notes if note.kind != "Info"]
        statuses = dict(self.of_entities) or dict.fromkeys(self.cards, self.status)
        if self.status is not DiagStatus.PASS:
            statuses = {**dict.fromkeys((card for card, _ in faults), self.status), **statuses}
        for card, status in (statuses or {None: self.status}).items():
            yield DiagResult(self.name, self.family, status, card, tuple(e for one, e in faults if one == card))


def parse(text: str) -> Diagnosis | None:
    """The diagnosis in a text; None where no table of one is in it."""
    reader = _Reader()
    for line in text.splitlines():
        reader.take(line)
    if not reader.begun:
        return None
    results = tuple(result for test in reader.tests for result in test.results())
    return Diagnosis(reader.version, results, complete=reader.ended)


class _Reader:
    """Takes a table's lines one by one."""

    def __init__(self) -> None:
        self.tests: list[_Test] = []
        self.version: str | None = None
        self.begun = False
        self.ended = False
        self._section = ""
        self._is_first = False

    def take(self, line: str) -> None:
        if (section := _SECTION.match(line)) is not None:
            self.begun, self.ended, self._section, self._is_first = True, False, section[1], True
        elif _BORDER.match(line) is not None:
            self.ended = self.begun
        elif line.lstrip().startswith("|"):
            name, _, cell = line.lstrip()[1:].partition("|")
            self._row(name.strip(), cell[1 : CELL + 1].rstrip("|") if cell.endswith("|") else cell[1:])

    def _row(self, name: str, cell: str) -> None:
        if not self.begun or name == _TITLE:
            return
        if not name:
            self._continue(cell)
        elif self._section == "Metadata":
            self.version = message_of(cell) if name == "DCGM Version" else self.version
        elif (note := _NOTE.match(name)) is not None:
            self._note(_Note(note[1], int(note[2]) if note[2] else None, [cell]))
        elif (status := status_of(cell)) is not DiagStatus.UNREADABLE:
            cards = tuple(map(int, re.findall(r"[0-9]{1,4}", found[1]))) if (found := _OF_CARDS.search(cell)) else ()
            self._begin(name, status, cards)

    def _begin(self, name: str, status: DiagStatus, cards: tuple[int, ...] = ()) -> None:
        self.tests.append(_Test(name, family_of(name, self._section), status, cards, [], []))
        self._is_first = False

    def _note(self, note: _Note) -> None:
        """A note belongs to the test above it; without one in its section an error is a failure of its own."""
        if self._is_first or not self.tests:
            self._begin(note.kind, DiagStatus.FAIL if note.kind == "Error" else DiagStatus.WARN)
        self.tests[-1].notes.append(note)

    def _continue(self, cell: str) -> None:
        if not self.tests:
            return
        test = self.tests[-1]
        if (entity := _OF_ENTITY.match(cell.strip())) is not None:
            status = status_of(entity[3])
            if status is not DiagStatus.UNREADABLE:
                test.of_entities.append((int(entity[2]) if entity[1] == "GPU" else None, status))
                return
        if test.notes:
            test.notes[-1].pieces.append(cell)
