"""The texts that a shell text holds in itself: here-documents and here-strings (POSIX.1-2017, 2.7.4; bash(1)).

They are taken out before the grammar reads the rest, so that no line of a document is read as a command that it is
not, and none that a shell would run stays unread because the grammar lost its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_MARK: Final = "_here_"  # the name of the file that stands in place of the document
_BLANKS: Final = " \t"
_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")
_MOST: Final = 256  # documents of one text that are taken out; what follows is read as it stands
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": "", "E": ""}
_HEX_LENGTH: Final = {"x": 2, "u": 4, "U": 8}


class Given(NamedTuple):
    """One text that a shell text holds; `plain` says that nothing in it is expanded."""

    text: str
    plain: bool


class Extracted(NamedTuple):
    """A shell text in which each here-document and here-string is a file that is read, and their texts in order."""

    text: str
    given: tuple[Given, ...]


def extracted(text: str) -> Extracted:
    """Take here-documents and here-strings out of `text`; linear in its length.

    A document without its last line goes to the end, as shells read it; its lines are then kept as commands too.
    Substitutions inside of documents run where they stand: they follow the text as arguments of `:`.
    """
    if "<<" not in text:
        return Extracted(text, ())
    return _Scan(text).result()


def given_by(target: str, given: Sequence[Given]) -> Given | None:
    """The text that stands for the file `target` of an extracted text, or `None`."""
    number = target.removeprefix(_MARK)
    if number == target or not number.isdecimal() or not number.isascii() or len(number) > 3:
        return None
    return given[int(number)] if int(number) < len(given) else None


def restored(text: str, given: Sequence[Given]) -> str:
    """A piece of an extracted text with the texts that it reads written behind it."""
    if not given or _MARK not in text:
        return text
    read = [one.text for number, one in enumerate(given) if f"{_MARK}{number}" in text.split()]
    return "\n".join([text, *read])


class _Scan:
    """One pass over a text: quotes, substitutions, arithmetic and comments, so far as they hide a `<<`."""

    def __init__(self, text: str):
        self._text = text
        self._lines = _line_starts(text)
        self._out: list[str] = []
        self._given: list[Given] = []
        self._live: list[str] = []  # what runs inside of documents
        self._pending: list[tuple[int, str, bool, bool]] = []  # number, delimiter, quoted, tabs stripped
        self._inside: list[str] = []  # of what: `"`, `(`, `((` or a backquote
        self._seen = bytearray(len(text) + 2)  # where documents that do not end were looked at

    def result(self) -> Extracted:
        text, at, copied = self._text, 0, 0
        length = len(text)
        while at < length:
            char = text[at]
            if char == "\\":
                at += 2
            elif char == "\n" and self._pending:
                self._out.append(text[copied : at + 1])
                at = copied = self._documents(at + 1)
            elif char == "<" and text.startswith("<<", at) and self._reads() and len(self._given) < _MOST:
                start, end = at, self._redirect(at)
                if end > start:
                    self._out += (text[copied:start], f"< {_MARK}{len(self._given) - 1} ")
                    copied = at = end
                else:
                    at += 2
            else:
                at = self._step(at, char)
        self._out.append(text[copied:])
        self._documents(length)
        if self._live:
            self._out.append("\n: " + " ".join(self._live) + "\n")
        return Extracted("".join(self._out), tuple(self._given))

    def _reads(self) -> bool:
        return not self._inside or self._inside[-1] != '"'

    def _step(self, at: int, char: str) -> int:
        """Go over one sign that is no redirection; where the next begins."""
        text, inside = self._text, self._inside
        top = inside[-1] if inside else ""
        if char == '"':
            if top == '"':
                inside.pop()
            else:
                inside.append('"')
        elif char == "'" and top != '"':
            ansi = at > 0 and text[at - 1] == "$"
            end = _closing(text, at + 1) if ansi else text.find("'", at + 1)
            return len(text) if end < 0 else end + 1
        elif char == "$" and text.startswith("$(", at):
            inside.append("((" if text.startswith("$((", at) else "(")
            return at + (3 if inside[-1] == "((" else 2)
        elif char == "(" and top != '"':
            inside.append("((" if text.startswith("((", at) else "(")
            return at + (2 if inside[-1] == "((" else 1)
        elif char == ")" and top in {"(", "(("}:
            inside.pop()
            return at + (2 if top == "((" and text.startswith("))", at) else 1)
        elif char == "`":
            if "`" in inside:
                while inside.pop() != "`":
                    pass
            else:
                inside.append("`")
        elif char == "#" and top != '"' and (at == 0 or text[at - 1] in " \t\n;&|("):
            end = text.find("\n", at)
            return len(text) if end < 0 else end
        return at + 1

    def _redirect(self, at: int) -> int:
        """Take in the redirection at `at`; where it ends, or `at` where it is none."""
        text = self._text
        is_string = text.startswith("<<<", at)
        begin = at + (3 if is_string or text.startswith("<<-", at) else 2)
        while begin < len(text) and text[begin] in _BLANKS:
            begin += 1
        end = _word_end(text, begin)
        raw = text[begin:end]
        if not raw:
            return at
        quoted = any(sign in raw for sign in "'\"\\")
        delimiter = literal(raw)
        if is_string:
            self._given.append(Given(delimiter, "'" in raw and '"' not in raw))
            if "$(" in raw or "`" in raw:
                self._live.append(raw)
            return end
        if self._inside and self._inside[-1] == "((" and delimiter.rstrip(")") not in self._lines:
            return at
        self._pending.append((len(self._given), delimiter, quoted, text.startswith("<<-", at)))
        self._given.append(Given("", quoted))
        return end

    def _documents(self, at: int) -> int:
        """Read the documents that wait for the line at `at`; where the text goes on behind them."""
        text = self._text
        ended = False  # a document without its last line took what follows
        for number, delimiter, quoted, tabs in self._pending:
            if ended:
                break
            lines: list[str] = []
            start, closed = at, False
            places = self._lines.get(delimiter)
            if places is not None and places[-1] >= at:
                while at < len(text) and not closed:
                    end = text.find("\n", at)
                    end = len(text) if end < 0 else end
                    line = text[at:end]
                    line = line.lstrip("\t") if tabs else line
                    closed = line.rstrip("\r") == delimiter
                    if not closed:
                        lines.append(line)
                    at = min(end + 1, len(text))
            body = "\n".join(lines) if closed else text[start:]
            if not closed:
                at, ended = start, True
            if not quoted:
                self._live += _substitutions(body) if closed else _substitutions(text, start, self._seen)
                body = body.replace("\\\n", "").replace("\\$", "$").replace("\\`", "`").replace("\\\\", "\\")
            self._given[number] = Given(body, quoted)
        self._pending.clear()
        return at


def _line_starts(text: str) -> dict[str, list[int]]:
    """Where each line of a text stands, without the tabs before it and blanks of old systems behind it."""
    places: dict[str, list[int]] = {}
    at = 0
    for line in text.split("\n"):
        places.setdefault(line.rstrip("\r"), []).append(at)
        stripped = line.rstrip("\r").lstrip("\t")
        if stripped != line:
            places.setdefault(stripped, []).append(at)
        at += len(line) + 1
    return places


def _word_end(text: str, at: int) -> int:
    """Where the word that begins at `at` ends; quotes and substitutions belong to it."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"":
            end = text.find("'", at + 1) if char == "'" else _closing(text, at + 1, '"')
            if end < 0:
                return len(text)
            at = end
        elif char == "(" and (depth or text[at - 1] == "$"):
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif char == "`":
            end = text.find("`", at + 1)
            at = len(text) if end < 0 else end
        elif char in _ENDS_WORD and not depth:
            return at
        at += 1
    return min(at, len(text))


