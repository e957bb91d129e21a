"""Sends requests to one API server: credentials, TLS, time-outs, JSON, and the translation of every failure.

The official package finds the server and the credentials, and makes the TLS context; its own REST layer decodes into
model classes and retries on its own, so requests go through a session of ours. Nothing here knows a kind of object, and
nothing may retry: only the caller knows whether a request may be repeated.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from gpuledger.edge.kube.errors import KubeConfigError, KubeError, ResponseError, UnavailableError, error_of
from gpuledger.edge.kube.kubeconfig import TOKEN

if TYPE_CHECKING:
    import aiohttp
    from kubernetes.aio.client.configuration import Configuration

Object = dict[str, Any]
"""A Kubernetes object, as JSON reads it."""

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""An event of a watch; etcd keeps objects of 1.5 MiB."""

WHOLE_BODY_BYTES_MAX: Final = 1024 * 1024
"""A body up to this size is sent at once, a larger one piece by piece, so that its end does not keep others waiting."""

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Bounds of every request.

    The server ends a watch after `stream_timeout_s`. The client ends it where nothing, not even a bookmark, came for
    `stream_idle_timeout_s`: then the connection is dead.
    """

    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    stream_timeout_s: int = 300
    stream_idle_timeout_s: float = 90.0
    connections_max: int = 64


@dataclass(frozen=True, slots=True)
class KubeRequest:
    """One request. `what` describes it for errors."""

    what: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = JSON
    accept: str = JSON


class Transport:
    """Sends requests to one API server. Every method raises `KubeError`."""

    def __init__(self, configuration: "Configuration", settings: ClientSettings) -> None:
        self.settings = settings
        self.url = str(configuration.host).rstrip("/")
        self._configuration = configuration
        self._session = self._open_session()

    async def close(self) -> None:
        """Give the connections back."""
        await self._session.close()

    async def send(self, request: KubeRequest) -> Object:
        """Send a request; returns the answer's object."""
        with self._translating(request.what):
            async with await self._begun(await self._arguments(request)) as answer:
                body = await answer.read()
        if answer.status >= 400:
            raise self._refused(request.what, answer, body)
        return self._decoded(request.what, body)

    async def stream(self, request: KubeRequest, timeout_s: float) -> AsyncGenerator[list[Object]]:
        """The events of a watch, as they come, at least one at a time; the server should end it after `timeout_s`.

        Raises:
            GoneError: the server does not have the requested version, or says so in an `ERROR` event.
            UnavailableError: the stream broke off, or fell silent.
        """
        arguments = await self._arguments(request) | {"timeout": self._stream_timeout(timeout_s)}
        with self._translating(request.what):
            async with await self._begun(arguments) as answer:
                if answer.status >= 400:
                    raise self._refused(request.what, answer, await answer.read())
                lines = Lines()
                async for chunk in answer.content.iter_any():
                    if whole := lines.feed(chunk):
                        yield [self._event(request.what, line) for line in whole]
                lines.end()

    async def _begun(self, arguments: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        """The answer, as soon as its head is there.

        A response of aiohttp keeps the headers that it had when they were first read. Whoever prints one before it is
        answered, as debuggers do, leaves it without any, and it fails as its answer begins.
        """
        try:
            return await self._session.request(**arguments)
        except AttributeError as error:
            import aiohttp  # noqa: PLC0415 - the session has imported it

            raise aiohttp.ClientConnectionError(f"the connection was lost as the answer began ({error})") from error

    async def _arguments(self, request: KubeRequest) -> dict[str, Any]:
        configuration = self._configuration
        headers = {"Accept": request.accept}
        if token := await self._token(request.what):
            headers["Authorization"] = token
        arguments: dict[str, Any] = {"method": request.method, "url": self.url + request.path, "params": request.query}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            arguments["data"] = _sendable(orjson.dumps(request.body))
        if configuration.tls_server_name:
            arguments["server_hostname"] = configuration.tls_server_name
        return arguments | {"headers": headers, "proxy": configuration.proxy, "allow_redirects": False}

    async def _token(self, what: str) -> str | None:
        try:
            token = await self._configuration.get_api_key_with_prefix(TOKEN)
        except Exception as error:
            raise KubeConfigError(
                f"The credentials for {self.url} cannot be renewed, so the request to {what} was not sent: {error}."
            ) from error
        return token

    def _open_session(self) -> "aiohttp.ClientSession":
        import aiohttp  # noqa: PLC0415 - takes a fifth of a second, and most commands ask no API server

        settings = self.settings
        timeout = aiohttp.ClientTimeout(total=settings.request_timeout_s, sock_connect=settings.connect_timeout_s)
        context: ssl.SSLContext | bool = True
        if self.url.startswith("https"):
            from kubernetes.aio.client.rest import RESTClientObject  # noqa: PLC0415 - takes long

            try:
                context = RESTClientObject(self._configuration).ssl_context
            except OSError as error:
                hint = "Check the certificates that the kubeconfig names."
                raise KubeConfigError(f"No TLS to {self.url} is possible: {error}. {hint}") from error
        connector = aiohttp.TCPConnector(limit=settings.connections_max, ssl=context)
        return aiohttp.ClientSession(connector=connector, timeout=timeout)

    def _stream_timeout(self, timeout_s: float) -> "aiohttp.ClientTimeout":
        import aiohttp  # noqa: PLC0415 - the session has imported it

        settings = self.settings
        total_s = timeout_s + settings.request_timeout_s
        idle_s = settings.stream_idle_timeout_s
        return aiohttp.ClientTimeout(total=total_s, sock_connect=settings.connect_timeout_s, sock_read=idle_s)

    def _translating(self, what: str) -> "_Translation":
        return _Translation(what, self.url)

    def _refused(self, what: str, answer: "aiohttp.ClientResponse", body: bytes) -> KubeError:
        return error_of(what, self.url, answer.status, _status(body), _retry_after_s(answer.headers))

    def _decoded(self, what: str, body: bytes) -> Object:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._not_kubernetes(what, body) from error
        if not isinstance(value, dict):
            raise self._not_kubernetes(what, body)
        return value

    def _not_kubernetes(self, what: str, body: bytes) -> ResponseError:
        start = body[:80].decode(errors="replace")
        hint = "Check that the server of the kubeconfig is a Kubernetes API."
        return ResponseError(f"{self.url} answered {what} with no JSON object ({start!r}). {hint}")

    def _event(self, what: str, line: bytes) -> Object:
        event = self._decoded(what, line)
        if event.get("type") == "ERROR":
            raise error_of(what, self.url, 0, event.get("object") or {}, None)
        return event


class _Translation:
    """Turns what aiohttp raises into our errors, and lets everything else pass."""

    def __init__(self, what: str, url: str) -> None:
        self._what = what
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, KubeError):
            return
        import aiohttp  # noqa: PLC0415 - the session has imported it

        if isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
            self._unavailable(error)

    def _unavailable(self, error: Exception) -> NoReturn:
        why = str(error) or type(error).__name__
        hint = "Check that the server runs and can be reached."
        raise UnavailableError(f"{self._url} did not answer the request to {self._what}: {why}. {hint}") from error


class Lines:
    """Joins the chunks of a stream to lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole with this chunk, without empty ones.

        Raises:
            ResponseError: a line is longer than `LINE_BYTES_MAX`.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise ResponseError(f"An event of a watch is larger than {LINE_BYTES_MAX} bytes. Look for a huge object.")
        return [line for line in lines if line.strip()]

    def end(self) -> None:
        """The stream has ended.

        Raises:
            ClientPayloadError: in the middle of a line.
        """
        if self._rest.strip():
            import aiohttp  # noqa: PLC0415 - the session has imported it

            raise aiohttp.ClientPayloadError("the stream ended in the middle of an event")


def _status(body: bytes) -> Object:
    """The `Status` of a refusal; proxies, and some servers' errors, come as text."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = body.decode(errors="replace")
    return status if isinstance(status, dict) else {"message": str(status)}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds; the form with a date is not used by Kubernetes."""
    given = headers.get("Retry-After", "")
    return float(given) if given.isdigit() else None


def _sendable(body: bytes) -> bytes | BytesIO:
    return body if len(body) <= WHOLE_BODY_BYTES_MAX else BytesIO(body)
