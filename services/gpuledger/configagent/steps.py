"""The steps by which a host comes to have a configuration, each of which the executor takes as it stands. Pure."""

from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.configagent.host_file import NewFile

SYSTEMD: Final = "systemd"
"""The subject of a step that is about no unit of its own."""


class Work(StrEnum):
    """What a step does to the host."""

    NOTHING = "nothing"
    WRITE = "write"
    REMOVE = "remove"
    SYSTEMCTL = "systemctl"


class Step(NamedTuple):
    """A step: what it is about (a path or a unit), what is done, and why where that is not plain.

    `action` is a verb of systemctl where the work is that. `persists` says that a reboot may be needed for it to take
    effect; `acts` that it is done once for a revision.
    """

    subject: str
    action: str
    work: Work = Work.NOTHING
    file: NewFile | None = None
    note: str = ""
    persists: bool = False
    acts: bool = False

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""
        return self.work is not Work.NOTHING


class Plan(NamedTuple):
    """All steps in the order of work. With `problems` none of them is taken: the host stays as it is."""

    steps: tuple[Step, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""
        return any(step.changes for step in self.steps)


class Outcome(NamedTuple):
    """What became of a step: `unchanged`, `changed`, `failed` or `not-applied`."""

    step: Step
    outcome: str
    message: str = ""
