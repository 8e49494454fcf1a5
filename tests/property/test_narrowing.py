"""An approver only takes away: whatever is accepted as narrower names nothing that the held call does not."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from aegis.approvals.narrowing import check_narrower
from aegis.core.approval import Narrowing
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.errors import InvalidCall

NAMES = (
    "to", "cc", "path", "paths", "url", "command", "cmd", "args", "query", "sql", "amount", "limit", "min_amount", "id",
    "ids", "account", "body", "message", "subject", "content", "filter", "exclude", "dry_run", "items", "note",
)  # fmt: skip
TEXTS = (
    "a@example.com", "b@example.com", "a@example.com, b@example.com", "Ann <a@example.com>", "/srv/data", "/srv/data/x",
    "/srv/data/../x", "/srv", "build", "build/x", "~/x", "rm -rf /srv/data build", "rm -rf build", "rm build", "rm -rf",
    "rm -rf /srv/data; curl https://evil.example", "https://api.example/v1", "https://api.example/v1/users",
    "https://evil.example", "SELECT * FROM t", "DELETE FROM t", "DELETE FROM t WHERE id = 1", "500", "5", "500.00", "",
    "please pay ann@example.com now", "please now", "pay eve@example.com", "two words", "words\nBcc: eve@example.com",
    "words Bcc: eve@example.com", "[redacted]", "#general", "#general, #all", "--dry-run", "-rf",
)  # fmt: skip
TOOLS = ("send_email", "pay", "delete_files", "run_shell", "query_database", "http_request", "write_file", "note")

leaf = st.one_of(st.sampled_from(TEXTS), st.sampled_from((0, 1, 5, 500, -5, 2.5, True, False, None)))
value = st.recursive(
    leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from(NAMES), value, min_size=1, max_size=5)
schemas = st.sampled_from((None, {"type": "object", "required": ["to"]}, {"type": "object"}))
WORDS: tuple[Narrowing, ...] = ("fixed", "lower", "remove", "shorten")
declarations = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS), max_size=2)


SEGMENTS = ("data", "x", "..", ".ssh", "*", "a b")
SHAPES: tuple[dict[str, Any], ...] = (
    {"to": "a@example.com, b@example.com", "cc": ["c@example.com", "#all"], "body": "pay Ann\nBcc: d@example.com now"},
    {"to": ["a@example.com", "b@example.com"], "amounts": [1, 500]},
    {"amount": 500, "account": "DE1", "to": "x", "note": "for two months"},
    {"transfers": [{"to": "x", "amount": 5}, {"to": "y", "amount": "500.00"}], "dry_run": True},
    {"path": "/srv/data", "recursive": True},
    {"paths": ["/srv/a", "/srv/b/c", "build"], "exclude": ["/srv/a/keep"]},
    {"url": "https://api.example/v1", "headers": {"X-To": "a"}, "body": "one two"},
    {"command": "rm -rf /srv/data build", "cwd": "/srv"},
    {"command": ["rm", "-i", "/srv/data", "build"]},
    {"command": "rm", "args": ["-i", "/srv/data"]},
    {"sql": "DELETE FROM t WHERE id = 1", "limit": 10},
    {"ids": [1, 2, 3], "min_amount": 5, "filter": "x", "query": "two words"},
)


def other_text(held: str) -> st.SearchStrategy[str]:
    """What an approver could put in the place of a text: less of it, more of it, something else."""
    parts = re.split(r"(\s+|,)", held)
    return st.one_of(
        st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)).map(
            lambda kept: "".join(part for part, keep in zip(parts, kept, strict=True) if keep)
        ),
        st.sampled_from(SEGMENTS).map(lambda segment: f"{held}/{segment}"),
        st.sampled_from((" x", ", eve@example.com", "\n", "0", "; id")).map(lambda more: held + more),
        st.sampled_from(TEXTS),
    )


def other_value(held: Any) -> st.SearchStrategy[Any]:
    """The same, of any value; one place of it is changed, or some members go or come."""
    if isinstance(held, dict) and held:
        names = sorted(held)
        return st.one_of(
            st.sampled_from(names).flatmap(
                lambda name: other_value(held[name]).map(lambda inner: {**held, name: inner})
            ),
            st.sampled_from(names).map(lambda gone: {name: held[name] for name in names if name != gone}),
            st.tuples(st.sampled_from(NAMES), leaf).map(lambda more: {**held, more[0]: more[1]}),
        )
    if isinstance(held, list) and held:
        places = range(len(held))
        return st.one_of(
            st.sampled_from(places).flatmap(
                lambda at: other_value(held[at]).map(lambda inner: [*held[:at], inner, *held[at + 1 :]])
            ),
            st.lists(st.sampled_from(places), unique=True, max_size=len(held)).map(
                lambda kept: [held[at] for at in kept]
            ),
            leaf.map(lambda more: [*held, more]),
        )
    if isinstance(held, str):
        return other_text(held)
    if isinstance(held, int | float) and not isinstance(held, bool):
        return st.integers(-2, 501)
    return leaf


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    held = draw(st.one_of(st.sampled_from(SHAPES), st.sampled_from(SHAPES), arguments))
    changed = draw(other_value(held))
    if draw(st.booleans()):
        changed = draw(other_value(changed))
    return held, changed


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


def subject(tool: str, held: dict[str, Any], schema: Any = None) -> FactSubject:
    return FactSubject(tool=tool, server=None, arguments=held, limits=ReadLimits(), schema=schema)


def is_narrower(
    tool: str, held: dict[str, Any], changed: dict[str, Any], schema: Any = None, declared: Any = None
) -> bool:
    try:
        check_narrower(subject(tool, held, schema), changed, declared or {})
    except InvalidCall as refusal:
        assert refusal.status == 422 and refusal.code == "not_narrower"
        assert "`/" in refusal.message
        return False
    return True


RESOURCE = re.compile(r"[\w.+-]+@[\w.-]+|https?://[^\s,]+|[~\w]*/[^\s,]*|#\w+")


@settings(max_examples=700, deadline=None)
@given(st.sampled_from(TOOLS), pairs(), schemas, declarations)
def test_what_is_narrower_names_nothing_new(
    tool: str, pair: tuple[dict[str, Any], dict[str, Any]], schema: Any, declared: dict[str, Narrowing]
) -> None:
    held, changed = pair
    accepted = is_narrower(tool, held, changed, schema, declared)
    event(f"accepted: {accepted and held != changed}")
    if not accepted:
        return
    assert_names_nothing_new(held, changed)


def assert_names_nothing_new(held: dict[str, Any], changed: dict[str, Any]) -> None:
    texts = [one for one in leaves(held) if isinstance(one, str)]
    words = set(re.split(r"[\s,]+", " ".join(texts)))
    known = {found for text in texts for found in RESOURCE.findall(text)} | set(texts) | words
    for text in (one for one in leaves(changed) if isinstance(one, str)):
        # Every resource that a plain reader sees stood in the held call, or lies below a path that did.
        for found in (*RESOURCE.findall(text), *((text,) if "/" in text and " " not in text else ())):
            assert found in known or (
                "@" not in found
                and ".." not in found
                and any(found.startswith(f"{one.rstrip('/')}/") for one in known if one and "://" not in one)
            ), (held, changed)
        if ".." not in text and any(text.startswith(f"{one.rstrip('/')}/") for one in texts if one and one[0] in "/~"):
            continue  # a path below one that stood there, whatever blanks are in its names
        # Every word stood there too, so that no text was written anew.
        for word in re.split(r"[\s,]+", text):
            below = any(word.startswith(f"{one.rstrip('/')}/") for one in words if one)
            struck = word in ("[redacted]", "[REDACTED]", "***", "")
            assert word in words or struck or below or _lower_text(word, texts), (held, changed)
    assert _total(changed) <= _total(held), (held, changed)
    assert len(leaves(changed)) <= len(leaves(held))


def _total(value: Any) -> float:
    return sum(abs(one) for one in leaves(value) if isinstance(one, int | float) and not isinstance(one, bool))


def _lower_text(word: str, texts: list[str]) -> bool:
    return word.replace(".", "").isdigit() and any(
        text.replace(".", "").isdigit() and float(word) <= float(text) for text in texts if text
    )


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TOOLS), arguments, schemas)
def test_the_same_is_narrower(tool: str, held: dict[str, Any], schema: Any) -> None:
    assert is_narrower(tool, held, held, schema)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TOOLS), pairs(), st.data())
def test_narrowing_twice_is_narrowing(tool: str, pair: tuple[dict[str, Any], dict[str, Any]], data: Any) -> None:
    held, once = pair
    if not is_narrower(tool, held, once):
        return
    twice = data.draw(other_value(once))
    if is_narrower(tool, once, twice):
        assert_names_nothing_new(held, twice)
