"""Help texts flow, whichever command they are of."""

from typer.main import get_command

from gpuledger.cli.help_text import flowing
from gpuledger.cli.main import app


def test_a_paragraph_flows_unless_it_is_verbatim() -> None:
    assert flowing("One\ntwo.\n\n  Three\n  four.\n\n\b\na\n  b") == "One two.\n\nThree four.\n\n\b\na\n  b"


def test_the_help_of_every_command_flows() -> None:
    found = dict[str, str]()
    waiting = [("gpuledger", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {one}", inner) for one, inner in getattr(command, "commands", {}).items()]
        found[name] = command.help or ""
    assert {"gpuledger get", "gpuledger why pod", "gpuledger log tail"} <= found.keys()
    assert [name for name, text in found.items() if text != flowing(text)] == []
