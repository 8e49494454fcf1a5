"""The signs of programs in languages without a grammar here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aegis.detect.languages.calls import Writing
from aegis.detect.languages.syntax import NodeParts, SignNode

NAME, STRING, NUMBER, SIGN = range(4)
BRACKETS: Final[Mapping[str, str]] = {")": "(", "]": "[", "}": "{"}
CLOSES: Final[Mapping[str, str]] = {"{": "}", "(": ")"}
_LINE: Final = "\x01"
_ALONE: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~")
_OPENS: Final = frozenset("\"'`#-/[")
_APART: Final = {ord(sign): f" {sign} " for sign in _ALONE} | {ord("\n"): f" {_LINE} ", 1: " "}
_DOTTED: Final = {sign: apart for sign, apart in _APART.items() if sign != ord(".")}
_LONG: Final = frozenset({
    "<<-", "<<", "%>%", "...", "..=", "|>", "->", "=>", "<-", ":=", "::", "?.", "?:", "??", "!!", "+=", "..", "<>",
    "++", "&&", "||", "==", "!=", "<=", ">=",
})  # fmt: skip
_LONGEST_CHARACTER: Final = 12
LONGEST_FILLED: Final = 300  # characters of what is put into a string


class Signs:
    """The signs of one text, and which brackets among them belong together."""

    def __init__(self, text: str, written: Writing):
        self._text = text
        self._written = written
        self.words: list[str] = []
        self._kinds: list[int] = []
        self._at: list[int] = []
        self._breaks: list[bool] = []  # whether a line ends before the sign
        self._pair: dict[int, int] = {}
        self._calls: dict[int, SignNode] = {}  # by the sign that is the name of what is called
        self._members = frozenset({".", "?.", "::", *written.members})
        self._keyed = frozenset({":", "=", "=>"}) - self._members  # between a key and its value
        self._split()

    # Signs

    def _split(self) -> None:
        """Divide the text into its signs, and say which brackets belong together."""
        text, words, kinds, find = self._text, self.words, self._kinds, self._text.find
        ended = False
        at = behind = 0
        waiting: list[int] = []
        for part in text.translate(_DOTTED if self._written.dotted else _APART).split():
            if part == _LINE:
                at = find("\n", at)
                ended = ended or at >= behind
                at += 1
                continue
            start = find(part, at)
            at = start + len(part)
            if start < behind:  # of a string, of a remark, or of a longer sign
                continue
            kind = SIGN
            if part in _OPENS:
                end, is_text = self._closed(start, part)
                if end:
                    behind = end
                    if not is_text:
                        continue
                    kind, part = STRING, text[start:end]
            elif part not in _ALONE:
                kind = NUMBER if part[0].isdigit() else NAME
            if kind == SIGN:
                longer = next((size for size in (3, 2) if text[start : start + size] in _LONG), 1)
                if part == "$" and text[start + 1 : start + 2].isdigit():
                    kind, longer = NAME, 2
                part = text[start : start + longer]
                behind = start + longer
                if part in ("(", "[", "{"):
                    waiting.append(len(words))
                elif part in BRACKETS and waiting and words[waiting[-1]] == BRACKETS[part]:
                    self._pair[len(words)] = waiting.pop()
                    self._pair[self._pair[len(words)]] = len(words)
            kinds.append(kind)
            words.append(part)
            self._at.append(start)
            self._breaks.append(ended)
            ended = False
        for one in waiting:  # what is never closed ends with the text
            self._pair[one] = len(words)

    def _closed(self, start: int, sign: str) -> tuple[int, bool]:
        """Where a string or a remark ends that begins at a sign, and whether it is a string; 0 where none begins."""
        text, comment = self._text, self._written.comment
        two = text[start : start + 2]
        if sign == comment or two == comment:
            closing = "\n" if comment != "--" or text[start + 2 : start + 4] != "[[" else "]]"
            return self._found(closing, start + 2) - (closing == "\n"), False
        if two == "/*":
            return (self._found("*/", start + 2), False) if comment == "//" else (0, False)
        if sign == "#" and comment == "//":  # of Rust and Swift, which say so where a string ends
            count = next((one for one in (1, 2, 3) if text[start + one : start + one + 1] == '"'), 0)
            return (self._found('"' + "#" * count, start + count + 1), True) if count else (0, False)
        if sign == "[":
            level = text[start + 1 : start + 8].find("[") if comment == "--" else -1
            closing = "]" + "=" * level + "]"
            is_long = level >= 0 and not text[start + 1 : start + 1 + level].strip("=")
            return (self._found(closing, start + level + 2), True) if is_long else (0, False)
        if sign == "'" and not self._written.quotes:  # one character
            end = text.find("'", start + 2, start + _LONGEST_CHARACTER)
            return (end + 1, True) if end == start + 2 or (end > 0 and two[1:] == "\\") else (0, False)
        if sign not in ("'", '"', "`"):
            return 0, False
        end = self._quoted(start, sign)
        while self._is_open(text[start:end]):
            inner = text.find(sign, end, start + LONGEST_FILLED)
            if inner < 0:
                break
            end = self._quoted(inner, sign)
            if end - start > LONGEST_FILLED:
                break
        return end, True

    def _found(self, closing: str, at: int) -> int:
        end = self._text.find(closing, at)
        return len(self._text) + (closing == "\n") if end < 0 else end + len(closing)

    def _quoted(self, start: int, quote: str) -> int:
        """Where a quote is closed; with the text where it never is."""
        text = self._text
        if text.startswith('"""', start):
            return self._found('"""', start + 3)
        end = text.find(quote, start + 1)
        while end > 0:
            before = end - 1
            while text[before] == "\\" and before > start:
                before -= 1
            if (end - before) % 2:
                return end + 1
            end = text.find(quote, end + 1)
        return len(text)

    def _is_open(self, string: str) -> bool:
        """Whether something is put into a string that is not closed where the string seems to end."""
        for begins in self._written.fills:
            if begins in string:
                rest = string[string.rindex(begins) :]
                return rest.count(begins[-1]) > rest.count(CLOSES[begins[-1]])
        return False

    def _word(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) and self._kinds[at] != STRING else ""

    def _is_name(self, at: int) -> bool:
        return 0 <= at < len(self.words) and self._kinds[at] == NAME

    def _slice(self, start: int, end: int) -> str:
        """The text from one sign to before another."""
        last = min(end, len(self.words)) - 1
        if last < start:
            return ""
        return self._text[self._at[start] : self._at[last] + len(self.words[last])]

    def _make(self, kind: str, start: int, end: int, read: Callable[[], NodeParts] | None = None) -> SignNode:
        return SignNode(kind, self._slice(start, end), self._at[start] if start < len(self._at) else 0, read)
