"""Which bucket of a table's live rows a row belongs to. Pure; the same in every process and build."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

from gpuledger.domain.table import Key

ROWS_PER_BUCKET: Final = 4_096
"""About how many rows a full bucket has: one changed row has as many written again."""

BUCKETS_MAX: Final = 1_024

_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def bucket_of(key: Key, buckets: int) -> int:
    """The bucket of a key, of so many, which are a power of two."""
    return crc32(repr(_plain(key)).encode()) & (buckets - 1)


def bucket_count(rows: int, before: int) -> int:
    """How many buckets so many rows take; it was `before`, and stays while buckets are neither too full nor empty."""
    count = max(1, before)
    while rows > 2 * ROWS_PER_BUCKET * count and count < BUCKETS_MAX:
        count *= 2
    while rows * 4 < ROWS_PER_BUCKET * count and count > 1:
        count //= 2
    return count


def grouped(keys: Iterable[Key], buckets: int) -> dict[int, list[Key]]:
    """Keys by their buckets."""
    found: dict[int, list[Key]] = {}
    for key in keys:
        found.setdefault(bucket_of(key, buckets), []).append(key)
    return found


def sort_key(key: Key) -> str:
    """Orders the keys of a bucket, so that the same rows are the same bytes."""
    return repr(_plain(key))


def _plain(key: Key) -> object:
    """A key whose text is the same for equal keys: a time is one, whatever its zone."""
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    if isinstance(key, datetime):
        return (key - _UNIX) // _MICROSECOND
    return str(key) if isinstance(key, str) else key
