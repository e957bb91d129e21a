"""Nested fields as lines."""

from gpuledger.cli.render.page import field_name, named_tree, tree_lines


def test_values_stand_in_a_column_of_their_level() -> None:
    tree = {"Name": "a", "Longer": 1, "Left out": None, "Below": {"x": True}, "List": [{"Name": "b"}, "text"], "No": {}}
    assert list(tree_lines(tree)) == [
        "Name:    a",
        "Longer:  1",
        "Below:",
        "  x:  true",
        "List:",
        "  Name:  b",
        "  text",
        "No:  <none>",
    ]


def test_no_control_character_reaches_a_terminal() -> None:
    (line,) = tree_lines({"a\x1b": "b\x1b"})
    assert line.isprintable()


def test_fields_are_spelt_as_kubectl_does() -> None:
    assert [field_name(key) for key in ("claimUID", "totalDevices", "name", "lastTransitionTime")] == [
        "Claim UID",
        "Total Devices",
        "Name",
        "Last Transition Time",
    ]
    assert named_tree({"aB": [{"cD": 1}]}) == {"A B": [{"C D": 1}]}
