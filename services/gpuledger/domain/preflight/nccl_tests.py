"""Reads what `all_reduce_perf` and the other programs of nccl-tests print, of all versions since 2018. Pure.

The columns differ by version, so the heading says where they are; lines may have the prefixes of mpirun and srun
(`[1,0]<stdout>:`, `0: `) and those of others between them. Only an output with the line `Avg bus bandwidth` is whole:
one that ends before it may lack the largest sizes, which are the ones that count.
"""

import re
from collections.abc import Iterator, Sequence
from math import inf, isfinite, nan
from typing import Final, NamedTuple

from gpuledger.domain.preflight.nccl_errors import NcclFailure, classify, classify_failure
from gpuledger.domain.preflight.setting_values import BANDWIDTH_MAX_GBPS
from gpuledger.domain.preflight.text import cleaned

LARGEST: Final = 3
"""So many of the largest sizes count: bandwidth grows with size, and a single one may be disturbed."""

NOT_MEASURED: Final = "N/A"
_NO_NUMBERS: Final = frozenset({"nan", "inf"})
_PREFIX_WORDS_MAX: Final = 6
_LAYOUT: Final = ("time", "algbw", "busbw", "#wrong") * 2
"""The columns behind a row's names where no heading is found; in each version one group is out of place."""

_MULTIPLES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = re.compile(r"([0-9]{1,20})([KMGTkmgt]?)(?:i?B)?")
_COUNT: Final = re.compile(r"[0-9]{1,20}[KMGTkmgt]?")
_TYPE: Final = re.compile(r"[a-z][a-z0-9_]{1,20}")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,12})?(?:e[+-]?[0-9]{1,3})?")
_RANK: Final = re.compile(r"#\s+Rank\s+([0-9]{1,7})\b")
_WRONG: Final = re.compile(r"# Out of bounds values\s*:\s*([0-9]{1,18})")
_AVERAGE: Final = re.compile(r"# Avg bus bandwidth\s*:\s*([0-9.]{1,20})")
_FAILED: Final = re.compile(r"\b(?:NCCL|CUDA|Cuda) failure \S{1,200}:[0-9]{1,6}\b")
"""A call failed. `Test failure` may also mean that the program's own checks failed, whose values the output has."""


class SizeResult(NamedTuple):
    """A row: the bus bandwidth is the lower one of out of place and in place, in GB/s (10^9 bytes); NaN as printed."""

    size_bytes: int
    busbw_gbps: float
    wrong: int = 0


class NcclRun(NamedTuple):
    """A run of nccl-tests, with a table for each test that was run.

    `ranks` is the number of processes' cards, None where the output does not list them; `wrong` counts values that came
    out wrong, and `failure` is what made the run fail, also where it printed no table.
    """

    tables: tuple[tuple[SizeResult, ...], ...]
    ranks: int | None
    wrong: int
    average_gbps: float | None
    failure: NcclFailure | None

    @property
    def complete(self) -> bool:
        """Whether the last test came to its end."""
        return self.average_gbps is not None and bool(self.tables)

    @property
    def bandwidth_gbps(self) -> float | None:
        """The bus bandwidth of the largest sizes; of several tests the lowest.

        None where there is none to judge: without a table, and with one card, for which nccl-tests prints 0.
        """
        best = [_best(table) for table in self.tables]
        has_one_card = self.ranks == 1 or (self.ranks is None and not any(best))
        return None if not best or has_one_card or self.is_unmeasured else min(best)

    @property
    def is_unmeasured(self) -> bool:
        """Whether one of the bandwidths that count is printed as no number."""
        return not all(isfinite(row.busbw_gbps) for table in self.tables for row in _largest(table))


