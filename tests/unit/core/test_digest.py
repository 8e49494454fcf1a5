from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from aegis.core.canonical import call_commitment, call_digest, canonical, payload_commitment, sha256

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(
    st.none() | text,
    text,
    st.dictionaries(text, text | st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
)
def test_a_call_digest_is_the_hash_of_the_canonical_call(
    server: str | None, tool: str, arguments: dict[str, object]
) -> None:
    named = canonical({"arguments": arguments, "server": server, "tool": tool})
    assert call_digest(server=server, tool=tool, arguments=canonical(arguments)) == sha256(named)


def test_a_digest_names_its_algorithm() -> None:
    assert sha256(b"") == "sha-256:" + hashlib.sha256(b"").hexdigest()


def test_server_and_tool_cannot_be_traded() -> None:
    digests = {
        call_digest(server=server, tool=tool, arguments=b"{}")
        for server, tool in ((None, "a/b"), ("a", "b"), ("", "a/b"), (None, "a"), ("null", "a"))
    }
    assert len(digests) == 5


def test_a_commitment_depends_on_salt_and_content() -> None:
    commitments = {
        call_commitment(b"s" * 32, "sha-256:a", "sha-256:b"),
        call_commitment(b"t" * 32, "sha-256:a", "sha-256:b"),
        call_commitment(b"s" * 32, "sha-256:a", "sha-256:c"),
        call_commitment(b"s" * 32, "sha-256:c", "sha-256:b"),
        payload_commitment(b"s" * 32, b"a"),
        payload_commitment(b"t" * 32, b"a"),
        payload_commitment(b"s" * 32, b"b"),
    }
    assert len(commitments) == 7


def test_commitments_are_what_the_documentation_says() -> None:
    salt = bytes(range(32))
    call = hashlib.sha256(b"aegis/call-commitment/v1\0" + salt + b"sha-256:1\0sha-256:2").hexdigest()
    payload = hashlib.sha256(b"aegis/payload-commitment/v1\0" + salt + b"body").hexdigest()
    assert call_commitment(salt, "sha-256:1", "sha-256:2") == "sha-256:" + call
    assert payload_commitment(salt, b"body") == "sha-256:" + payload
