"""Serves gRPC over TLS, with certificates that are read again from their files whenever a client connects.

Who replaces the files renews the certificate without a restart, and open connections go on. Files that cannot be used
leave the last ones in use, which is logged; the authority of clients is read with them.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import grpc
import grpc.aio
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.decide import CertificateNames
from gpuledger.healthreports.errors import UnauthenticatedError
from gpuledger.runtime.gateway_settings import TlsFiles
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.telemetry_http import ListenError, parse_address

PEM: Final = "x509_pem_cert"
"""What gRPC calls the certificate that a client has shown, and that it has verified."""

Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
"""The methods of a service, by name."""

log = structlog.get_logger("gpuledger.gateway")


class TlsMaterial:
    """The files as they were last usable."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._contents = self._read()
        self._trouble = ""

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What the next connection gets."""
        try:
            self._contents = self._read()
            self._trouble = ""
        except SettingsError as error:
            if str(error) != self._trouble:
                log.error("gateway.certificate-unusable", reason=str(error))
            self._trouble = str(error)
        certificate, key, authority = self._contents
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)

    def _read(self) -> tuple[bytes, bytes, bytes | None]:
        files = self._files
        try:
            certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
            authority = None if files.client_ca is None else files.client_ca.read_bytes()
            shown, signing = x509.load_pem_x509_certificates(certificate)[0], load_pem_private_key(key, None)
            if authority is not None:
                x509.load_pem_x509_certificates(authority)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SettingsError(
                f"The certificates {files.certificate}, {files.key} and {files.client_ca or 'no CA'} cannot be read: "
                f"{error}. Put PEM files there, the key without a password."
            ) from error
        if shown.public_key() != signing.public_key():
            raise SettingsError(f"The key in {files.key} is not that of the certificate in {files.certificate}.")
        return certificate, key, authority


@asynccontextmanager
async def serving(
    address: str,
    material: TlsMaterial,
    services: Mapping[str, Handlers],
    bounds: GatewayBounds,
    *,
    by_certificate: bool,
) -> AsyncIterator[int]:
    """Serve at an address for the length of the block; gives the port, which may have been 0.

    `services` has the methods of each service by its name.
    `by_certificate`: no client comes in without a certificate of the authority.

    Raises:
        ListenError: the address cannot be listened on.
    """
    server = grpc.aio.server(options=_options(bounds), maximum_concurrent_rpcs=bounds.requests_at_once_max)
    generic = (grpc.method_handlers_generic_handler(name, dict(handlers)) for name, handlers in services.items())
    server.add_generic_rpc_handlers(tuple(generic))
    credentials = grpc.dynamic_ssl_server_credentials(
        material.configuration(), material.configuration, require_client_authentication=by_certificate
    )
    host, port = parse_address(address)
    try:
        try:
            bound = server.add_secure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", credentials)
        except RuntimeError as error:
            raise ListenError(f"Cannot listen on {address}. Choose another address.") from error
        await server.start()
        yield bound
    finally:
        await server.stop(bounds.answer_timeout_s)


def _options(bounds: GatewayBounds) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", bounds.request_bytes_max),
        ("grpc.max_concurrent_streams", bounds.streams_max),
        ("grpc.server_handshake_timeout_ms", round(bounds.handshake_timeout_s * 1000)),
        ("grpc.max_connection_idle_ms", round(bounds.idle_s * 1000)),
        ("grpc.max_connection_age_ms", round(bounds.connection_life_s * 1000)),
    ]


def certificate_names(context: Mapping[str, Any], now: datetime) -> CertificateNames:
    """The names in the certificate of a call, which gRPC verified when the client connected.

    Raises:
        UnauthenticatedError: there is none, or it has expired since then.
    """
    shown = context.get(PEM) or ()
    if not shown:
        raise UnauthenticatedError("The connection has no client certificate. Show one when connecting.")
    certificate = x509.load_pem_x509_certificate(bytes(shown[0]))
    ends = certificate.not_valid_after_utc
    if now > ends:
        raise UnauthenticatedError(
            f"The client certificate has expired at {ends.isoformat()}. Renew it, and connect again."
        )
    names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        dns = tuple(extension.value.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        dns = ()
    return CertificateNames(names[0] if len(names) == 1 else "", tuple(str(one.value) for one in organizations), dns)
