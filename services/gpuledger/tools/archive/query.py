"""Asks an archive in SQL, in place: DuckDB reads the Parquet files that the manifests name, and writes nothing.

`events` has every event of the months that are kept; the tables of the projections and the reports stand under their
names, as they were when they were archived. DuckDB may read nothing but these files, loads no extensions, and takes
no more memory and room than it is given. A bucket is read through Arrow, by ranges, because DuckDB's own client of S3
would have to be downloaded.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import duckdb
import orjson
import pyarrow as pa
import pyarrow.dataset as pads
from duckdb import DuckDBPyConnection, StatementType
from pyarrow import fs

from gpuledger.db.errors import QueryError
from gpuledger.runtime.objects import FolderObjects, ObjectsSettings
from gpuledger.tools.archive.bounds import BOUNDS, ArchiveBounds
from gpuledger.tools.archive.events_file import schema as events_schema
from gpuledger.tools.archive.manifest import Manifest, TableEntry, key_of
from gpuledger.tools.archive.store import Archive
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.sql import Result, distinct

SEARCH_PATH: Final = "main,report,gpuledger_live"

_EVENTS: Final = """
    CREATE VIEW events AS
    SELECT * EXCLUDE (raw), try(decode(raw)::JSON -> 'data') AS data, raw FROM {files}
"""
_JSON: Final = "JSON"


async def ask_archive(archive: Archive, statement: str, bounds: ArchiveBounds = BOUNDS) -> Result:
    """The result of one query on an archive.

    Raises:
        QueryError: DuckDB refuses it, it takes too long, or more memory or room than it may.
        ToolError: there is no archive, or it is damaged.
    """
    manifests = await archive.manifests()
    with TemporaryDirectory(prefix="gpuledger-archive-") as scratch, duckdb.connect(":memory:") as connection:
        query = _Query(archive, manifests, connection)
        work = asyncio.ensure_future(asyncio.to_thread(query.result, statement, bounds, scratch))
        try:
            async with asyncio.timeout(bounds.timeout_s):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise QueryError(
                f"The query took longer than {bounds.timeout_s} s and was stopped. Narrow it, such as by month."
            ) from error
        finally:
            if not work.done():
                connection.interrupt()
                await asyncio.wait([work])
                work.exception()


class _Query:
    """One query, on a connection of its own."""

    def __init__(self, archive: Archive, manifests: Mapping[int, Manifest], connection: DuckDBPyConnection) -> None:
        self._archive = archive
        self._manifests = manifests
        self._connection = connection

    def result(self, statement: str, bounds: ArchiveBounds, scratch: str) -> Result:
        """Open the archive, and run the query; blocks."""
        with _refused(bounds):
            (parsed,) = self._parsed(statement)
            self._limit(bounds, scratch)
            self._open()
            self._connection.execute("SET lock_configuration = true")
            self._connection.execute(parsed)
            described = self._connection.description or ()
            columns = distinct([str(name) for name, *_ in described])
            kinds = [str(kind) for _, kind, *_ in described]
            found = self._connection.fetchall()
        rows: list[RowDict] = [
            {name: _shown(value, kind) for name, kind, value in zip(columns, kinds, row, strict=True)} for row in found
        ]
        return Result(columns, rows)

    def _parsed(self, statement: str) -> Sequence[Any]:
        parsed = self._connection.extract_statements(statement)
        if len(parsed) != 1 or parsed[0].type != StatementType.SELECT:
            raise QueryError("An archive is asked with one query, such as SELECT * FROM events LIMIT 5.")
        return parsed

    def _limit(self, bounds: ArchiveBounds, scratch: str) -> None:
        settings = {
            "memory_limit": f"'{bounds.memory_mib_max}MiB'",
            "temp_directory": _text(scratch),
            "max_temp_directory_size": f"'{bounds.scratch_mib_max}MiB'",
            "TimeZone": "'UTC'",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "preserve_insertion_order": "false",
        }
        objects = self._archive.objects
        if isinstance(objects, FolderObjects):
            settings["allowed_directories"] = f"[{_text(f'{objects.folder}/')}]"
        for name, value in (settings | {"enable_external_access": "false"}).items():
            self._connection.execute(f"SET {name} = {value}")

    def _open(self) -> None:
        keys = [key_of(number, one.path) for number, manifest in self._manifests.items() for one in manifest.kept]
        self._connection.execute(_EVENTS.format(files=self._files("archived_events", keys, events_schema())))
        parts = defaultdict[str, list[tuple[str, TableEntry]]](list)
        for number, manifest in self._manifests.items():
            if manifest.tables:
                parts.clear()
            for one in manifest.tables:
                parts[one.table].append((key_of(number, one.path), one))
        for schema in sorted({name.partition(".")[0] for name in parts}):
            self._connection.execute(f"CREATE SCHEMA {schema}")
        for name, found in parts.items():
            files = self._files(f"archived_{name.replace('.', '_')}", [key for key, _ in found])
            json = "".join(f', "{column}"::JSON AS "{column}"' for column in found[0][1].json_columns)
            replace = f" REPLACE ({json.removeprefix(', ')})" if json else ""
            self._connection.execute(f"CREATE VIEW {name} AS SELECT *{replace} FROM {files}")  # noqa: S608 - as checked
        if parts:
            self._connection.execute(f"SET search_path = '{SEARCH_PATH}'")

    def _files(self, name: str, keys: Sequence[str], schema: Any = None) -> str:  # noqa: ANN401 - Arrow's
        """What stands for the rows of these files in a query; without files it has the schema's columns."""
        if not keys:
            columns = pads.dataset(schema.append(pa.field("month", pa.string())).empty_table())
            self._connection.register(name, columns)
            return name
        objects = self._archive.objects
        if isinstance(objects, FolderObjects):
            paths = ", ".join(_text(str(objects.path_of(key))) for key in keys)
            hive = ", hive_partitioning = true, hive_types = {'month': VARCHAR}" if schema else ""
            return f"read_parquet([{paths}]{hive})"
        bucket, top = _bucket(self._archive.url)
        by_month = pads.partitioning(pa.schema([("month", pa.string())]), flavor="hive") if schema else None
        there = [f"{top}/{key}" for key in keys]
        self._connection.register(name, pads.dataset(there, filesystem=bucket, format="parquet", partitioning=by_month))
        return name


