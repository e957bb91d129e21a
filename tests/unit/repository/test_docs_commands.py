"""Every command that a page shows exists, with its options; and a test runs it, or a table says why none can."""

import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from gpuledger.cli.app import COMMANDS
from support.chart import needs_helm
from support.doc_checks import (
    chart_problem,
    gpuledger_problem,
    helm_problem,
    kubectl_problem,
    make_problem,
    pytest_problem,
)
from support.doc_pages import Command, blocks, commands, inline, programs, simple
from support.doc_stories import NOT_RUN, STORIES, commands_of, reason_not_to_run
from support.paths import ROOT

CHECKED = {"gpuledger", "kubectl", "helm", "make", "pytest"}
OTHERS = {
    *(
        "cat",
        "cd",
        "curl",
        "cut",
        "docker",
        "export",
        "grep",
        "head",
        "jq",
        "nsc",
        "openssl",
        "pg_dump",
        "pg_restore",
        "sed",
        "sleep",
    ),
    *("python", "setup-envtest"),
}
"""Programs whose arguments are not checked."""

NO_COMMANDS = {"gpuledger SERVICE HOST/PROCESS TIME"}
"""What begins with the program's name and is none: how a session is named."""

HIDDEN = {"admission", "uninstall"}
"""Commands that the chart runs."""

PRESETS = "docs/presets.md"
PARALLEL = 4


def mentions(program: str) -> list[Command]:
    """What sentences and tables have of a program."""
    return [one for one in inline() if one.text.startswith(f"{program} ") and one.text not in NO_COMMANDS]


def test_every_program_is_one_that_is_checked_or_cannot_be() -> None:
    shown = {words[0] for command in commands() for words in simple(command.text)}
    assert shown - CHECKED <= OTHERS
    assert shown >= CHECKED


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.place)
def test_a_command_is_run_or_listed_with_the_reason(command: Command) -> None:
    stories = [story.name for story in STORIES if command in commands_of(story, commands())]
    if reason_not_to_run(command) is None:
        assert len(stories) == 1, (
            f"{command.place}: {command.text!r} is run by {stories or 'no test'}. "
            "Have its section in one story of tests/support/doc_stories.py, or name it in NOT_RUN with the reason."
        )


def test_nothing_is_listed_that_no_page_shows() -> None:
    listed = {one: [command for command in commands() if reason_not_to_run(command) == one] for one in NOT_RUN}
    assert [one for one, found in listed.items() if not found] == []
    sections = {(command.page, command.section) for command in commands()}
    assert {section for story in STORIES for section in story.sections} <= sections
    unused = [
        (story.name, one.begins)
        for story in STORIES
        for one in story.expected
        if not any(story.outcome(command) == one for command in commands_of(story, commands()))
    ]
    assert unused == []


def test_every_command_of_gpuledger_exists_with_its_options() -> None:
    shown = [(one, words) for one in commands() for words in programs(one, "gpuledger", "kubectl")]
    ours = [(one, after_kubectl(words)) for one, words in shown]
    problems = {one.place: gpuledger_problem(words) for one, words in ours if words}
    assert len(problems) > 50
    assert {place: problem for place, problem in problems.items() if problem} == {}


def after_kubectl(words: list[str]) -> list[str]:
    """The words from `gpuledger` on, as a plugin or in a pod; none where kubectl does something itself."""
    if words[0] == "kubectl" and "exec" in words:
        inside = words[words.index("--") + 1 :]
        return inside if inside[0] == "gpuledger" else []
    return words[1:] if words[:2] == ["kubectl", "gpuledger"] else [word for word in words if words[0] == "gpuledger"]


def test_every_command_of_gpuledger_that_a_sentence_mentions_exists() -> None:
    found = mentions("gpuledger")
    assert len(found) > 100
    problems = {one.place: gpuledger_problem(shlex.split(one.text), is_mention=True) for one in found}
    assert {place: problem for place, problem in problems.items() if problem} == {}


def test_the_readme_lists_every_command_and_only_those_that_exist() -> None:
    table = (ROOT / "README.md").read_text().partition("\n## Commands\n")[2]
    rows = re.findall(r"^\| .* \| (.*) \|$", table.partition("| exit code")[0], re.MULTILINE)
    named = {code.split()[0] for row in rows for code in re.findall(r"`([a-z][^`]*)`", row)}
    assert named == {*COMMANDS} - HIDDEN


def test_the_readme_names_every_page() -> None:
    index = (ROOT / "README.md").read_text().partition("\n## Further reading\n")[2]
    named = set(re.findall(r"\]\(([^)]+)\)", index))
    shown = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").iterdir()}
    assert named == shown | {"CONTRIBUTING.md"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_takes_every_verb_and_option() -> None:
    shown = [(one.place, words) for one in commands() for words in programs(one, "kubectl")]
    shown += [(one.place, shlex.split(one.text)) for one in mentions("kubectl")]
    asked = [(place, words) for place, words in shown if words[1] != "gpuledger"]
    with ThreadPoolExecutor(PARALLEL) as pool:
        problems = list(pool.map(lambda one: (one[0], kubectl_problem(one[1])), asked))
    assert len(problems) > 40
    assert [(place, problem) for place, problem in problems if problem] == []


@needs_helm
def test_helm_takes_every_option_and_the_chart_every_value() -> None:
    shown = [(one, words) for one in commands() for words in programs(one, "helm")]
    problems = {one.place: helm_problem(words, values_of(one)) for one, words in shown}
    problems |= {one.place: helm_problem(shlex.split(one.text), {}) for one in mentions("helm")}
    settings = [one for one in inline() if one.text.startswith("--set")]
    assert settings
    problems |= {one.place: chart_problem(shlex.split(one.text), {}) for one in settings}
    assert {place: problem for place, problem in problems.items() if problem} == {}


def values_of(command: Command) -> dict[str, Any]:
    """The values in the file that a command names: the page shows it."""
    if "--values presets.yaml" not in command.text:
        return {}
    values: dict[str, Any] = yaml.safe_load(dict(blocks(PRESETS, "yaml"))[command.section])
    return values


def test_make_has_every_target_and_pytest_every_folder() -> None:
    shown = [(one.place, words) for one in commands() for words in programs(one, "make", "pytest")]
    shown += [(one.place, shlex.split(one.text)) for one in mentions("make")]
    assert shown
    problems = [(place, {"make": make_problem, "pytest": pytest_problem}[words[0]](words)) for place, words in shown]
    assert [(place, problem) for place, problem in problems if problem] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("gpuledger get devices --att x", "No such option: --att"),
        ("gpuledger gett devices", "there is no command gett"),
        ("gpuledger timeline device", "Missing argument"),
        ("gpuledger migrate x", "unexpected extra argument"),
        ("gpuledger log restore folder", ""),
    ],
)
def test_what_does_not_exist_is_noticed(words: str, problem: str) -> None:
    found = gpuledger_problem(words.split())
    assert problem in found if problem else found == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a "$(b -o name | head -1)" x=1   # c', [["b", "-o", "name"], ["head", "-1"], ["a", "SUBSTITUTED", "x=1"]]),
        ("X=1 a --flag \\\n  'b | c' > file", [["a", "--flag", "b | c"]]),
        ("a -f - <<'END'   # c\nb: $(c)\nEND", [["a", "-f", "-"]]),
        (r"X=$(sed 's/\(.*\)/\1/' f) a", [["sed", r"s/\(.*\)/\1/", "f"], ["a"]]),
    ],
)
def test_programs_are_found_in_shell(text: str, found: list[list[str]]) -> None:
    assert simple(text) == found