def parse(text: str) -> NcclRun:
    """The run that an output shows; without tables where it shows none."""
    clean = cleaned(text)
    lines = clean.splitlines()
    tables = tuple(table for table in map(tuple, _tables(lines)) if table)
    wrong = max(sum(row.wrong for table in tables for row in table), sum(_integers(_WRONG, clean)))
    averages = _AVERAGE.findall(clean)
    average = _number(averages[-1]) if averages else None
    return NcclRun(tables, _ranks(lines), wrong, average, _failure(clean, is_whole=bool(averages and tables)))


def _failure(text: str, *, is_whole: bool) -> NcclFailure | None:
    """What made a run fail. Of a run that came to its end warnings do not count: connections close at its end."""
    if _FAILED.search(text) is not None:
        return classify_failure(text)
    return None if is_whole else classify(text)


def _tables(lines: Sequence[str]) -> Iterator[list[SizeResult]]:
    """The rows of each table. A heading begins one and says what its columns are."""
    layout: Sequence[str] = _LAYOUT
    rows: list[SizeResult] = []
    for line in lines:
        words = line.split()
        if "busbw" in words and "time" in words:
            yield rows
            layout, rows = words[words.index("time") :], []
        elif (row := _row(words, layout)) is not None:
            rows.append(row)
    yield rows


def _row(words: Sequence[str], layout: Sequence[str]) -> SizeResult | None:
    begin = _begin(words)
    if begin is None or len(words) < begin + 3 + len(layout):
        return None
    columns = list(zip(layout, words[-len(layout) :], strict=True))
    printed = [word for name, word in columns if name == "busbw" and word != NOT_MEASURED]
    busbw = [_bandwidth(word) for word in printed]
    if None in busbw or not busbw:
        return None
    wrong = sum(_wrong(word) for name, word in columns if name == "#wrong")
    return SizeResult(_size(words[begin]), min((one for one in busbw if one is not None), key=_order), wrong)


def _bandwidth(word: str) -> float | None:
    """NaN for what no bus can carry; None for what is no value of a table."""
    value = nan if word.lstrip("+-") in _NO_NUMBERS else _number(word)
    return nan if value is not None and value > BANDWIDTH_MAX_GBPS else value


def _order(busbw_gbps: float) -> float:
    """What is no number is the lowest."""
    return busbw_gbps if isfinite(busbw_gbps) else -inf


def _wrong(word: str) -> int:
    """How many values came out wrong; a number that is none is at least one."""
    return 1 if word.lstrip("+-") in _NO_NUMBERS else int(_number(word) or 0)


def _begin(words: Sequence[str]) -> int | None:
    """Where the row begins behind prefixes: a size, a count of elements and their type."""
    for at in range(min(_PREFIX_WORDS_MAX, len(words) - 2)):
        if _SIZE.fullmatch(words[at]) and _COUNT.fullmatch(words[at + 1]) and _TYPE.fullmatch(words[at + 2]):
            return at
    return None


def _size(word: str) -> int:
    found = _SIZE.fullmatch(word)
    return int(found[1]) * _MULTIPLES[found[2].upper()] if found is not None else 0


def _best(table: Sequence[SizeResult]) -> float:
    return max(row.busbw_gbps for row in _largest(table))


def _largest(table: Sequence[SizeResult]) -> Sequence[SizeResult]:
    return sorted(table, key=lambda row: row.size_bytes)[-LARGEST:]


def _ranks(lines: Sequence[str]) -> int | None:
    """How many cards the last list of devices has."""
    ranks: set[str] = set()
    for line in lines:
        if "# Using devices" in line:
            ranks.clear()
        elif (rank := _RANK.search(line)) is not None:
            ranks.add(rank[1])
    return len(ranks) or None


def _number(word: str) -> float | None:
    """A value of a table; None for `N/A` and what is none."""
    value = float(word) if _NUMBER.fullmatch(word) else None
    return value if value is not None and isfinite(value) else None


def _integers(pattern: re.Pattern[str], text: str) -> list[int]:
    return [int(one) for one in pattern.findall(text)]
