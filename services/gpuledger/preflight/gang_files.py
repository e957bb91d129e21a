"""Waits until a gang is complete, by reading the files of its ConfigMap again and again.

The kubelet replaces all files of a mounted ConfigMap at once, by another folder behind the link `..data`; so a reading
is of one folder. It does so up to a minute late, and tells nobody: reading at an interval misses nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpuledger.api.preflight import GangKey
from gpuledger.preflight.errors import GangTimeoutError
from gpuledger.preflight.gang import CompleteGang, GangView, gang_view
from gpuledger.preflight.settings import GangSettings, PodIdentity

POLL_S: Final = 1.0
FILE_BYTES_MAX: Final = 1024 * 1024
"""What a ConfigMap may hold."""

_DATA: Final = "..data"
_log = structlog.get_logger()


class FormedGang(NamedTuple):
    """A complete gang, and how long it was waited for."""

    gang: CompleteGang
    waited_s: float


async def wait_for_gang(
    settings: GangSettings,
    pod: PodIdentity,
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FormedGang:
    """The gang of the pod, once all of it is there.

    Raises:
        GangTimeoutError: it was not in time.
    """
    began_s, shown = monotonic(), ""
    while True:
        view = gang_view(read_gang_files(settings.folder), pod.name, pod.ip)
        waited_s = monotonic() - began_s
        if view.gang is not None:
            return FormedGang(view.gang, waited_s)
        if waited_s >= settings.timeout_s:
            raise GangTimeoutError(_words(view, settings), waited_s, view.id)
        if view.missing != shown:
            shown = view.missing
            _log.info("waiting for the gang", gang=view.id or None, missing=view.missing, expected=view.expected)
        await sleep(min(POLL_S, settings.timeout_s - waited_s))


def read_gang_files(folder: Path) -> Mapping[str, str]:
    """The files by their names; empty where there are none, or where they are replaced at this moment."""
    try:
        data = (folder / _DATA).resolve(strict=True) if (folder / _DATA).is_symlink() else folder
        present = {path.name for path in data.iterdir()}
        return {key: _text(data / key) for key in GangKey if key in present}
    except OSError:
        return {}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")


def _words(view: GangView, settings: GangSettings) -> str:
    return (
        f"The gang {view.id or 'of this pod'} was not complete in {settings.timeout_s:g} s: {view.missing}. Look "
        f"whether all its pods are scheduled, and whether gpuledger's service `preflight` runs, which writes its "
        f"ConfigMap ({settings.folder})."
    )
