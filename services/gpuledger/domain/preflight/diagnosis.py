"""What a diagnosis of DCGM amounts to, however `dcgmi diag` prints it. Pure.

DCGM names tests in two ways, `GPU Memory` up to 3.x and `memory` since 4.0; families put them together.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.preflight.dcgm_errors import PERSISTENCE_MODE


class DiagStatus(StrEnum):
    """How a test ended; `UNREADABLE` is what none of DCGM's words is."""

    PASS = "pass"  # noqa: S105 - a word of DCGM
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    NOT_RUN = "not run"
    UNREADABLE = "unreadable"


class DiagFamily(StrEnum):
    """What a test is about; all but the first test hardware under load."""

    SOFTWARE = "software"
    """Deployment: driver, libraries, settings, pending row remaps and the like."""
    MEMORY = "memory"
    PCIE = "pcie"
    NVLINK = "nvlink"
    STRESS = "stress"
    OTHER = "other"
    """Such as NVIDIA's own extended utility diagnostics (EUD), and what later versions bring."""


class DiagError(NamedTuple):
    """An error of a test. The numbers are DCGM's, which 2.x and tables do not print."""

    message: str
    number: int | None = None
    severity: int | None = None
    category: int | None = None

    @property
    def is_persistence_mode(self) -> bool:
        """Whether all that is wrong is a persistence mode that is off."""
        return self.number == PERSISTENCE_MODE if self.number is not None else _is_persistence_mode(self.message)


class DiagResult(NamedTuple):
    """How a test ended on a card, by the host engine's index; without one it is about the node, or names no card.

    `status` is as DCGM prints it.
    """

    test: str
    family: DiagFamily
    status: DiagStatus
    gpu: int | None = None
    errors: tuple[DiagError, ...] = ()

    @property
    def judged(self) -> DiagStatus:
        """The status, but a warning where it failed because of persistence mode alone: that blames no hardware."""
        return DiagStatus.WARN if self.status is DiagStatus.FAIL and self._fails_by_persistence_mode() else self.status

    def _fails_by_persistence_mode(self) -> bool:
        if self.errors:
            return all(error.is_persistence_mode for error in self.errors)
        return self.is_about_persistence_mode

    @property
    def is_about_persistence_mode(self) -> bool:
        """Whether the test looks at nothing else, as DCGM has one up to 3.x."""
        return _is_persistence_mode(self.test)


class Diagnosis(NamedTuple):
    """A diagnosis, as far as its output has it; not `complete` where that is cut."""

    version: str | None
    results: tuple[DiagResult, ...]
    complete: bool = True


_RAN: Final = frozenset({DiagStatus.PASS, DiagStatus.WARN, DiagStatus.FAIL})
"""How a test ends that did look at something."""


def ran(result: DiagResult) -> bool:
    """Whether a test was carried out."""
    return result.status in _RAN


def status_of(word: object) -> DiagStatus:
    """A status as DCGM writes it, in any case; what follows a dash, such as `- All`, is about cards."""
    words = re.sub(r"[\s_]+", " ", str(word)[:100]).strip().lower().partition(" - ")[0]
    return _STATUSES.get(words, DiagStatus.UNREADABLE)


_STATUSES: Final[Mapping[str, DiagStatus]] = {
    **{status.value: status for status in DiagStatus if status is not DiagStatus.UNREADABLE},
    "passed": DiagStatus.PASS,
    "failed": DiagStatus.FAIL,
    "warning": DiagStatus.WARN,
    "skipped": DiagStatus.SKIP,
}

_FAMILIES: Final[Mapping[str, DiagFamily]] = {
    "memory": DiagFamily.MEMORY,
    "gpu memory": DiagFamily.MEMORY,
    "memtest": DiagFamily.MEMORY,
    "memory bandwidth": DiagFamily.MEMORY,
    "pcie": DiagFamily.PCIE,
    "nvlink": DiagFamily.NVLINK,
    "nvbandwidth": DiagFamily.NVLINK,
    "nccl tests": DiagFamily.NVLINK,
    "diagnostic": DiagFamily.STRESS,
    "sm stress": DiagFamily.STRESS,
    "targeted stress": DiagFamily.STRESS,
    "targeted power": DiagFamily.STRESS,
    "pulse test": DiagFamily.STRESS,
    "eud": DiagFamily.OTHER,
    "eud test": DiagFamily.OTHER,
    "cpu eud": DiagFamily.OTHER,
    "software": DiagFamily.SOFTWARE,
    "context create": DiagFamily.SOFTWARE,
}
"""Tests of all versions outside the section Deployment. What looks at memory belongs to it though DCGM lists it as
stress; nvbandwidth and NCCL's tests load the links between cards."""

_OF_SECTIONS: Final[Mapping[str, DiagFamily]] = {
    "deployment": DiagFamily.SOFTWARE,
    "stress": DiagFamily.STRESS,
}


def family_of(test: str, section: str) -> DiagFamily:
    """The family of a test by its name, else by the section of the output in which it stands."""
    name = re.sub(r"[\s_-]+", " ", test).strip().lower()
    return _FAMILIES.get(name) or _OF_SECTIONS.get(section.strip().lower(), DiagFamily.OTHER)


def _is_persistence_mode(text: str) -> bool:
    return text.lstrip().lower().startswith("persistence mode")
