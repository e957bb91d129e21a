"""An object store: a folder, or a bucket of any server that speaks S3. Objects are whole or absent, never half.

Keys are relative paths. Whoever puts an object under a key that exists replaces it, for readers at one moment. The
library for S3 is imported only where a bucket is named.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from obstore.store import S3Store

OBJECT_BYTES_MAX: Final = 256 << 20
"""How large an object may be: it is held in memory while it is written or read."""

KEY_LENGTH_MAX: Final = 512

_KEY = re.compile(r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*(/[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*)*")
"""Parts of a key begin with no dot: those of unfinished files do."""

_UNFINISHED: Final = ".unfinished-"
T = TypeVar("T")


class ObjectsError(Exception):
    """The object store cannot be used; the message says where and what to do."""


class ObjectsUrlError(ObjectsError):
    """The URL names no object store that gpuledger can use."""


class ObjectsUnavailableError(ObjectsError):
    """The store does not answer, or refuses us."""


class ObjectMissingError(ObjectsError):
    """There is no such object."""


class ObjectTooLargeError(ObjectsError):
    """An object is larger than `OBJECT_BYTES_MAX`."""


@dataclass(frozen=True, slots=True)
class ObjectsSettings:
    """How long one request to a server may take, and how often and how long a failed one is repeated."""

    connect_timeout_s: float = 5.0
    request_timeout_s: float = 60.0
    retries_max: int = 5
    retries_first_s: float = 0.2
    retries_max_s: float = 5.0
    retrying_max_s: float = 60.0


class StoredObject(NamedTuple):
    """An object as a list of them shows it; `size` in bytes."""

    key: str
    size: int
    modified_at: datetime


class Objects(Protocol):
    """An object store. Every call raises `ObjectsUnavailableError` where the store does not answer or refuses."""

    @property
    def url(self) -> str:
        """Where it is, for messages."""

    async def put(self, key: str, data: bytes) -> None:
        """Write an object, or replace it.

        Raises:
            ObjectTooLargeError: it has more than `OBJECT_BYTES_MAX`.
        """

    async def get(self, key: str) -> bytes:
        """The whole object.

        Raises:
            ObjectMissingError: there is none.
            ObjectTooLargeError: it has more than `OBJECT_BYTES_MAX`.
        """

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""

    def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """The objects below a prefix, which is empty or whole parts of a key; in no order that counts."""

    async def delete(self, key: str) -> None:
        """Delete an object; does nothing where there is none."""


def open_objects(url: str, settings: ObjectsSettings | None = None) -> Objects:
    """The object store of a URL: `file:/folder`, a folder's path, or `s3://bucket/prefix`.

    A bucket's server, region and login come from the variables that all clients of S3 read: AWS_ENDPOINT_URL,
    AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or a role of the pod.

    Raises:
        ObjectsUrlError: it is neither.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return BucketObjects(url, settings or ObjectsSettings())
    if parts.scheme == "file" and not parts.netloc and parts.path:
        return FolderObjects(Path(unquote(parts.path)))
    if not parts.scheme and url:
        return FolderObjects(Path(url))
    raise ObjectsUrlError(f"{url!r} names no object store; give file:/folder or s3://bucket/prefix.")


