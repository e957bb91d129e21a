"""A server that speaks S3, on loopback, with one empty bucket; and one that answers nothing but errors."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from localbucket import S3Handler

from support.servers import short_directory

BUCKET = "ledger"
LOGIN = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def bucket_server() -> Iterator[tuple[str, Path]]:
    """The server's URL, and the folder that its bucket is."""
    with short_directory() as folder:
        (folder / BUCKET).mkdir()
        handler = type(
            "Handler",
            (S3Handler,),
            {"data_root": folder, "log_message": lambda *_: None, "disable_nagle_algorithm": True},
        )
        with _serving(handler) as url:
            yield url, folder / BUCKET


@contextmanager
def failing_server(status: int) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server that answers every request with this status, and the requests that it had."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            requests.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_HEAD = do_PUT = do_DELETE = answer  # noqa: N815 - names of the library

    with _serving(Handler) as url:
        yield url, requests


def use_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Have clients of S3 use this server."""
    for name, value in (LOGIN | {"AWS_ENDPOINT_URL": url}).items():
        monkeypatch.setenv(name, value)


@contextmanager
def _serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