def _closing(text: str, at: int, quote: str = "'") -> int:
    """Where the quoted text that began before `at` ends, backslashes seen; -1 where it does not."""
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == quote:
            return at
        at += 1
    return -1


def _substitutions(body: str, at: int = 0, seen: bytearray | None = None) -> list[str]:
    """The command substitutions of a document that is expanded, as they are written.

    Where an earlier look at the same text was, in `seen`, it found what follows.
    """
    found: list[str] = []
    while at < len(body):
        if seen is not None:
            if seen[at]:
                break
            seen[at] = 1
        char = body[at]
        if char == "\\":
            at += 2
        elif char == "$" and body.startswith("$(", at):
            end = _word_end(body, at)
            found.append(body[at:end])
            at = max(end, at + 1)
        elif char == "`":
            end = body.find("`", at + 1)
            if end < 0:
                break
            found.append(body[at : end + 1])
            at = end + 1
        else:
            at += 1
    return found


def literal(raw: str) -> str:
    """A shell word with its quoting undone as a shell does it, `$'...'` included."""
    if "'" not in raw and '"' not in raw and "\\" not in raw:
        return raw
    out: list[str] = []
    at, quoted = 0, False
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            following = raw[at + 1]
            if following == "\n":
                pass
            elif quoted and following not in '$`"\\':
                out += (char, following)
            else:
                out.append(following)
            at += 2
        elif char == '"':
            quoted = not quoted
            at += 1
        elif char == "'" and not quoted:
            ansi = bool(out) and out[-1] == "$" and raw[at - 1] == "$"
            end = _closing(raw, at + 1) if ansi else raw.find("'", at + 1)
            end = len(raw) if end < 0 else end
            inner = raw[at + 1 : end]
            if ansi:
                out[-1] = unescaped(inner)
            else:
                out.append(inner)
            at = end + 1
        else:
            out.append(char)
            at += 1
    return "".join(out)


def unescaped(text: str) -> str:
    r"""What `echo -e`, `printf` and `$'...'` make of backslash escapes: `\n`, `\x72`, `\162`, `\u0072`."""
    first, *pieces = text.split("\\")
    out = [first]
    pending = False  # a backslash that quotes the next one
    for piece in pieces:
        if pending:
            out += ("\\", piece)
            pending = False
        elif not piece:
            pending = True
        else:
            out.append(_escape(piece))
    if pending:
        out.append("\\")
    return "".join(out)


def _escape(piece: str) -> str:
    lead = piece[0]
    if lead in _HEX_LENGTH:
        digits = _leading(piece[1:], "0123456789abcdefABCDEF", _HEX_LENGTH[lead])
        if digits:
            code = int(digits, 16)
            return (chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else "") + piece[1 + len(digits) :]
    digits = _leading(piece, "01234567", 4 if lead == "0" else 3)
    if digits:
        return chr(int(digits, 8) & 0xFF) + piece[len(digits) :]
    if lead in _NAMED:
        return _NAMED[lead] + piece[1:]
    return piece if lead in "'\"?" else "\\" + piece


def _leading(text: str, among: str, most: int) -> str:
    head = text[:most]
    return head[: len(head) - len(head.lstrip(among))]