class FolderObjects:
    """Objects as files of a folder, which the first put makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()

    @property
    def url(self) -> str:
        """Where it is."""
        return self.folder.as_uri()

    def path_of(self, key: str) -> Path:
        """The file that has an object, for whoever reads it in place."""
        return self.folder / _checked(key)

    async def put(self, key: str, data: bytes) -> None:
        """Write an object; it is on the disk when this returns."""
        _check_size(self.url, key, len(data))
        await asyncio.to_thread(self._on_disk, _write, self.path_of(key), data)

    async def get(self, key: str) -> bytes:
        """The whole object."""
        return await asyncio.to_thread(self._on_disk, self._read, key)

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return await asyncio.to_thread(self._on_disk, self.path_of(key).is_file)

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """The objects below a prefix."""
        top = self.path_of(prefix) if prefix else self.folder
        for one in await asyncio.to_thread(self._on_disk, lambda: list(self._files(top))):
            yield one

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await asyncio.to_thread(self._on_disk, self.path_of(key).unlink, missing_ok=True)

    def _read(self, key: str) -> bytes:
        try:
            with self.path_of(key).open("rb") as file:
                _check_size(self.url, key, os.fstat(file.fileno()).st_size)
                return file.read()
        except FileNotFoundError as error:
            raise _missing(self.url, key) from error

    def _files(self, top: Path) -> Iterator[StoredObject]:
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder, name)
                if name.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # deleted meanwhile
                    stat = path.stat()
                    modified_at = datetime.fromtimestamp(stat.st_mtime, UTC)
                    yield StoredObject(path.relative_to(self.folder).as_posix(), stat.st_size, modified_at)

    def _on_disk(self, call: Callable[..., T], *given: object, **named: object) -> T:
        try:
            return call(*given, **named)
        except OSError as error:
            raise ObjectsUnavailableError(
                f"The object store {self.url} cannot be used ({error}); see to its disk and rights."
            ) from error


class BucketObjects:
    """Objects in a bucket, below a prefix."""

    def __init__(self, url: str, settings: ObjectsSettings) -> None:
        self._url = url.rstrip("/")
        self._store = _bucket(url, settings)
        self._timeout_s = settings.retrying_max_s + settings.request_timeout_s

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    async def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        _check_size(self._url, key, len(data))
        await self._answer(key, self._store.put_async(_checked(key), data))

    async def get(self, key: str) -> bytes:
        """The whole object."""
        found = await self._answer(key, self._store.get_async(_checked(key)))
        _check_size(self._url, key, found.meta["size"])
        return (await self._answer(key, found.bytes_async())).to_bytes()

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            await self._answer(key, self._store.head_async(_checked(key)))
        except ObjectMissingError:
            return False
        return True

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """The objects below a prefix."""
        pages = aiter(self._store.list(_checked(prefix) if prefix else None))
        while (page := await self._answer(prefix, _next_page(pages))) is not None:
            for one in page:
                yield StoredObject(one["path"], one["size"], one["last_modified"])

    async def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(ObjectMissingError):
            await self._answer(key, self._store.delete_async(_checked(key)))

    async def _answer(self, key: str, asked: Awaitable[T]) -> T:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - only where a bucket is named

        try:
            async with asyncio.timeout(self._timeout_s):
                return await asked
        except FileNotFoundError as error:
            raise _missing(self._url, key) from error
        except (BaseError, TimeoutError, OSError) as error:
            reason = str(error).partition("\n")[0] or f"no answer in {self._timeout_s:.0f} s"
            raise ObjectsUnavailableError(
                f"The object store {self._url} cannot be used ({reason}); see to its server and login (AWS_...)."
            ) from error


def _bucket(url: str, settings: ObjectsSettings) -> "S3Store":
    """The library's store; it reads the AWS variables of the environment itself."""
    from obstore.store import S3Store  # noqa: PLC0415 - only where a bucket is named

    parts = urlsplit(url)
    if not parts.netloc or parts.query or parts.username:
        raise ObjectsUrlError(f"{url!r} names no bucket; give s3://bucket/prefix, and the login by AWS variables.")
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        disable_bulk_delete=True,  # not every server has it
        client_options={
            "allow_http": True,
            "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
            "timeout": timedelta(seconds=settings.request_timeout_s),
        },
        retry_config={
            "max_retries": settings.retries_max,
            "backoff": {
                "init_backoff": timedelta(seconds=settings.retries_first_s),
                "max_backoff": timedelta(seconds=settings.retries_max_s),
                "base": 2,
            },
            "retry_timeout": timedelta(seconds=settings.retrying_max_s),
        },
    )


async def _next_page(pages: AsyncIterator[Any]) -> Any:  # noqa: ANN401 - a sequence of the library's dictionaries
    return await anext(pages, None)


def _write(path: Path, data: bytes) -> None:
    """Write a file beside its place, have the disk keep it, and move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=_UNFINISHED, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _keep_names(path.parent)


def _keep_names(folder: Path) -> None:
    """Have the disk keep the names of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(key: str) -> str:
    if len(key) > KEY_LENGTH_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of an object: parts of letters, digits and ._=+@- between slashes.")
    return key


def _check_size(url: str, key: str, size: int) -> None:
    if size > OBJECT_BYTES_MAX:
        raise ObjectTooLargeError(f"{key} of {url} has {size} bytes; at most {OBJECT_BYTES_MAX} are written or read.")


def _missing(url: str, key: str) -> ObjectMissingError:
    return ObjectMissingError(f"The object store {url} has no {key}.")
