"""NATS servers with logins that a test writes, and certificates for their clients."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuledger.edge.kube.pki import Issued, certificate_pem, key_pem, new_authority, new_serving
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from gpuledger.runtime.settings import NatsIdentity
from support.servers import short_directory
from support.waiting import eventually

HANDSHAKE_MAX_S = 30
"""How long the server waits for a client's part of a TLS handshake; its own two seconds are short on a busy machine."""

RELOADED = "Reloaded server configuration"
NOT_RELOADED = "Failed to reload server configuration"


class WrittenServer(NatsServer):
    """A NATS server with a configuration that the test writes; it answers once its port does."""

    def __init__(self, directory: Path, logins: str) -> None:
        super().__init__(directory)
        self._logins = logins

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def reload(self, logins: str) -> None:
        """Have the server take other logins while it runs; it drops clients that it no longer lets in."""
        before, self._logins = self.log_path.read_text().count(RELOADED), logins
        failures = self.log_path.read_text().count(NOT_RELOADED)
        write_private(self.directory / "nats.conf", self._configuration_text(self.port))
        assert self.pid is not None
        os.kill(self.pid, signal.SIGHUP)

        async def done() -> bool:
            log = self.log_path.read_text()
            assert log.count(NOT_RELOADED) == failures, log[-500:]
            return log.count(RELOADED) > before

        await eventually(done)

    def _configuration_text(self, port: int) -> str:
        basics = {key: value for key, value in self._configuration(port).items() if key != "authorization"}
        return "\n".join((*(f"{key}: {json.dumps(value)}" for key, value in basics.items()), self._logins))

    def _probe(self) -> str | None:
        try:
            with socket.create_connection((HOST, self.port), 1.0) as connection:
                return None if connection.recv(4) == b"INFO" else "it does not greet"
        except OSError as error:
            return str(error)


@contextmanager
def written_server(logins: str) -> Iterator[WrittenServer]:
    with short_directory() as directory, WrittenServer(directory / "nats", logins) as server:
        yield server


class Certificates:
    """An authority, the server's certificate, and those of clients, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now, self._life = datetime.now(UTC), timedelta(hours=1)
        self._authority = new_authority("test", self._now, self._life)
        self.ca = self._write("ca.pem", certificate_pem(self._authority.certificate))
        self.server = self._files("server", new_serving("server", [HOST], self._authority, self._now, self._life))

    def tls_text(self, *, verify_and_map: bool) -> str:
        """TLS in the server's configuration, with clients' certificates as their logins or without them."""
        certificate, key = map(str, self.server)
        tls = {"cert_file": certificate, "key_file": key, "timeout": HANDSHAKE_MAX_S}
        if verify_and_map:
            tls |= {"ca_file": str(self.ca), "verify_and_map": True}
        return f"tls: {json.dumps(tls)}"

    def client(self, name: str) -> NatsIdentity:
        certificate, key = self._files(name, new_client(name, self._authority, self._now, self._life))
        return NatsIdentity(None, self.ca, certificate, key)

    def _files(self, name: str, issued: Issued) -> tuple[Path, Path]:
        certificate = self._write(f"{name}.pem", certificate_pem(issued.certificate))
        return certificate, self._write(f"{name}.key", key_pem(issued.key))

    def _write(self, name: str, text: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(text)
        return path


def new_client(name: str, signer: Issued, now: datetime, life: timedelta) -> Issued:
    """A client's certificate as an issuer for nodes gives it: the node's name is its DNS name."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agent")]))
        .issuer_name(signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - life)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    return Issued(certificate, key)
