"""What an approver may make of a held call, and what not, each with the place that a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.approvals.narrowing import check_narrower, is_shortened
from aegis.core.approval import Narrowing
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.errors import InvalidCall

MAIL = {"to": ["a@example.com", "b@example.com"], "cc": "c@example.com", "subject": "hello", "body": "one two\nthree"}
DESCRIBED = {"type": "object", "required": ["to", "body"]}


def refused_at(
    tool: str, held: dict[str, Any], changed: dict[str, Any], schema: Any = None, declared: Any = None
) -> str | None:
    """The pointer that the refusal names; `None` where the changed call is narrower."""
    subject = FactSubject(tool=tool, server=None, arguments=held, limits=ReadLimits(), schema=schema)
    try:
        check_narrower(subject, changed, declared or {})
    except InvalidCall as refusal:
        assert (refusal.status, refusal.code) == (422, "not_narrower")
        return refusal.message.partition("`")[2].partition("`")[0]
    return None


@pytest.mark.parametrize(
    ("tool", "held", "changed"),
    [
        ("send_email", MAIL, {**MAIL, "to": ["b@example.com"]}),
        ("send_email", MAIL, {name: value for name, value in MAIL.items() if name != "cc"}),
        ("send_email", MAIL, {**MAIL, "body": "one\nthree"}),
        ("send_email", MAIL, {**MAIL, "body": "one [redacted]\nthree"}),
        ("send_email", MAIL, {**MAIL, "body": ""}),
        ("send_email", {"to": "Ann <a@example.com>; b@example.com"}, {"to": "Ann <a@example.com>"}),
        ("send_email", {"to": "x", "attachments": ["/srv/a", "/srv/b"]}, {"to": "x", "attachments": []}),
        ("pay", {"amount": 500, "to": "x"}, {"amount": 5, "to": "x"}),
        ("pay", {"amount": 2.5, "to": "x"}, {"amount": 1, "to": "x"}),
        ("pay", {"amount": -500, "to": "x"}, {"amount": -5, "to": "x"}),
        ("pay", {"amount": "500.00", "to": "x"}, {"amount": "5.5", "to": "x"}),
        ("pay", {"parts": [{"to": "x", "amount": 5}, {"to": "y", "amount": 9}]}, {"parts": [{"to": "y", "amount": 1}]}),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data/tmp"}),
        ("delete_files", {"paths": ["/srv/a", "/srv/b", "/srv/c"]}, {"paths": ["/srv/a", "/srv/c/d"]}),
        ("run_shell", {"command": "rm -rf build dist"}, {"command": "rm -rf dist/old"}),
        ("run_shell", {"command": ["rm", "-rf", "--", "build", "dist"]}, {"command": ["rm", "-rf", "--", "build"]}),
        ("fetch_all", {"urls": ["https://a.example/1", "https://b.example/2"]}, {"urls": ["https://b.example/2"]}),
        ("search", {"q": "x", "limit": 100}, {"q": "x", "limit": 10}),
    ],
)  # fmt: skip
def test_less_of_the_same_is_narrower(tool: str, held: dict[str, Any], changed: dict[str, Any]) -> None:
    assert refused_at(tool, held, changed) is None


@pytest.mark.parametrize(
    ("tool", "held", "changed", "pointer"),
    [
        # another resource in the place of one that was there
        ("send_email", MAIL, {**MAIL, "to": ["eve@example.com"]}, "/to/0"),
        ("send_email", MAIL, {**MAIL, "to": ["a@example.com", "c@example.com"]}, "/to/1"),
        ("send_email", {"to": "a@example.com"}, {"to": "a@example.com, eve@example.com"}, "/to"),
        ("send_email", {"to": "a@example.com"}, {"to": "Your boss <a@example.com>"}, "/to"),
        ("send_email", {"to": "a@example.com,b@example.com"}, {"to": "a@example.com,\r\nb@example.com"}, "/to"),
        ("fetch", {"url": "https://a.example/1"}, {"url": "https://evil.example/1"}, "/url"),
        ("fetch", {"url": "https://a.example/1"}, {"url": "https://a.example/1/2"}, "/url"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv"}, "/path"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data2"}, "/path"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data/../x"}, "/path"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data/%2e%2e/x"}, "/path"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data/*"}, "/path"),
        ("delete_files", {"path": "/srv/data"}, {"path": "/srv/data//x"}, "/path"),
        ("run_query", {"sql": "DELETE FROM t WHERE id = 1"}, {"sql": "DELETE FROM t"}, "/sql"),
        ("run_query", {"sql": "SELECT * FROM t"}, {"sql": "SELECT * FROM u"}, "/sql"),
        ("pay", {"account": "DE1", "amount": 5}, {"account": "DE2", "amount": 5}, "/account"),
        ("pay", {"account": 500, "amount": 5}, {"account": 5, "amount": 5}, "/account"),
        ("pay", {"currency": "EUR", "amount": 5}, {"currency": "BTC", "amount": 5}, "/currency"),
        # more of it
        ("pay", {"amount": 5}, {"amount": 500}, "/amount"),
        ("pay", {"amount": 5}, {"amount": -5}, "/amount"),
        ("search", {"limit": 5}, {"limit": 0}, "/limit"),
        ("search", {"limit": 5}, {"limit": 0.5}, "/limit"),
        ("search", {"limit": "5"}, {"limit": "0.0"}, "/limit"),
        ("pay", {"amount": "5.00"}, {"amount": "500"}, "/amount"),
        ("pay", {"amount": "5.00"}, {"amount": "5e9"}, "/amount"),
        ("pay", {"amount": 5}, {"amount": "5"}, "/amount"),
        ("purge", {"older_than_days": 90}, {"older_than_days": 1}, "/older_than_days"),
        ("purge", {"min_amount": 90}, {"min_amount": 1}, "/min_amount"),
        # what held the call back is gone
        ("purge", {"table": "t", "dry_run": True}, {"table": "t", "dry_run": False}, "/dry_run"),
        ("purge", {"table": "t", "dry_run": True}, {"table": "t", "dry_run": 1}, "/dry_run"),
        ("purge", {"table": "t", "dry_run": True}, {"table": "t"}, "/dry_run"),
        ("purge", {"path": "/srv", "exclude": ["a", "b"]}, {"path": "/srv", "exclude": ["a"]}, "/exclude"),
        ("purge", {"ids": [1, 2]}, {"ids": []}, "/ids"),
        ("purge", {"ids": [1, 2]}, {}, "/ids"),
        ("start", {"program": "rm", "words": ["--dry-run", "x"]}, {"program": "rm", "words": ["x"]}, "/words"),
        ("run_shell", {"command": "rm", "args": ["-i", "x"]}, {"command": "rm", "args": ["x"]}, "/args"),
        # another command
        ("run_shell", {"command": "rm -rf build dist"}, {"command": "rm -rf /"}, "/command"),
        ("run_shell", {"command": "rm -i build dist"}, {"command": "rm build"}, "/command"),
        ("run_shell", {"command": "rm -rf build dist"}, {"command": "rm -rf"}, "/command"),
        ("run_shell", {"command": "mv a b c"}, {"command": "mv a b"}, "/command"),
        ("run_shell", {"command": "cd x && rm -rf *"}, {"command": "rm -rf *"}, "/command"),
        ("run_shell", {"command": ["sudo", "rm", "x"]}, {"command": ["rm", "x"]}, "/command"),
        ("run_shell", {"command": "rm -rf ../x", "cwd": "/a"}, {"command": "rm -rf ../x", "cwd": "/a/b"}, "/cwd"),
        # what belongs together is torn apart
        (
            "pay_many",
            {"to": ["a@example.com", "b@example.com"], "amounts": [1, 500]},
            {"to": ["a@example.com"], "amounts": [500]},
            "/to",
        ),
        # other text
        ("send_email", MAIL, {**MAIL, "body": "one two\nfour"}, "/body"),
        ("send_email", MAIL, {**MAIL, "body": "three one"}, "/body"),
        ("send_email", MAIL, {**MAIL, "body": "on"}, "/body"),
        ("send_email", {"body": "call Bcc: e"}, {"body": "call\nBcc: e"}, "/body"),
        ("send_email", {"body": '{"to": "x"}'}, {"body": '{"to":'}, "/body"),
        ("post", {"url": "https://a.example", "body": "a b"}, {"url": "https://a.example", "body": "a"}, "/body"),
        ("write_file", {"path": "/srv/x.sh", "content": "echo rm"}, {"path": "/srv/x.sh", "content": "rm"}, "/content"),
        # something added, or in another order
        ("send_email", MAIL, {**MAIL, "bcc": "eve@example.com"}, "/bcc"),
        ("send_email", {"a": {"b": 1}}, {"a": {"b": 1, "c/d": 2}}, "/a/c~1d"),
        ("delete_files", {"paths": ["/a", "/b"]}, {"paths": ["/b", "/a"]}, "/paths/1"),
        ("delete_files", {"paths": ["/a"]}, {"paths": ["/a", "/a"]}, "/paths/1"),
        ("delete_files", {"paths": ["/a"]}, {"paths": "/a"}, "/paths"),
        ("send_email", {"to": "x", "body": "y"}, {"to": "x"}, "/body"),  # nothing says that it is optional
    ],
)
def test_anything_else_is_refused_with_its_place(
    tool: str, held: dict[str, Any], changed: dict[str, Any], pointer: str
) -> None:
    assert refused_at(tool, held, changed) == pointer


def test_the_schema_says_which_text_can_be_left_out() -> None:
    held = {"to": "a@example.com", "body": "x", "note": "y", "reply_to": "b@example.com"}
    assert refused_at("send_email", held, {name: held[name] for name in ("to", "body", "reply_to")}, DESCRIBED) is None
    # A recipient that is left out has a default: nobody knows which.
    assert (
        refused_at("send_email", held, {name: held[name] for name in ("to", "body", "note")}, DESCRIBED) == "/reply_to"
    )
    assert (
        refused_at("send_email", held, {name: held[name] for name in ("to", "note", "reply_to")}, DESCRIBED) == "/body"
    )


@pytest.mark.parametrize(
    ("word", "held", "changed", "narrower"),
    [
        ("fixed", {"amount": 500}, {"amount": 5}, False),
        ("fixed", {"amount": 500}, {"amount": 500}, True),
        ("fixed", {"cc": "a@example.com"}, {}, False),
        ("lower", {"widgets": 9}, {"widgets": 1}, True),
        ("lower", {"widgets": 9}, {"widgets": 10}, False),
        ("lower", {"widgets": "9"}, {"widgets": "1"}, True),
        ("lower", {"widgets": 9}, {}, False),
        ("remove", {"widgets": 9}, {}, True),
        ("remove", {"widgets": 9}, {"widgets": 1}, False),
        ("remove", {"widgets": ["x", "y"]}, {"widgets": []}, True),
        ("shorten", {"widgets": "one two"}, {"widgets": "two"}, True),
        ("shorten", {"widgets": "one two"}, {"widgets": "three"}, False),
    ],
)
def test_the_registry_says_otherwise_of_single_arguments(
    word: Narrowing, held: dict[str, Any], changed: dict[str, Any], narrower: bool
) -> None:
    for name in ("/widgets", "widgets", "/amount", "/cc"):
        if name.rpartition("/")[2] in held:
            assert (refused_at("note", held, changed, declared={name: word}) is None) is narrower


def test_a_word_begins_a_line_only_where_it_did() -> None:
    assert is_shortened("a b\nc d", "a\nc")
    assert is_shortened("a b\nc d", "a d")
    assert is_shortened("a b\nc d", "[redacted]\nc")
    assert is_shortened("a b\n\nc\n", "a b\n")
    for other in ("a\nd", "\na", "a\tb", "a b\nc d e", "*** *** *** *** ***", "a b c\nd", "a b c d\r\n"):
        assert not is_shortened("a b\nc d", other), other


def test_a_long_list_is_compared_once() -> None:
    """Each member is held against one other at a time: ten thousand of them are no more than that."""
    held = {"ids": [f"row-{number}" for number in range(10_000)]}
    assert refused_at("pick", held, {"ids": held["ids"][1::2]}) is None
    assert refused_at("pick", held, {"ids": [*held["ids"][1::2], "row-0"]}) == "/ids/5000"
