"""What a PowerShell text says that it does: its commands, with the values that it computes."""

from __future__ import annotations

import pytest

from aegis.detect.facts import Effort
from aegis.detect.shell.powershell import MAX_POWERSHELL, parse_powershell


def commands(text: str) -> list[tuple[str, ...]]:
    return [(command.name, *command.args) for command in parse_powershell(text, Effort()).commands if command.name]


@pytest.mark.claim("DET-90")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gci -r C:\\a | ri -fo", [("gci", "-r", "C:\\a"), ("ri", "-fo")]),
        ("a; b && c || d", [("a",), ("b",), ("c",), ("d",)]),
        ("i`e`x 'a b'", [("iex", "a b")]),
        ("& ('i' + 'ex') x", [("iex", "x")]),
        (". ('{1}{0}' -f 'x', 'ie') y", [("iex", "y")]),
        ("& ([char]105+[char]101+[char]120) y", [("iex", "y")]),
        ("&($env:comspec[4,15,25] -join '') y", [("iex", "y")]),
        ("&((105,101,120 | % { [char]$_ }) -join '') y", [("%", " [char]$_ "), ("iex", "y")]),
        ("& ('xei'[-1..-3] -join '') y", [("iex", "y")]),
        ("& ('iQeQx' -replace 'Q','') y", [("iex", "y")]),
        ("& 'iQeQx'.Replace('Q','') y", [("iex", "y"), (".replace", "Q", "")]),
        ("$a = 'C:'; $b = \"$a\\x\"; del $b", [("del", "C:\\x")]),
        ("$a = 'x'; $a += 'y'; del $a", [("del", "xy")]),
        ("$p = @{Path='C:\\x'; Recurse=$true; Force=$false}\nri @p", [("ri", "-path", "C:\\x", "-recurse:$true")]),
        ("$p = @{}; $p['Path'] = 'C:\\x'; $p.Force = 3 -gt 2; ri @p", [("ri", "-path", "C:\\x", "-force:$true")]),
        ("$p = @{}; foreach ($n in 'A','B') { $p[\"No$n\"] = !0 }; f @p", [("f", "-noa:$true", "-nob:$true")]),
        ("$p = @{}; $q = $p; $q.Set_Item('W', [bool]1 -and -not 1); f @p", [(".set_item", "W", "$false"), ("f",)]),
        ("'x','y' | % { ri \"C:\\$_\" }", [("%", ' ri "C:\\$_" '), ("ri", "C:\\x", "C:\\y")]),
        ("ri ('C:\\' + ('x','y')[1])", [("ri", "C:\\y")]),
        ("ri ([IO.Path]::Combine('a', 'D:\\b', 'c'))", [("ri", "D:\\b\\c"), ("[io.path]::combine", "a", "D:\\b", "c")]),
        ("ri ([IO.Path]::GetPathRoot('C:\\a\\b'))", [("ri", "C:\\"), ("[io.path]::getpathroot", "C:\\a\\b")]),
        ("del a, b, 'c d'", [("del", "a", "b", "c d")]),
        ("[IO.File]::Delete('C:\\x')", [("[io.file]::delete", "C:\\x")]),
        ("(gi x).Delete()", [("gi", "x"), (".delete",)]),
        ("if (a) { b } else { c }; d", [("a",), ("b",), ("c",), ("d",)]),
        ("foreach ($x in 'a','b') { del $x }", [("del", "a", "b")]),
        ("function f { param($q = 'z') del $q }\nf", [("del", "z"), ("f",)]),
        ("icm -cn s { a; b }", [("icm", "-cn", "s", " a; b "), ("a",), ("b",)]),
        ("@'\na b\n'@ | iex", [("iex",)]),
        ("del a # b\n<# c\n#> d", [("del", "a"), ("d",)]),
        ("Get-Item “C:\\a b” –Force", [("get-item", "C:\\a b", "-Force")]),
        ("a > b.txt 2>&1", [("a",)]),
        ("\"x $(del y) z\"", [("del", "y")]),
    ],
)  # fmt: skip
def test_a_text_is_read_as_its_commands(text: str, expected: list[tuple[str, ...]]) -> None:
    assert sorted(commands(text)) == sorted(expected)


def test_base64_is_followed_in_both_encodings() -> None:
    assert ("iex", "Write-Host hi") in commands(
        "iex ([Text.Encoding]::UTF8.GetString([Convert]::FromBase64String('V3JpdGUtSG9zdCBoaQ==')))"
    )


def test_what_is_fetched_and_what_is_piped_is_known_of_a_command() -> None:
    script = parse_powershell("$t = (New-Object Net.WebClient).DownloadString($u)\niex $t", Effort())
    place = next(at for at, command in enumerate(script.commands) if command.name == "iex")
    assert script.flows[place] == {"fetched"}
    script = parse_powershell("'rm x' | iex", Effort())
    assert script.texts == {0: (("rm x",), True)}


def test_redirections_write_files() -> None:
    assert parse_powershell("echo a > C:\\x\\y.txt", Effort()).writes == [("C:\\x\\y.txt", 0)]


def test_a_text_beyond_the_bound_is_not_read() -> None:
    assert parse_powershell("a " * MAX_POWERSHELL, Effort()).cut
    assert parse_powershell("a " * 100, Effort(left=10)).cut


@pytest.mark.parametrize("text", ["(" * 8_000, "$(" * 5_000, "@{a=" * 4_000, "{" * 9_000, "$a=" * 5_000])
def test_depth_is_bounded(text: str) -> None:
    assert parse_powershell(text, Effort()).cut


def test_values_that_double_are_bounded() -> None:
    script = parse_powershell("$a = 'x' * 9000; " + "$a += $a; $b = $a -replace 'x','yy'; " * 300, Effort())
    assert script.cut
