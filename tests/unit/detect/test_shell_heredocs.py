from __future__ import annotations

import pytest

from aegis.detect.shell.heredocs import Given, extracted, given_by, literal, restored, unescaped


@pytest.mark.parametrize(
    ("text", "left", "given"),
    [
        ("ls -la", "ls -la", ()),
        ("cat <<EOF > f\nx\nEOF\nls", "cat < _here_0  > f\nls", (Given("x", plain=False),)),
        ("cat <<'EOF'\n$x\nEOF", "cat < _here_0 \n", (Given("$x", plain=True),)),
        ("cat <<-X\n\ta\n\tX\n", "cat < _here_0 \n", (Given("a", plain=False),)),
        ("a <<A <<B\n1\nA\n2\nB\n", "a < _here_0  < _here_1 \n", (Given("1", plain=False), Given("2", plain=False))),
        ("bash <<< 'a b' -s", "bash < _here_0  -s", (Given("a b", plain=True),)),
        ("echo 'x <<EOF' \"<<EOF\" # <<EOF", "echo 'x <<EOF' \"<<EOF\" # <<EOF", ()),
        ("echo $((1<<2)) $(( x << y ))", "echo $((1<<2)) $(( x << y ))", ()),
        ("bash <<EOF\nrm x", "bash < _here_0 \nrm x", (Given("rm x", plain=False),)),
        ('x "$(cat <<\'E\'\nit\'s "q"\nE\n)"', 'x "$(cat < _here_0 \n)"', (Given('it\'s "q"', plain=True),)),
        ("cat <<EOF\n$(id) `pwd`\nEOF", "cat < _here_0 \n\n: $(id) `pwd`\n", (Given("$(id) `pwd`", plain=False),)),
    ],
)
def test_documents_are_taken_out_and_what_runs_inside_of_them_is_kept(
    text: str, left: str, given: tuple[Given, ...]
) -> None:
    assert extracted(text) == (left, given)


def test_a_document_is_found_again_by_the_file_that_stands_for_it() -> None:
    taken = extracted("cat <<EOF > f\nx\nEOF\n")
    assert given_by("_here_0", taken.given) == Given("x", plain=False)
    assert given_by("_here_1", taken.given) is None
    assert given_by("notes", taken.given) is None
    assert restored("cat < _here_0 > f", taken.given) == "cat < _here_0 > f\nx"


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("plain", "plain"), ("'a b'", "a b"), ('"a \\"b\\" \\n"', 'a "b" \\n'), ("$'\\x72m'", "rm"), ("a\\ b", "a b"),
        ("'a'\"b\"c", "abc"), ("$'a\\'b'", "a'b"), ("'open", "open"),
    ],
)  # fmt: skip
def test_words_are_unquoted_as_a_shell_does(raw: str, word: str) -> None:
    assert literal(raw) == word


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a\\nb", "a\nb"), ("\\x41\\101\\0101", "AAA"), ("\\\\n", "\\n"), ("\\u0041", "A"), ("\\q", "\\q"), ("\\", "\\")],
)
def test_escapes_are_undone_as_printf_does(text: str, plain: str) -> None:
    assert unescaped(text) == plain
