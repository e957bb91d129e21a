"""The folders are the architecture: guards that no other tool gives."""

from support.paths import ROOT

SOURCE_ROOTS = ("events", "schemas", "services", "cli", "migrations")


def test_the_namespace_has_no_init_file() -> None:
    """One stray `gpuledger/__init__.py` hides every other root, while type checkers still pass."""
    assert [str(root) for root in SOURCE_ROOTS if (ROOT / root / "gpuledger" / "__init__.py").exists()] == []


def test_nothing_outside_the_namespace_is_shipped() -> None:
    for root in SOURCE_ROOTS:
        names = {path.name for path in (ROOT / root).iterdir() if path.name != "__pycache__"}
        assert names == {"gpuledger"}, root


def test_readme_names_exactly_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.split("## Set up", 1)[1].split("\n## ", 1)[0]
    assert [line.split("#")[0].strip() for line in section.splitlines() if line.startswith("make ")] == [
        "make demo",
        "make test",
    ]
