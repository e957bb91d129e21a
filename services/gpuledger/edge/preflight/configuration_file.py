"""Follows the file with the configuration. What cannot be used changes nothing: the last one that could stays in force.

A ConfigMap's files are replaced by a symbolic link that is renamed, so the content is compared, and not the file. An
empty file is one that somebody is writing: without this it would take the checks away from all pods for a moment.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpuledger.edge.preflight.configuration import PreflightConfiguration, read_configuration
from gpuledger.edge.preflight.errors import ConfigurationError
from gpuledger.edge.preflight.metrics import CONFIGURATION_UNUSABLE

AUTHORITY_BYTES_MAX: Final = 64 * 1024
"""An authority becomes an annotation of pods, of which a pod may have 256 KiB."""

log = structlog.get_logger("gpuledger.preflight")


class InForce(NamedTuple):
    """A configuration, and the authority that it names, as PEM (empty: none)."""

    configuration: PreflightConfiguration
    authority: str = ""


class ConfigurationFile:
    """The configuration in force, and what is wrong with the file, if anything is."""

    def __init__(self, path: Path, poll_s: float, on_change: Callable[[], None] = lambda: None) -> None:
        self.in_force: InForce | None = None
        self.problem: str | None = None
        self._path = path
        self._text: bytes | None = None
        self._understood: PreflightConfiguration | ConfigurationError | None = None
        """What the text amounts to. Reviews would have to wait if it were read anew again and again."""
        self._poll_s = poll_s
        self._on_change = on_change

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._poll_s)

    async def look(self) -> None:
        """Read the file, and put its configuration into force if it is another one that can be used."""
        try:
            found = await asyncio.to_thread(self._read)
        except ConfigurationError as error:
            if str(error) != self.problem:
                log.error("preflight.configuration-unusable", reason=str(error), keeps_last=self.in_force is not None)
            self.problem = str(error)
            CONFIGURATION_UNUSABLE.set(1)
            return
        self.problem = None
        CONFIGURATION_UNUSABLE.set(0)
        if found != self.in_force:
            self.in_force = found
            names = [check.name for check in found.configuration.checks]
            log.info("preflight.configured", checks=names, namespaces=found.configuration.namespaces)
            self._on_change()

    def _read(self) -> InForce:
        text = _bytes(self._path, "the configuration")
        if text != self._text:
            self._text, self._understood = text, _understood(text, self._path.name)
        if isinstance(self._understood, PreflightConfiguration):
            return _with_authority(self._understood)
        assert self._understood is not None, "the text was read"
        raise self._understood


def _understood(text: bytes, file: str) -> PreflightConfiguration | ConfigurationError:
    if not text.strip():
        return ConfigurationError(f"{file} is empty. Write a configuration into it; `enabled: false` turns checks off.")
    try:
        return read_configuration(text, file)
    except ConfigurationError as error:
        return error


def _with_authority(configuration: PreflightConfiguration) -> InForce:
    named = configuration.connector.authority_file
    if not named:
        return InForce(configuration)
    authority = _bytes(Path(named), "connector.authorityFile")
    if len(authority) > AUTHORITY_BYTES_MAX:
        raise ConfigurationError(f"{named} has {len(authority):,} bytes, and may have {AUTHORITY_BYTES_MAX:,}.")
    try:
        return InForce(configuration, authority.decode("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{named} is no certificate as PEM. Name the file with the authority.") from error


def _bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"Cannot read {what}, {path}: {error.strerror}. Mount it there.") from error
