"""The extender's certificate, from files that somebody renews."""

import asyncio
import ssl
from pathlib import Path

import pytest

from gpuledger.edge.extender.certificate import ExtenderCertificate
from gpuledger.edge.webhooks.certificates.authority import Pair, authority_at, serving_at
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.extender_settings import ExtenderTls
from gpuledger.runtime.settings import SettingsError
from support.projections import stop
from support.waiting import eventually


def written(folder: Path, *, client_ca: bool = False) -> ExtenderTls:
    authority = authority_at(None, system_clock())
    write(folder, serving_at(None, authority, ("127.0.0.1",), system_clock()))
    (folder / "ca.crt").write_bytes(authority.certificate)
    return ExtenderTls(folder / "tls.crt", folder / "tls.key", folder / "ca.crt" if client_ca else None)


def write(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def test_clients_show_a_certificate_where_there_is_an_authority(tmp_path: Path) -> None:
    assert ExtenderCertificate(written(tmp_path)).context.verify_mode == ssl.CERT_NONE
    assert ExtenderCertificate(written(tmp_path, client_ca=True)).context.verify_mode == ssl.CERT_REQUIRED


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = written(tmp_path)
    (tmp_path / "tls.key").write_text("no key")
    with pytest.raises(SettingsError, match=r"tls\.key"):
        ExtenderCertificate(files)
    (tmp_path / "tls.key").unlink()
    with pytest.raises(SettingsError, match="cannot be used"):
        ExtenderCertificate(files)


async def test_renewed_files_are_read_and_broken_ones_left(tmp_path: Path) -> None:
    files = written(tmp_path)
    found = ExtenderCertificate(files, check_interval_s=0.01)
    following = asyncio.create_task(found.run())
    try:
        before = found._loaded
        (tmp_path / "tls.crt").write_text("broken")
        await asyncio.sleep(0)
        written(tmp_path)

        async def is_renewed() -> bool:
            return found._loaded != before

        await eventually(is_renewed)
    finally:
        await stop(following)
