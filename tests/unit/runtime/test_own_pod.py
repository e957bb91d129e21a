"""A pod reads its own namespace, which no drain touches."""

from pathlib import Path

from gpuledger.runtime.own_pod import own_namespaces


def test_the_namespace_of_a_pod_is_beside_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    (tmp_path / "namespace").write_text("ours\n")
    assert list(own_namespaces(token)) == []
    token.write_text("t")
    assert list(own_namespaces(token)) == ["ours"]
