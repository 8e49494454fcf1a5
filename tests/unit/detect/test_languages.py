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
from aegis.detect.languages.syntax import language_of
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
