"""Options are read in full and paths without detours, before anything compares them."""

from __future__ import annotations

import pytest

from aegis.detect.facts import Effort
from aegis.detect.operands import plain, plain_word, runs
from aegis.detect.shell.tree import parse_shell, word


def args(text: str) -> tuple[str, ...]:
    return plain(parse_shell(text, Effort()).commands[0]).args


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rm --recurs --forc /", ("--recursive", "--force", "/")),
        ("rm --no-pres x", ("--no-preserve-root", "x")),
        ("chmod --rec 777 /etc/./x", ("--recursive", "777", "/etc/x")),
        ("chown --from=a --re=/a//b c", ("--from=a", "--re=/a/b", "c")),  # begins two options
        ("git log --onelin", ("log", "--onelin")),
        ("dd of=/dev//sda if=../x", ("of=/dev/sda", "if=../x")),
        ("curl -d @/etc/./shadow x", ("-d", "@/etc/shadow", "x")),
        ("cat /etc/{a,b} 'c{d,e}'", ("/etc/a", "/etc/b", "c{d,e}")),
        ("sed 's//x/' a", ("s//x/", "a")),
        ("awk '{print $1, $2}' a//b", ("{print $1, $2}", "a//b")),
        ("rm -rf a/..", ("-rf", ".")),
        ("curl https://a//b/../c", ("https://a//b/../c",)),
    ],
)
def test_words_are_written_out(text: str, words: tuple[str, ...]) -> None:
    assert args(text) == words


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("-C/etc/../x", "-C/x"),
        ("--file=file:///a/./b", "--file=/a/b"),
        ("a=b//c", "a=b//c"),
        ("", ""),
        ("/a b/./c", "/a b/./c"),
    ],
)
def test_a_path_inside_of_a_word_is_plain(text: str, plain: str) -> None:
    assert plain_word(text) == plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a\"b c\"'d'", "ab cd"),
        ("'a'\"'\"'b'", "a'b"),
        (r'"\$x\"\\y\z"', r'$x"\y\z'),
        (r"a\ b\\c", "a b\\c"),
        ('"abc', "abc"),
        ("a\\\nb", "ab"),
        ("''", ""),
    ],
)
def test_quoting_is_undone_as_a_shell_undoes_it(text: str, value: str) -> None:
    assert word(text) == value


def test_a_command_knows_its_folder_and_what_takes_its_output() -> None:
    found = list(runs(parse_shell("cd /a && A=1 find . | xargs -0 cat; cd ../b; ls", Effort()).commands))
    assert [(one.name, one.folder, one.feeds, one.settings) for one in found] == [
        ("cd", "", (), ()),
        ("find", "/a", ("xargs cat",), ("A=1",)),
        ("xargs", "/a", (), ()),
        ("cd", "/a", (), ()),
        ("ls", "/b", (), ()),
    ]
