from __future__ import annotations

from typing import Any

import pytest

from aegis.core.call import MAX_NAME_CHARS, MAX_PROOF_CHARS, MAX_TASK_CHARS, MAX_UNRESOLVED, ToolCall, check_call
from aegis.errors import InvalidCall


def call(**members: Any) -> ToolCall:
    return ToolCall(**{"tool": "read_file", **members})


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"tool": "x" * MAX_NAME_CHARS},
        {"tool": "日本語"},
        {
            "server": "mcp:mail",
            "call_id": "c",
            "agent": "a",
            "session": "s",
            "parent": "p",
            "messages_digest": "sha-256:0",
        },
        {"task": ""},
        {"task": "é" * MAX_TASK_CHARS},
        {"proof": "x" * MAX_PROOF_CHARS},
        {"turn": 0},
        {"turn": 2**53 - 1},
        {"want_permit": True},
        {"unresolved": ("", "/a/0")},
        {"unresolved": ("/a",) * MAX_UNRESOLVED},
    ],
)
def test_a_well_formed_call_passes(members: dict[str, Any]) -> None:
    check_call(call(**members))


NAMES = ("tool", "server", "call_id", "agent", "session", "parent", "messages_digest")


@pytest.mark.parametrize("member", NAMES)
@pytest.mark.parametrize("value", ["", "  ", "\u2003", 5, True, [], "x" * (MAX_NAME_CHARS + 1), "a\ud800"])
def test_a_name_that_is_no_bounded_text_is_refused(member: str, value: object) -> None:
    with pytest.raises(InvalidCall, match=f"`{member}`") as caught:
        check_call(call(**{member: value}))
    assert caught.value.status == 422


def test_a_tool_is_required() -> None:
    with pytest.raises(InvalidCall):
        check_call(call(tool=None))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("task", "x" * (MAX_TASK_CHARS + 1)),
        ("task", 5),
        ("task", "\ud800"),
        ("proof", "x" * (MAX_PROOF_CHARS + 1)),
        ("proof", b"x"),
        ("proof", "\udfff"),
        ("turn", -1),
        ("turn", 2**53),
        ("turn", 1.0),
        ("turn", True),
        ("turn", "1"),
        ("arguments", []),
        ("arguments", None),
        ("want_permit", 1),
        ("want_permit", None),
        ("unresolved", ("a",)),
        ("unresolved", (1,)),
        ("unresolved", "/a"),
        ("unresolved", None),
        ("unresolved", ("/\ud800",)),
        ("unresolved", ("/a",) * (MAX_UNRESOLVED + 1)),
    ],
)
def test_a_member_of_the_wrong_type_or_size_is_refused(member: str, value: object) -> None:
    with pytest.raises(InvalidCall, match=f"`{member}`"):
        check_call(call(**{member: value}))
