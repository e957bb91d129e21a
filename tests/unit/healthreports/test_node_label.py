"""A label in what watchers have recorded of a node."""

import pytest

from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.healthreports.node_label import label_in
from gpuledger.runtime.node_label_settings import (
    DEFAULT_INSTANCE_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    read_instance_type_label,
)
from gpuledger.runtime.settings import SettingsError
from support.events import event, outgoing
from support.node_labels import labelled

LABEL = DEFAULT_INSTANCE_TYPE_LABEL


def test_the_label_of_the_node_counts() -> None:
    assert label_in(labelled("w.1", "p5.48xlarge").data, "w.1", LABEL) == "p5.48xlarge"
    assert label_in(labelled("w.1", "p5.48xlarge", machine="m").data, "w.1", "machine") == "m"


def test_what_is_of_others_or_about_others_counts_as_none() -> None:
    assert label_in(labelled("w.1").data, "w.1", LABEL) == ""
    assert label_in(labelled("w.2", "t4").data, "w.1", LABEL) == ""
    assert label_in(labelled("w.1", "t4", source="/services/pools").data, "w.1", LABEL) == ""
    assert label_in(outgoing(event(NodeDevicesWanted(), "w.1")).data, "w.1", LABEL) == ""
    with pytest.raises(EventError):
        label_in(b"no event", "w.1", LABEL)


def test_another_label_is_a_setting() -> None:
    assert read_instance_type_label({}) == "node.kubernetes.io/instance-type"
    for name in ("machine", "example.com/Machine_type.1", "a/" + "b" * 63):
        assert read_instance_type_label({INSTANCE_TYPE_LABEL: name}) == name


@pytest.mark.parametrize(
    "name",
    ["/type", "Example.com/type", "a/b/c", "-type", "type-", "a/" + "b" * 64, "a" * 254 + "/b", "a b", "*", "a/"],
)
def test_a_name_that_no_label_may_have_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=INSTANCE_TYPE_LABEL):
        read_instance_type_label({INSTANCE_TYPE_LABEL: name})
