"""The settings of the export: what they may be, and what is said of what they may not."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuledger.runtime.export_settings import EXPORT, ExportSettings, Selection, read_export_settings
from gpuledger.runtime.settings import SettingsError

URL = "https://events.example/gpuledger?key=secret"


def read(**given: Any) -> ExportSettings:
    found = read_export_settings({EXPORT: json.dumps({"url": URL} | given)})
    assert found is not None
    return found


def test_without_the_variable_nothing_is_exported() -> None:
    assert read_export_settings({}) is None
    assert read_export_settings({EXPORT: ""}) is None


def test_a_url_is_enough() -> None:
    assert read() == ExportSettings(URL)
    assert read().endpoint == "https://events.example"


def test_everything_can_be_set(tmp_path: Path) -> None:
    for name in ("token", "ca", "certificate", "key"):
        (tmp_path / name).write_text("x")
    files = {name: tmp_path / name for name in ("token", "ca", "certificate", "key")}
    found = read(
        select=[{"type": "node.health-reported", "where": {"fatal": True, "codes": ["79", 48]}}, {"type": "pool.*"}],
        begin="2026-03-01T00:00:00+01:00",
        on_refusal="stop",
        batch_events=100,
        health_shape="nvsentinel",
        metadata={"cluster": "east"},
        **{name: str(path) for name, path in files.items()},
    )
    select = (Selection("node.health-reported", {"fatal": (True,), "codes": ("79", 48)}), Selection("pool.*"))
    metadata = {"cluster": "east"}
    expected = ExportSettings(URL, select, "2026-03-01T00:00:00+01:00", "stop", 100, "nvsentinel", metadata, **files)
    assert found == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": ""}, "url has to be a URL"),
        ({"url": "ftp://a/b"}, "url has to be a URL"),
        ({"url": "https://user:word@a/b"}, "url must hold no login"),
        ({"urls": 1}, "'urls' is no field of it; its fields are url, select,"),
        ({"select": {"type": "node.*"}}, "select has to be a list"),
        ({"select": [{"type": "node.melted"}]}, "select[0].type is 'node.melted'; it is node.* or the like"),
        ({"select": [{"type": "node.*", "if": 1}]}, "select[0] has to be an object with type"),
        ({"select": [{"type": "node.*", "where": {"fatal": []}}]}, "select[0].where.fatal has to be a text"),
        ({"begin": "yesterday"}, "begin is 'yesterday'; it is head, start, a position"),
        ({"begin": "2026-03-01T00:00:00"}, "begin is '2026-03-01T00:00:00'"),
        ({"begin": 7}, "begin is 7"),
        ({"on_refusal": "drop"}, "on_refusal is 'drop'; it is record or stop"),
        ({"batch_events": 0}, "batch_events is 0; it is a number from 1 to 500"),
        ({"batch_events": True}, "batch_events is True"),
        ({"health_shape": "xml"}, "health_shape is 'xml'; it is gpuledger or nvsentinel"),
        ({"metadata": {"cluster": 7}}, "metadata has to be an object of texts"),
        ({"token": "/nowhere/token"}, "token names /nowhere/token, which is not a file"),
        ({"url": "http://events.example/", "token": __file__}, "a token needs https"),
        ({"url": "http://events.example/", "ca": __file__}, "ca and certificate need https"),
        ({"certificate": __file__}, "certificate and key belong together"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**given)
    assert str(caught.value).startswith(f"{EXPORT} cannot be used: {problem}")


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=EXPORT):
        read_export_settings({EXPORT: text})


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:80"])
def test_a_token_may_go_to_this_machine_without_tls(host: str) -> None:
    assert read(url=f"http://{host}/events", token=__file__).token == Path(__file__)
