"""The certificate that the extender shows, from files that somebody else renews; they are read again now and then.

Files that cannot be used leave the last ones in use, which is logged.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

from gpuledger.runtime.extender_settings import ExtenderTls
from gpuledger.runtime.settings import SettingsError

CHECK_INTERVAL_S: Final = 30.0

log = structlog.get_logger("gpuledger.extender")


class ExtenderCertificate:
    """The certificate: connections get the newest from `context`, and need one of the clients' authority, if any."""

    def __init__(self, files: ExtenderTls, *, check_interval_s: float = CHECK_INTERVAL_S) -> None:
        """Raises SettingsError where the files cannot be used."""
        self._files = files
        self._check_interval_s = check_interval_s
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = self._load()

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        while True:
            await asyncio.sleep(self._check_interval_s)
            try:
                if self._contents() != self._loaded:
                    self._loaded = self._load()
                    log.info("extender.certificate-renewed", file=str(self._files.certificate))
            except SettingsError as error:
                log.error("extender.certificate-unusable", reason=str(error))

    def _load(self) -> tuple[bytes, ...]:
        contents, files = self._contents(), self._files
        try:
            self.context.load_cert_chain(files.certificate, files.key)
            if files.client_ca is not None:
                self.context.load_verify_locations(files.client_ca)
                self.context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise _unusable(files, error) from error
        return contents

    def _contents(self) -> tuple[bytes, ...]:
        try:
            return tuple(one.read_bytes() for one in _paths(self._files))
        except OSError as error:
            raise _unusable(self._files, error) from error


def _paths(files: ExtenderTls) -> list[Path]:
    return [one for one in (files.certificate, files.key, files.client_ca) if one is not None]


def _unusable(files: ExtenderTls, error: Exception) -> SettingsError:
    named = ", ".join(map(str, _paths(files)))
    return SettingsError(f"The certificate of the extender ({named}) cannot be used: {error}. Put PEM files there.")
