"""The permissions of an agent, as data and as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.errors import SubjectError
from gpuledger.events.node import NodeDevicesWanted, NodeLabelled
from gpuledger.events.publishing import SourceKind
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.events.subjects import parse_subject, subject_of
from gpuledger.ledger.memory import matcher
from gpuledger.ledger.permissions import (
    NAME_TEMPLATE,
    STREAM_CHANGES,
    Role,
    agent_permissions,
    allocated_devices_subject,
    desired_devices_subject,
    exports_text,
    imports_text,
    inbox_prefix,
    node_labels_subject,
    permissions_text,
    role_permissions,
    role_text,
    shared_devices_subject,
    templated_permissions,
    user_name,
    user_text,
)

NODES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


def test_the_permissions_of_a_node() -> None:
    assert agent_permissions("gpu-01.example.com") == (
        (
            "ledger.node.gpu-01%2Eexample%2Ecom.>",
            "part.*.ledger.node.gpu-01%2Eexample%2Ecom.>",
            "$JS.API.STREAM.NAMES",
            "$JS.LEDGER.API.STREAM.NAMES",
            "$JS.API.DIRECT.GET.*.ledger.svc.pools.node.gpu-01%2Eexample%2Ecom.devices-wanted",
            "$JS.API.DIRECT.GET.*.ledger.svc.sharing.node.gpu-01%2Eexample%2Ecom.devices-shared",
            "$JS.API.DIRECT.GET.*.ledger.svc.extender.node.gpu-01%2Eexample%2Ecom.devices-allocated",
            "$JS.API.DIRECT.GET.*.ledger.svc.watchers.node.gpu-01%2Eexample%2Ecom.labelled",
            "$JS.API.DIRECT.GET.*.ledger.svc.sources.rule.shared-subjects.enforced",
            "$JS.API.DIRECT.GET.*.order.*",
        ),
        (
            "_INBOX_node.gpu-01%2Eexample%2Ecom.>",
            "ledger.svc.pools.node.gpu-01%2Eexample%2Ecom.devices-wanted",
            "part.*.ledger.svc.pools.node.gpu-01%2Eexample%2Ecom.devices-wanted",
            "ledger.svc.sharing.node.gpu-01%2Eexample%2Ecom.devices-shared",
            "part.*.ledger.svc.sharing.node.gpu-01%2Eexample%2Ecom.devices-shared",
            "ledger.svc.extender.node.gpu-01%2Eexample%2Ecom.devices-allocated",
            "part.*.ledger.svc.extender.node.gpu-01%2Eexample%2Ecom.devices-allocated",
        ),
    )


def test_what_pools_publish_is_what_the_agent_may_read() -> None:
    published = subject_of("/services/pools", NodeDevicesWanted.AGGREGATE, "w.1", NodeDevicesWanted.EVENT)
    assert desired_devices_subject("w.1") == published


def test_lists_of_shared_devices_are_what_the_agent_may_read() -> None:
    shared = subject_of("/services/sharing", "node", "w.1", NodeDevicesShared.EVENT)
    allocated = subject_of("/services/extender", "node", "w.1", NodeDevicesAllocated.EVENT)
    assert (shared_devices_subject("w.1"), allocated_devices_subject("w.1")) == (shared, allocated)
    for subject in (shared, allocated):
        assert may_publish("w.1", f"$JS.API.DIRECT.GET.LEDGER_1.{subject}")
        assert may_hear("w.1", subject)


def test_what_watchers_record_of_a_nodes_labels_is_what_the_agent_may_read() -> None:
    published = subject_of("/watchers/nodelabels", NodeLabelled.AGGREGATE, "w.1", NodeLabelled.EVENT)
    assert node_labels_subject("w.1") == published
    assert may_publish("w.1", f"$JS.API.DIRECT.GET.LEDGER_1.{published}")
    assert not may_hear("w.1", published)


@given(node=NODES, aggregate_id=IDS)
def test_an_agent_may_write_whatever_is_its_own(node: str, aggregate_id: str) -> None:
    subject = subject_of(f"/nodes/{node}/agent", "device", aggregate_id, "seen") if "/" not in node else None
    if subject is not None:
        assert may_publish(node, subject)
        assert may_publish(node, f"part.3.{subject}")


@given(node=NODES, other=NODES)
def test_no_node_may_do_anything_of_anothers(node: str, other: str) -> None:
    if node == other:
        return
    written = f"ledger.node.{user_name(other)}.device.d.seen"
    assert parse_subject(written).origin.name == other
    assert not may_publish(node, written)
    assert not may_publish(node, f"part.0.{written}")
    assert not may_publish(node, "order.1")
    assert not may_publish(node, f"$JS.API.DIRECT.GET.LEDGER_1.{desired_devices_subject(other)}")
    assert not may_publish(node, f"$JS.API.DIRECT.GET.LEDGER_1.{node_labels_subject(other)}")
    for subject in (desired_devices_subject(other), shared_devices_subject(other), allocated_devices_subject(other)):
        assert not may_publish(node, f"$JS.API.DIRECT.GET.LEDGER_1.{subject}")
        assert not may_hear(node, subject)
    assert not may_hear(node, f"part.0.{desired_devices_subject(other)}")
    assert not may_hear(node, f"{inbox_prefix(other)}.x")


@given(node=NODES)
def test_the_template_gives_the_same_for_a_nodes_user(node: str) -> None:
    for templated, given_ in zip(templated_permissions(), agent_permissions(node), strict=True):
        assert tuple(subject.replace(NAME_TEMPLATE, user_name(node)) for subject in templated) == given_
        # The server looks at whole tokens only.
        assert all(NAME_TEMPLATE in subject.split(".") for subject in templated if "{" in subject)


def test_a_node_without_a_name_has_none() -> None:
    with pytest.raises(SubjectError):
        agent_permissions("")


def test_the_text_of_a_user() -> None:
    assert user_text("w1") == (
        "{\n"
        '  user: "w1"\n'
        "  permissions: {\n"
        "    publish: { allow: [\n"
        '      "ledger.node.w1.>"\n'
        '      "part.*.ledger.node.w1.>"\n'
        '      "$JS.API.STREAM.NAMES"\n'
        '      "$JS.LEDGER.API.STREAM.NAMES"\n'
        '      "$JS.API.DIRECT.GET.*.ledger.svc.pools.node.w1.devices-wanted"\n'
        '      "$JS.API.DIRECT.GET.*.ledger.svc.sharing.node.w1.devices-shared"\n'
        '      "$JS.API.DIRECT.GET.*.ledger.svc.extender.node.w1.devices-allocated"\n'
        '      "$JS.API.DIRECT.GET.*.ledger.svc.watchers.node.w1.labelled"\n'
        '      "$JS.API.DIRECT.GET.*.ledger.svc.sources.rule.shared-subjects.enforced"\n'
        '      "$JS.API.DIRECT.GET.*.order.*"\n'
        "    ] }\n"
        "    subscribe: { allow: [\n"
        '      "_INBOX_node.w1.>"\n'
        '      "ledger.svc.pools.node.w1.devices-wanted"\n'
        '      "part.*.ledger.svc.pools.node.w1.devices-wanted"\n'
        '      "ledger.svc.sharing.node.w1.devices-shared"\n'
        '      "part.*.ledger.svc.sharing.node.w1.devices-shared"\n'
        '      "ledger.svc.extender.node.w1.devices-allocated"\n'
        '      "part.*.ledger.svc.extender.node.w1.devices-allocated"\n'
        "    ] }\n"
        "  }\n"
        "}"
    )
    assert permissions_text(agent_permissions("w1")).startswith("permissions: {\n  publish: { allow: [\n    ")


def test_the_text_of_the_accounts() -> None:
    assert exports_text() == (
        "exports: [\n"
        '  { service: "ledger.node.*.>", accounts: [AGENTS] }\n'
        '  { service: "part.*.ledger.node.*.>", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.STREAM.NAMES", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.ledger.svc.pools.node.*.devices-wanted", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.ledger.svc.sharing.node.*.devices-shared", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.ledger.svc.extender.node.*.devices-allocated", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.ledger.svc.watchers.node.*.labelled", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.ledger.svc.sources.rule.shared-subjects.enforced", accounts: [AGENTS] }\n'
        '  { service: "$JS.API.DIRECT.GET.*.order.*", accounts: [AGENTS] }\n'
        '  { stream: "ledger.svc.pools.node.*.devices-wanted", accounts: [AGENTS] }\n'
        '  { stream: "part.*.ledger.svc.pools.node.*.devices-wanted", accounts: [AGENTS] }\n'
        '  { stream: "ledger.svc.sharing.node.*.devices-shared", accounts: [AGENTS] }\n'
        '  { stream: "part.*.ledger.svc.sharing.node.*.devices-shared", accounts: [AGENTS] }\n'
        '  { stream: "ledger.svc.extender.node.*.devices-allocated", accounts: [AGENTS] }\n'
        '  { stream: "part.*.ledger.svc.extender.node.*.devices-allocated", accounts: [AGENTS] }\n'
        "]"
    )
    assert '"$JS.API.STREAM.NAMES" }, to: "$JS.LEDGER.API.STREAM.NAMES" }' in imports_text()


def test_services_record_under_their_own_names_alone() -> None:
    recorded = [one for one in role_permissions(Role.SERVICES).publish if one.startswith("ledger.")]
    others = {SourceKind.AGENTS, SourceKind.IMPORTERS, SourceKind.OPERATORS, SourceKind.GATEWAYS}
    assert recorded == [f"ledger.svc.{kind}.>" for kind in SourceKind if kind not in others]


@pytest.mark.parametrize(
    ("role", "recorded"),
    [
        (Role.GATEWAY, ["ledger.svc.gateways.>"]),
        (Role.PREFLIGHT, ["ledger.svc.preflight.>"]),
        (Role.EXTENDER, ["ledger.svc.extender.>"]),
        (Role.READER, []),
        (Role.IMPORTER, ["ledger.svc.import.>"]),
        (Role.SKIPPER, ["ledger.svc.operators.>"]),
        (Role.OPERATOR, []),
        (Role.RESTORER, []),
    ],
)
def test_what_a_role_records(role: Role, recorded: list[str]) -> None:
    assert [one for one in role_permissions(role).publish if one.startswith("ledger.")] == recorded


def test_only_services_and_who_ends_generations_put_what_partitions_record_into_the_log() -> None:
    roles = [role for role in Role if "order.*" in role_permissions(role).publish]
    assert roles == [Role.SERVICES, Role.OPERATOR, Role.RESTORER]


@pytest.mark.parametrize("role", Role)
def test_a_role_records_alike_into_one_partition_and_into_several(role: Role) -> None:
    publish = role_permissions(role).publish
    one = [subject for subject in publish if subject.startswith("ledger.")]
    assert [f"part.*.{subject}" for subject in one] == [subject for subject in publish if subject.startswith("part.")]


def test_a_restore_records_by_subjects_of_its_own() -> None:
    roles = [role for role in Role if any(one.startswith("restoring.") for one in role_permissions(role).publish)]
    assert roles == [Role.RESTORER]


@pytest.mark.parametrize("role", Role)
def test_streams_belong_to_the_operator(role: Role) -> None:
    changes = {f"$JS.API.STREAM.{change}.LEDGER_1" for change in STREAM_CHANGES}
    allowed = {one for one in changes if any(matcher(may)(one) for may in role_permissions(role).publish)}
    assert allowed == (changes if role in {Role.OPERATOR, Role.RESTORER} else set())


def test_the_text_of_a_role() -> None:
    text = role_text(Role.IMPORTER)
    assert text.startswith(
        '{\n  user: "gpuledger-importer"\n  permissions: {\n    publish: { allow: [\n      "ledger.svc.import.>"\n'
    )
    assert '    subscribe: { allow: [\n      "_INBOX.>"\n    ] }\n  }\n}' in text


def may_publish(node: str, subject: str) -> bool:
    return any(matcher(allowed)(subject) for allowed in agent_permissions(node).publish)


def may_hear(node: str, subject: str) -> bool:
    return any(matcher(allowed)(subject) for allowed in agent_permissions(node).subscribe)
