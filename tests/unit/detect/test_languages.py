"""Programs in every language: their examples, what is followed, and that no text is too much for a parser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.effects import names_matched
from aegis.detect.built_sql import built_statements
from aegis.detect.code import LANGUAGES, MAX_CODE, CodeLanguage, analyse_code, parse_code
from aegis.detect.facts import Effort
from aegis.detect.languages.calls import builtin_calls
from aegis.detect.languages.syntax import language_of, spelled
from aegis.detect.queries import query_effects

_FOUND = [(file.languages[0], one.code, one.effect) for file in builtin_calls() for one in file.examples.found]
_PASS = [(file.languages[0], code) for file in builtin_calls() for code in file.examples.passes]
# What the grammars meet: signs of every language, names that the analysers know, and halves of constructs.
_PIECES = [
    "'", '"', "`", "\"\"\"", "${", "#{", "{", "}", "(", ")", "[", "]", ";", "\n", "\n    ", " ", "=", "+=", ":=", "=>",
    "->", "::", ".", "+", "/", "%", "<<E\n", "E\n", "<?php ", "@\"", "$\"{", "r'", "f'{x}", "\\", "\\x2f", "#",
    "//", "/*",
    "*/", "def a(b):", "function a(b) {", "for x in ", "foreach ($a as $b)", "a", "b", "$a", "@b", "%w[",
    "qw(", "my ", "const ",
    "open(", "os.remove(", "shutil.rmtree(", "fs.rmSync(", "unlink ", "File.delete(", "Files.delete(", "os.RemoveAll(",
    "'/etc'", "'/etc/' + ", "os.path.join(", "subprocess.run([", "eval(", "\u00e9", "\u212a", "{1..", "0", "-1",
]  # fmt: skip


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize(("language", "code", "effect"), _FOUND)
def test_an_example_has_its_effect(language: CodeLanguage, code: str, effect: str) -> None:
    assert effect in {one.name for one in analyse_code(code, language).effects}


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize(("language", "code"), _PASS)
def test_an_example_that_passes_touches_nothing_of_the_system(language: CodeLanguage, code: str) -> None:
    harmful = names_matched("write|delete|permit *") - names_matched("* file")
    assert {one.name for one in analyse_code(code, language).effects} & harmful == set()


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=15)
@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=40))
def test_no_text_is_too_much_for_a_language(language: CodeLanguage, pieces: list[str]) -> None:
    text = "".join(pieces)
    first, second = (analyse_code(text, language) for _ in range(2))
    assert (first.effects, first.signals, first.too_long) == (second.effects, second.signals, second.too_long)


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize("language", ["ruby", "go", "perl", "csharp", "java", "typescript"])
@pytest.mark.parametrize("piece", ["%w[", "('('('", "'a'b\"c\"``''\"\"([{<", '"${', "f(a=f("])
def test_a_text_that_no_grammar_closes_is_not_read_whole(language: CodeLanguage, piece: str) -> None:
    assert parse_code((piece * MAX_CODE)[:MAX_CODE], language, Effort()).cut


@given(st.text(alphabet=st.sampled_from("ExecDROPTABLE '|+(),;$@:=\n concat char 65"), max_size=300))
def test_statements_that_are_built_are_read_without_failing(text: str) -> None:
    built_statements(text)
    query_effects(text)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("require 'fileutils'\nFileUtils.rm_rf('x')", "ruby"),
        ("use strict;\nmy $a = 1;", "perl"),
        ("package main\nfunc main() {}", "go"),
        ('using System.IO;\nFile.Delete("a");', "csharp"),
        ('import java.nio.file.*;\nFiles.delete(Path.of("a"));', "java"),
        ("interface A { b: string }\nconst c: A = d;", "typescript"),
        ("print('a')", "python"),
        ("const a = require('fs')", "javascript"),
    ],
)
def test_a_language_is_told_by_how_it_is_written(text: str, language: CodeLanguage) -> None:
    assert language_of(text) == language


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize(
    "text", ["<<E\n$)", '<<"E"\n$)', "<<~E\n@)", "<<E;<<F;\nx\nE\n$)", '<<"E F"\n$)', "print <<E . <<'F'\n\\x $("]
)
def test_a_document_of_perl_that_does_not_end_is_read_in_finite_time(text: str) -> None:
    assert analyse_code(f"unlink '/etc/passwd';\n{text}", "perl").effects


def test_a_document_of_perl_that_ends_is_read_as_it_stands() -> None:
    held = analyse_code("my $a = <<E;\nunlink '/etc/passwd';\nE\nprint $a;", "perl")
    assert not held.effects


@pytest.mark.parametrize(
    ("text", "hint", "language"),
    [
        ('fn main() { println!("a"); }', "", "rust"),
        ("import Foundation\nprint(1)", "", "swift"),
        ("fun main() { println(1) }", "", "kotlin"),
        ("local a = 1", "", "lua"),
        ("x <- c(1, 2)", "", "r"),
        ("print('a')", "trust_evaluate", "python"),
        ("print('a')", "escalate", "python"),
        ("f(1)", "run_julia", "julia"),
        ("f(1)", "run_elixir", "elixir"),
        ('File.rm!("a")', "", "elixir"),
    ],
)
def test_a_language_without_a_grammar_is_told(text: str, hint: str, language: CodeLanguage) -> None:
    assert language_of(text, hint) == language


@pytest.mark.claim("DET-81")
@pytest.mark.parametrize("piece", ["a.b(", "a |> ", '"${', "x.y().", "[", "{ it -> ", "a + ", "for x in "])
@pytest.mark.parametrize("language", ["rust", "kotlin", "r"])
def test_signs_are_read_once(language: CodeLanguage, piece: str) -> None:
    short, long = (Effort() for _ in range(2))
    head = "unlink(fs::remove_file(.delete(\n"
    analyse_code(head + piece * (MAX_CODE // 2 // len(piece)), language, short)
    analyse_code((head + piece * MAX_CODE)[:MAX_CODE], language, long)
    assert Effort().left - long.left <= 3 * (Effort().left - short.left)


def test_what_stands_in_a_literal_is_not_rewritten() -> None:
    page = "<?php system($_GET['c']); ?>"
    for quoted in (f'"{page}"', f"`{page}`"):
        program = f"""require('fs').writeFileSync('public/x.php', {quoted}); show(process['e' + "nv"])"""
        assert spelled(program, "javascript") == program.replace("""process['e' + "nv"]""", "process.env")