def _bucket(url: str) -> tuple[Any, str]:
    """Arrow's client of S3, with the variables that the object store reads, and the path of the archive there."""
    parts, bounds = urlsplit(url), ObjectsSettings()
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    client = fs.S3FileSystem(
        endpoint_override=endpoint.netloc or None,
        scheme=endpoint.scheme or "https",
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None,
        connect_timeout=bounds.connect_timeout_s,
        request_timeout=bounds.request_timeout_s,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=bounds.retries_max),
    )
    return client, f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


@contextmanager
def _refused(bounds: ArchiveBounds) -> Iterator[None]:
    """Word what DuckDB says of a query that it does not run to its end."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise QueryError(
            f"The query needs more than {bounds.memory_mib_max:,} MiB of memory and {bounds.scratch_mib_max:,} MiB on "
            "the disk. Narrow it, or raise --memory-max or --scratch-max."
        ) from error
    except duckdb.InterruptException as error:
        raise QueryError("The query was interrupted.") from error
    except duckdb.IOException as error:
        raise ToolError(
            f"The archive cannot be read: {error}", "Prove it with `gpuledger log archive verify`"
        ) from error
    except duckdb.CatalogException as error:
        raise QueryError(
            f"{_reason(error)} SHOW ALL TABLES lists what the archive has; `gpuledger log archive write` puts the rows "
            "of tables and reports beside the events."
        ) from error
    except duckdb.Error as error:
        raise QueryError(_reason(error)) from error


def _reason(error: duckdb.Error) -> str:
    return f"DuckDB refuses the query: {' '.join(str(error).split('LINE ')[0].split())}"


def _shown(value: object, kind: str) -> object:
    """The value as other queries show it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if kind == _JSON and isinstance(value, str):
        return orjson.loads(value)
    return value


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
