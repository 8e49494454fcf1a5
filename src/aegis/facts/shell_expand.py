"""What the words of a command are once the variables and substitutions in them that are known are put in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import re2

from aegis.facts.files import MAX_FLOW, Flow
from aegis.facts.shell_heredocs import literal
from aegis.facts.shell_tree import Command

_USED: Final = re2.compile(r"\$(?:([A-Za-z_]\w*|[@*0-9])|\{([A-Za-z_]\w*|[@*0-9])(?:\[[@*]\])?\})")


class Word(NamedTuple):
    """A word with everything known put in; whether that had to be worked out, and the files that parts come from."""

    text: str
    computed: bool = False
    files: tuple[str, ...] = ()


class Variables:
    """The variables of a text so far as they are known, and the words that hold them."""

    def __init__(self) -> None:
        self.known: dict[str, Word] = {}

    def words(self, command: Command, substitutes: dict[str, Flow]) -> tuple[list[str], bool, list[str]]:
        """The words of a command as they are once everything known is put in.

        With them whether that had to be worked out, and the files that parts of them come from.
        """
        words: list[str] = []
        files: list[str] = []
        any_computed = False
        for raw in command.words or (command.name, *command.args):
            if "$" not in raw and "`" not in raw:
                words.append(literal(raw))
                continue
            value, computed, of_files = self.word(raw, substitutes)
            files += of_files
            any_computed = any_computed or (computed and value != "")
            if computed and '"' not in raw and (words or value):
                words += value.split()
            else:
                words.append(value)
        return words, any_computed, files

    def word(self, raw: str, substitutes: dict[str, Flow]) -> Word:
        if raw[:1] == "'" and raw[-1:] == "'" and "'" not in raw[1:-1]:
            return Word(raw[1:-1])
        computed = False
        files: list[str] = []
        pieces: list[str] = []
        for source, flow in substitutes.items():
            if source in raw:
                raw = raw.replace(source, f"\0{len(pieces)}\0")
                pieces.append(flow.text.rstrip("\n"))
                files += flow.files
                computed = True
        if "$" in raw and self.known:

            def value(match: Any) -> str:
                nonlocal computed
                known = self.known.get(match.group(1) or match.group(2))
                if known is None:
                    return str(match.group())
                computed = computed or known.computed
                files.extend(known.files)
                pieces.append(known.text)
                return f"\0{len(pieces) - 1}\0"

            raw = _USED.sub(value, raw)
        word = literal(raw)
        if pieces and "\0" in word:
            parts = word.split("\0")
            parts[1::2] = [
                pieces[int(part)] if part.isdecimal() and int(part) < len(pieces) else "" for part in parts[1::2]
            ]
            word = "".join(parts)[:MAX_FLOW]
        return Word(word, computed, tuple(files))

    def expand(self, text: str) -> str:
        """A text with the variables in it that are known."""
        if "$" not in text or not self.known:
            return text

        def value(match: Any) -> str:
            known = self.known.get(match.group(1) or match.group(2))
            return str(match.group()) if known is None else known.text

        return str(_USED.sub(value, text))[:MAX_FLOW]
