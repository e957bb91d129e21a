"""Reads what `dcgmi diag -j` prints, of DCGM 2.x to 4.x and of its engine nvvs, whole or cut. Pure.

The tests are found wherever they are: roots, noise around the document and the nesting differ by version. Of a
document that is cut, or broken in the middle, the tests that are whole count.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gpuledger.domain.preflight.dcgm_errors import blames_card, runtime_error
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

OBJECTS_MAX: Final = 20_000
"""At so many places of a text a document is looked for."""

GPUS_MAX: Final = 1024
"""The most cards that a result counts."""

ERROR: Final = "Error"
"""What DCGM calls a failure that is no test."""

_CARD_IN_MESSAGE: Final = re.compile(r"\bGPU ([0-9]{1,4})\b")
_NUMBER: Final = re.compile(r"(?<![-0-9])[0-9]{1,6}")
_OPEN: Final = re.compile(r"\{")
_GPU: Final = "GPU"


class _Placed(NamedTuple):
    """An object of a document, with the section in which it stands."""

    value: dict[str, Any]
    section: str


def parse(text: str) -> Diagnosis | None:
    """The diagnosis in a text; None where no JSON of one is in it.

    Raises:
        EngineBusyError: the host engine runs another one.
        DcgmError: DCGM could not run it, its document says why, and no card is to blame.
    """
    documents = list(_documents(text))
    placed = [one for document in documents for one in _objects(document)]
    tests = [one for one in placed if _is_test(one.value)]
    is_whole = any("test_categories" in one.value for one in placed)
    results = tuple(result for one in tests for result in _results(one))
    if (error := _runtime_error(placed)) is not None:
        return Diagnosis(_version(placed), _despite(error, results), complete=False)
    return Diagnosis(_version(placed), results, complete=is_whole) if tests or is_whole else None


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object of a text that is whole and in no other one that is."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(OBJECTS_MAX):
        begin = _OPEN.search(text, at)
        if begin is None:
            return
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            at = begin.end()
        else:
            yield document


def _objects(document: dict[str, Any]) -> Iterator[_Placed]:
    """The objects of a document down to its tests, in its order, whatever nests in it."""
    waiting: list[tuple[Any, str]] = [(document, "")]
    while waiting:
        value, section = waiting.pop()
        if isinstance(value, dict):
            section = _text(value.get("category")) or section
            yield _Placed(value, section)
        if not (isinstance(value, dict) and _is_test(value)):
            parts = value.values() if isinstance(value, dict) else value
            waiting.extend((part, section) for part in reversed(list(parts)) if isinstance(part, dict | list))


def _is_test(value: dict[str, Any]) -> bool:
    return isinstance(value.get("name"), str) and ("results" in value or "test_summary" in value)


def _runtime_error(placed: list[_Placed]) -> str | None:
    """What kept DCGM from the diagnosis, or broke it off."""
    return next(filter(None, (_text(one.value.get("runtime_error")) for one in placed)), None)


def _despite(error: str, results: tuple[DiagResult, ...]) -> tuple[DiagResult, ...]:
    """What a diagnosis with a runtime error shows all the same: tests that failed, or that a card is at fault."""
    if blames_card(error):
        card = _CARD_IN_MESSAGE.search(error)
        found = DiagResult(ERROR, DiagFamily.SOFTWARE, DiagStatus.FAIL, int(card[1]) if card else None)
        return (*results, found._replace(errors=(DiagError(message_of(error)),)))
    if any(result.status is DiagStatus.FAIL for result in results):
        return results
    raise runtime_error(error)


def _version(placed: list[_Placed]) -> str | None:
    """DCGM's version. Up to 3.x it stands in the root, beside the tests, later in `metadata`."""
    versions = (_text(one.value.get("version") or one.value.get("DCGM Version")) for one in placed)
    return next(filter(None, versions), None)


def _results(test: _Placed) -> Iterator[DiagResult]:
    """The results of a test by card, and what its summary has beyond them."""
    name = message_of(test.value["name"])
    family = family_of(name, test.section)
    of_cards = [one for value in _dicts(test.value.get("results")) for one in _of_cards(name, family, value)]
    yield from of_cards
    summary = test.value.get("test_summary")
    if isinstance(summary, dict):
        yield from _of_summary(name, family, summary, of_cards)


def _of_cards(name: str, family: DiagFamily, value: dict[str, Any]) -> Iterator[DiagResult]:
    status, errors = status_of(value.get("status")), _errors(value)
    for gpu in _gpus(value) or (None,):
        yield DiagResult(name, family, status, gpu, errors)


def _of_summary(
    name: str, family: DiagFamily, summary: dict[str, Any], of_cards: list[DiagResult]
) -> Iterator[DiagResult]:
    """A result of the test as a whole, where it ended otherwise than all cards or has errors of none of them."""
    listed = {error for result in of_cards for error in result.errors}
    errors = tuple(error for error in _errors(summary) if error not in listed)
    status = status_of(summary.get("status"))
    if errors or status not in {result.status for result in of_cards}:
        yield DiagResult(name, family, status, None, errors)


def _gpus(value: dict[str, Any]) -> tuple[int, ...]:
    """The cards of a result: an entity since 4.0, before that a number as text, or several in one text."""
    if "entity_id" in value:
        is_card = value.get("entity_group", _GPU) == _GPU
        return _numbers(value["entity_id"]) if is_card else ()
    return _numbers(value.get("gpu_id", value.get("gpu_ids")))


def _numbers(value: object) -> tuple[int, ...]:
    is_number = isinstance(value, int | str) and not isinstance(value, bool)
    found = _NUMBER.findall(str(value)[: 8 * GPUS_MAX]) if is_number else []
    return tuple(dict.fromkeys(map(int, found[:GPUS_MAX])))


def _errors(value: dict[str, Any]) -> tuple[DiagError, ...]:
    """The errors of a result: objects, or up to 2.x texts."""
    warnings = value.get("warnings", value.get("warning"))
    listed = warnings if isinstance(warnings, list) else [warnings]
    return tuple(dict.fromkeys(_error(one) for one in listed if isinstance(one, dict | str) and one))


def _error(value: dict[str, Any] | str) -> DiagError:
    if isinstance(value, str):
        return DiagError(message_of(value))
    number = _integer(value.get("error_id", value.get("error_code")))
    severity, category = _integer(value.get("error_severity")), _integer(value.get("error_category"))
    return DiagError(message_of(_text(value.get("warning"))), number, severity, category)


def _integer(value: object) -> int | None:
    found = _numbers(value)
    return found[0] if found else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
