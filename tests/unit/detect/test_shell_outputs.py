from __future__ import annotations

import pytest

from aegis.detect.files import EMPTY, MAX_FLOW, UNKNOWN_GAP, FileFlow, local
from aegis.detect.shell.outputs import printed


@pytest.mark.parametrize(
    ("name", "args", "stdin", "out"),
    [
        ("echo", ["a", "b"], "", "a b\n"),
        ("echo", ["-n", "a"], "", "a"),
        ("echo", ["-e", "\\x41"], "", "A\n"),
        ("echo", ["-E", "\\x41"], "", "\\x41\n"),
        ("printf", ["%s-%s\\n", "a", "b", "c", "d"], "", "a-b\nc-d\n"),
        ("printf", ["\\162\\155%%%c%d%x", "zz", "7", "255"], "", "rm%z7ff"),
        ("cat", [], "x", "x"),
        ("cat", ["-"], "x", "x"),
        ("tee", ["f"], "x", "x"),
        ("rev", [], "ab\ncd", "ba\ndc"),
        ("tac", [], "a\nb", "b\na"),
        ("tr", ["a-c", "x-z"], "abc!", "xyz!"),
        ("tr", ["-d", "\\n"], "a\nb", "ab"),
        ("tr", ["[:upper:]", "[:lower:]"], "RM", "rm"),
        ("base64", ["-d"], "cm0=", "rm"),
        ("base32", ["--decode"], "OJWQ====", "rm"),
        ("openssl", ["base64", "-d", "-A"], "cm0=", "rm"),
        ("xxd", ["-r", "-p"], "72 6d", "rm"),
        ("xxd", ["-r"], "00000000: 726d  rm", "rm"),
        ("sed", ["s/X/rm/"], "X X", "rm X"),
        ("sed", ["-e", "s#X#/#g", "-e", "y/a/b/"], "XaX", "/b/"),
        ("sed", [r"s/\(a\)\(b\)/\2\1/"], "ab", "ba"),
        ("sed", ["-E", "s/(a)(b)/[&]/;s/x/y/"], "abx", "[ab]y"),
        ("head", ["-n", "1"], "a\nb", "a\nb"),
        ("jq", ["-r", ".a"], '{"a": "rm"}', '{"a": "rm"}\nrm'),
        ("cd", ["/"], "x", ""),
    ],
)
def test_what_is_printed_is_worked_out(name: str, args: list[str], stdin: str, out: str) -> None:
    assert printed(name, args, FileFlow(stdin), local).text == out


def test_what_nobody_can_know_is_said_to_be_unknown() -> None:
    for name, args in (("python", ["gen.py"]), ("base64", []), ("gunzip", []), ("sed", ["s/[/x/"])):
        assert printed(name, args, FileFlow("x"), local).gap == UNKNOWN_GAP


def test_a_file_that_was_there_before_is_named() -> None:
    assert printed("cat", ["a.sh"], EMPTY, local) == local("a.sh")


@pytest.mark.parametrize(
    ("name", "args", "stdin"),
    [
        ("printf", ["%99999999d", "1"], ""),
        ("printf", ["%s" * 9_000, *["x" * 100] * 9_000], ""),
        ("echo", ["x" * 99_999], ""),
        ("tr", ["\\001-\\377", "x"], "a" * MAX_FLOW),
        ("sed", ["s/a/" + "b" * 9_000 + "/g"], "a" * MAX_FLOW),
        ("jq", ["."], '["' + '","'.join("a" * 4_000) + '"]'),
    ],
)
def test_no_output_is_longer_than_what_is_read(name: str, args: list[str], stdin: str) -> None:
    assert len(printed(name, args, FileFlow(stdin), local).text) <= MAX_FLOW
