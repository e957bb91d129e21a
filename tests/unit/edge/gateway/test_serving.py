"""The files of the gateway's certificate: what cannot be used is refused with a hint."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gpuledger.edge.gateway.serving import TlsMaterial
from gpuledger.edge.kube.pki import new_authority
from gpuledger.runtime.gateway_settings import TlsFiles
from gpuledger.runtime.settings import SettingsError


def test_a_key_with_a_password_is_refused_with_a_hint(tmp_path: Path) -> None:
    made = new_authority("gateway", datetime.now(UTC), timedelta(hours=1))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        made.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(SettingsError, match="the key without a password"):
        TlsMaterial(TlsFiles(certificate, key))
