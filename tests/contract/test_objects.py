"""An object store is the same store, be it a folder or a bucket."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.runtime import objects as module
from gpuledger.runtime.objects import (
    FolderObjects,
    ObjectMissingError,
    Objects,
    ObjectsError,
    ObjectsSettings,
    ObjectsUnavailableError,
    ObjectsUrlError,
    ObjectTooLargeError,
    open_objects,
)
from gpuledger.runtime.settings import read_settings
from support.objects import BUCKET, bucket_server, failing_server, use_server

IMPATIENT = ObjectsSettings(retries_max=2, retries_first_s=0.01, retries_max_s=0.01, retrying_max_s=5.0)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Path]]:
    """One server for all tests, each with a prefix of its own; and the folder of its bucket."""
    with bucket_server() as found:
        yield found


@pytest.fixture(params=["folder", "bucket"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Objects:
    if request.param == "folder":
        return open_objects((tmp_path / "the folder").as_uri())
    use_server(monkeypatch, server[0])
    return open_objects(f"s3://{BUCKET}/{tmp_path.name}")


async def _keys(found: AsyncIterator[module.StoredObject]) -> dict[str, int]:
    return {one.key: one.size async for one in found}


async def test_it_returns_what_was_put_last(store: Objects) -> None:
    await store.put("a/b-1.parquet", b"one")
    await store.put("a/b-1.parquet", b"three")
    assert await store.get("a/b-1.parquet") == b"three"
    assert await store.exists("a/b-1.parquet")
    assert not await store.exists("a/b")


async def test_an_empty_object_is_an_object(store: Objects) -> None:
    await store.put("a", b"")
    assert await store.get("a") == b""


async def test_it_lists_below_whole_parts(store: Objects) -> None:
    for key in ("a/1", "a/2/3", "ab/4"):
        await store.put(key, key.encode())
    assert await _keys(store.list()) == {"a/1": 3, "a/2/3": 5, "ab/4": 4}
    assert await _keys(store.list("a")) == {"a/1": 3, "a/2/3": 5}
    assert await _keys(store.list("c")) == {}


async def test_a_list_of_a_bucket_has_more_than_one_page(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = server
    use_server(monkeypatch, url)
    (folder / tmp_path.name / "many").mkdir(parents=True)
    for number in range(1_100):
        (folder / tmp_path.name / "many" / str(number)).touch()
    found = await _keys(open_objects(f"s3://{BUCKET}/{tmp_path.name}").list("many"))
    assert len(found) == 1_100
    assert "many/7" in found


async def test_it_deletes(store: Objects) -> None:
    await store.put("a/1", b"1")
    await store.delete("a/1")
    await store.delete("a/1")
    assert await _keys(store.list()) == {}
    with pytest.raises(ObjectMissingError, match=r"has no a/1\.$"):
        await store.get("a/1")


async def test_too_large_an_object_is_neither_written_nor_read(store: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("large", b"12345")
    monkeypatch.setattr(module, "OBJECT_BYTES_MAX", 4)
    with pytest.raises(ObjectTooLargeError, match="has 5 bytes; at most 4"):
        await store.put("larger", b"12345")
    with pytest.raises(ObjectTooLargeError, match="has 5 bytes; at most 4"):
        await store.get("large")
    assert not await store.exists("larger")


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "a\n", "x" * 513])
async def test_a_key_stays_below_the_store(key: str, store: Objects) -> None:
    with pytest.raises(ValueError, match="is no key of an object"):
        await store.put(key, b"")


@pytest.mark.parametrize("url", ["", "gs://bucket", "file://host/folder", "file:", "s3:", "s3://", "s3://b?x=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ObjectsUrlError, match=r"give (file:/folder or )?s3://bucket/prefix"):
        open_objects(url)


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    found = open_objects(str(tmp_path / "with space"))
    assert isinstance(found, FolderObjects)
    again = open_objects(found.url)
    assert isinstance(again, FolderObjects)
    assert again.folder == tmp_path / "with space"
    assert again.path_of("a/b") == tmp_path / "with space" / "a" / "b"


async def test_an_unfinished_file_is_no_object(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path)
    await store.put("a/1", b"1")
    (tmp_path / "a" / ".unfinished-1").write_bytes(b"half")
    assert await _keys(store.list()) == {"a/1": 1}


async def test_a_write_that_fails_leaves_the_object_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderObjects(tmp_path)
    await store.put("a", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ObjectsUnavailableError, match=r"No space left on device\); see to its disk and rights"):
        await store.put("a", b"new")
    assert await store.get("a") == b"old"
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208 - beside an event loop that has nothing else to do


async def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FolderObjects(tmp_path / "file")
    with pytest.raises(ObjectsUnavailableError, match="cannot be used"):
        await store.put("a", b"")


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_a_server_that_refuses_is_an_error_after_some_retries(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing_server(status) as (url, requests):
        use_server(monkeypatch, url)
        store = open_objects("s3://ledger", IMPATIENT)
        with pytest.raises(ObjectsUnavailableError, match="s3://ledger cannot be used"):
            await store.put("a", b"")
        assert len(requests) == (1 if status == 403 else 1 + IMPATIENT.retries_max)
        for call in (store.get("a"), store.exists("a"), store.delete("a"), _keys(store.list())):
            with pytest.raises(ObjectsUnavailableError):
                await call


async def test_no_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_server(500) as (url, _):
        pass
    use_server(monkeypatch, url)
    with pytest.raises(ObjectsError, match=r"see to its server and login \(AWS_"):
        await open_objects("s3://ledger", IMPATIENT).get("a")


@settings(max_examples=20)
@given(st.dictionaries(st.from_regex(r"[a-c]{1,2}/[a-c]{1,2}", fullmatch=True), st.binary(max_size=20)))
async def test_a_folder_is_a_dictionary(tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes]) -> None:
    store = FolderObjects(tmp_path_factory.mktemp("objects"))
    for key, data in content.items():
        await store.put(key, data)
    assert {key: await store.get(key) for key in await _keys(store.list())} == content


def test_embedded_servers_have_one_and_others_name_it(tmp_path: Path) -> None:
    named = {"NATS_URL": "nats://127.0.0.1:4222", "DATABASE_URL": "postgresql:///x"}
    at = {"GPULEDGER_OBJECTS_URL": "s3://bucket/one"}
    assert read_settings({}, tmp_path).objects_url == (tmp_path / "objects").as_uri()
    assert read_settings(named, tmp_path).objects_url is None
    assert read_settings(named | at, tmp_path).objects_url == "s3://bucket/one"
    assert urlsplit(read_settings(at, tmp_path).objects_url or "").scheme == "s3"


def test_the_library_is_imported_only_for_a_bucket() -> None:
    script = "import sys, gpuledger.runtime.objects; print('obstore' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
