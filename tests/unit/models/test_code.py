"""Trees of files, by content."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.code import Kind, TreeFile, difference, read_manifest, tree_hash, write_manifest
from rv.workflow.work_tree import is_secret

PATHS = st.binary(min_size=1, max_size=20).filter(lambda path: b"\0" not in path)
FILES = st.builds(
    TreeFile,
    st.sampled_from(Kind),
    st.binary(max_size=3).map(lambda data: hashlib.sha256(data).digest()),
    st.integers(0, 1 << 40),
)
TREES = st.dictionaries(PATHS, FILES, max_size=8)


@given(TREES)
def test_a_manifest_says_all_of_a_tree(tree: dict[bytes, TreeFile]) -> None:
    """Whatever the names."""
    assert read_manifest(b"".join(write_manifest(tree))) == tree


@given(TREES, TREES)
def test_the_difference_makes_the_new_tree_of_the_old(
    old: dict[bytes, TreeFile], new: dict[bytes, TreeFile]
) -> None:
    """By removing first; and only one tree has its hash."""
    change = difference(old, new)
    made = {path: file for path, file in old.items() if path not in change.removed}
    assert not set(made) & set(change.sent)
    assert made | {path: new[path] for path in change.sent} == new
    assert (tree_hash(old) == tree_hash(new)) == (old == new)


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (".env", True), ("a/.env.local", True), (".env.example", False), ("id_rsa", True),
        ("keys/id_ed25519.pub", False), ("x.pem", True), (".aws/credentials", True),
        ("src/.ssh/config", True), ("train.py", False), ("environment.yml", False),
        ("id_map.py", False), ("monkey.key", True), ("keyboard.py", False), ("ID_RSA", True),
        ("application_default_credentials.json", True), (".config/gcloud/credentials.db", True),
        (".azure/msal_token_cache.json", True), ("aws_credentials", True), (".boto", True),
        (".npmrc", True), (".docker/config.json", True), (".cache/huggingface/token", True),
        ("prod.env", True), (".envrc", True), ("key.ppk", True), (".ssh/rv_key", True),
        ("keys.py", False), ("docker/config.json", False), ("gcloud/deploy.sh", False),
        ("credentials.py", False), ("src/env.py", False), (".env.sample", False),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(path: str, secret: bool) -> None:
    """By its name."""
    assert is_secret(path) == secret
