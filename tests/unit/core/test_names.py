from __future__ import annotations

import pytest

from aegis.core.names import Selector, SelectorMap, glob_match, normalise_name, split_selector


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("bash", "bash", True),
        ("bash", "bash_admin", False),
        ("bash", "abash", False),
        ("bash*", "bash_admin", True),
        ("*", "", True),
        ("*", "anything", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("run_*_now", "run_it_now", True),
        ("run_*_now", "run_now", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*bc*c", "abc", False),
        ("a*b*b", "ab", False),
        ("**", "x", True),
        ("", "", True),
        ("", "x", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, name: str, matches: bool) -> None:
    assert glob_match(pattern, name) is matches


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Send_Email", "send_email"),
        (" bash\t", "bash"),
        ("ｂａｓｈ", "bash"),
        ("ba\u200bsh", "bash"),
        ("bash\ufe0f", "bash"),
        ("\u200b bash", "bash"),
        ("ﬁle", "file"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("e\u0301", "é"),
        ("e\u200b\u0301", "é"),
    ],
)
def test_names_that_look_the_same_are_the_same(name: str, expected: str) -> None:
    assert normalise_name(name) == expected


def test_the_last_slash_divides_server_and_tool() -> None:
    assert split_selector("mcp:a/b/send") == ("mcp:a/b", "send")
    assert split_selector("send") == (None, "send")
    assert split_selector("/send") == ("", "send")


@pytest.mark.parametrize(
    ("selector", "server", "tool", "matches"),
    [
        ("mail/send", "mail", "send", True),
        ("mail/send", "Mail", "SEND", True),
        ("mail/send", "mail2", "send", False),
        ("mail/send", None, "send", False),
        ("mail/*", "mail", "anything", True),
        ("*/send", "files", "send", True),
        ("*/send", None, "send", False),
        ("send", "mail", "send", True),
        ("send", None, "ｓｅｎｄ", True),
        ("＊", None, "anything", True),
    ],
)
def test_a_selector_covers_whole_names(selector: str, server: str | None, tool: str, matches: bool) -> None:
    assert Selector(selector).matches(server, tool) is matches


@pytest.mark.parametrize(
    ("selector", "exact"),
    [("send", True), ("mail/send", True), ("send*", False), ("ma*/send", False), ("＊", False), ("＊/send", False)],
)
def test_a_selector_knows_whether_it_names_one_tool(selector: str, exact: bool) -> None:
    assert Selector(selector).exact is exact


def test_the_most_specific_selector_wins() -> None:
    table = SelectorMap({
        "*": "all",
        "s*": "short",
        "send_*": "long",
        "mail/*": "server",
        "send_now": "tool",
        "mail/send_now": "both",
    })  # fmt: skip
    assert table.find("mail", "send_now") == "both"
    assert table.find("files", "send_now") == "tool"
    assert table.find(None, "SEND_NOW") == "tool"
    assert table.find("mail", "send_later") == "server"
    assert table.find("files", "send_later") == "long"
    assert table.find(None, "sort") == "short"
    assert table.find(None, "read") == "all"


def test_a_table_without_a_covering_selector_finds_nothing() -> None:
    assert SelectorMap({"mail/send": 1, "ba*": 2}).find("files", "send") is None
    assert SelectorMap[int]({}).find(None, "x") is None


def test_falsy_values_are_found() -> None:
    assert SelectorMap({"m/a": 0, "a": 1}).find("m", "a") == 0
    assert SelectorMap({"a": 0, "*": 1}).find(None, "a") == 0
