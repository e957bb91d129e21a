"""The page of `config diff`: the files and units that differ, as `diff -u` shows them, and the nodes in their order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuledger.cli.errors import visible
from gpuledger.cli.render import Column, Console, quiet_pipe
from gpuledger.cli.render.page import Page

Document = Mapping[str, Any]

NODES_SHOWN: Final = 50


def _pods(pods: object) -> str:
    assert isinstance(pods, list)
    return ", ".join(pods) or "-"


def _drain(value: object) -> str:
    return "yes" if value else "no"


NODES: Final = (
    Column("#", "place"),
    Column("Round", "round"),
    Column("Node", "node"),
    Column("Zone", "zone"),
    Column("Current", "current"),
    Column("Drain", "drain", format=_drain),
    Column("Reboot", "reboot", format=_drain),
    Column("Devices held", "devices"),
    Column("By", "pods", format=_pods),
)


def diff_lines(document: Document) -> Iterator[str]:
    """What differs, line by line."""
    for one in document["files"]:
        yield f"file {one['path']} {_words(one)}"
        yield from _split(one["diff"])
    for one in document["units"]:
        yield f"unit {one['name']} {_words(one)}"
    if document["reboot"]:
        yield f"reboot {document['reboot']}"


def _words(one: Mapping[str, Any]) -> str:
    attributes = f" ({', '.join(one['attributes'])})" if one["attributes"] else ""
    return f"{one['change']}{attributes}"


def _split(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield from line.split("\n")


def nodes_page(document: Document) -> Page:
    """Which nodes would change, and how."""
    page, nodes = Page(), document["nodes"]
    page.fields({"Pool": document["pool"], "Was": document["was"], "Would be": document["would"]})
    if nodes:
        more = f", the first {NODES_SHOWN} of {len(nodes)}" if len(nodes) > NODES_SHOWN else ""
        order = "idle ones first, then by zone and age" if document["prefersIdle"] else "by zone and age"
        title = f"Nodes, {document['atOnce']} at a time, {order}{more}"
        page.table(title, nodes[:NODES_SHOWN], NODES)
    for note in document["notes"]:
        page.line("Note", note)
    page.line("Answer", document["answer"])
    return page


def show_diff(document: Document, console: Console | None = None) -> None:
    """Write what differs, with colours on a terminal, and the page of the nodes."""
    console = console or Console.standard()
    lines = [visible(line) for line in diff_lines(document)]
    with quiet_pipe(console.out):
        console.out.writelines(f"{_painted(line) if console.colour else line}\n" for line in lines)
        if lines:
            console.out.write("\n")
    nodes_page(document).show(console)


def _painted(line: str) -> str:
    return f"{_COLOURS[line[:1]]}{line}{_END}" if line[:1] in _COLOURS else line


_END: Final = "\x1b[0m"
_COLOURS: Final = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
