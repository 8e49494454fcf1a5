"""One answer through every door: what deleting, reading or writing a file means, whoever does it.

A tool for files, a cmdlet and a call of a library are judged as the shell's own command for the same file is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from aegis.core.effects import ResourceEffect, Verb
from aegis.detect.files import UNKNOWN, FileFlow, Written
from aegis.detect.operands import plain
from aegis.detect.shell.shell import ShellFacts, judge_command, judge_write
from aegis.detect.shell.tree import Command

_COMMANDS: Final[Mapping[Verb, tuple[str, ...]]] = {"delete": ("rm", "-r"), "read": ("cat",)}

_MOST: Final = 8  # files of one effect that are looked at


class Doorway(Protocol):
    """The facts of whoever touches a file."""

    irreversible: bool
    signals: list[tuple[str, str]]
    effects: list[ResourceEffect]
    written: list[Written]


def analyse_words(name: str, *args: str) -> ShellFacts:
    """The facts of one command given in words that stand for themselves, as a tool for files does without a shell."""
    facts = ShellFacts()
    judge_command(plain(Command(name, args, " ".join((name, *args)), 0, 0, False)), facts, 0, known=True)
    return facts


def analyse_write(target: str, flow: FileFlow) -> ShellFacts:
    """The facts of writing what is known of a text to a file, as of a statement of a shell that does."""
    facts = ShellFacts()
    text = flow.text or ("..." if flow.gap else "")  # what nobody knows is not nothing
    judge_write(target, f"{text}\n> {target}" if text else f": > {target}", facts)
    return facts


def through_door(verb: Verb, path: str, flow: FileFlow | None, facts: Doorway, whole: bool = True) -> bool:
    """Add what touching a file that is named as Unix names it means; false where it is named otherwise.

    `flow` is what is known of what is written, `None` where whoever writes says what it does to which resource.
    A folder is deleted `whole`, or only where it is empty.
    """
    if not is_of_unix(path) or (verb != "write" and verb not in _COMMANDS):
        return False
    if verb == "write" and flow is not None:
        facts.written.append(Written(path, flow))
        return True
    words = _COMMANDS.get(verb, ())[: None if whole else 1]
    found = analyse_write(path, UNKNOWN) if verb == "write" else analyse_words(*words, path)
    facts.signals.extend(found.signals)
    facts.effects.extend(found.effects)
    facts.irreversible |= found.irreversible
    return True


def take_doors(effects: Iterable[ResourceEffect], hole: str, facts: Doorway) -> None:
    """Add what it means to write and delete the files of `effects`; `hole` stands for what is not known of a name."""
    for effect in effects:
        for path in effect.values[:_MOST] if effect.verb in ("write", "delete") else ():
            through_door(effect.verb, path.replace(hole, "VALUE"), None, facts)


def is_of_unix(path: str) -> bool:
    """Whether a path is spelled as those of Unix are: from its root, or from the home of a user."""
    return path.startswith(("/", "~/", "$HOME/", "$env:HOME/")) and not path.startswith("//")


def given_text(command: Command) -> FileFlow:
    """What a cmdlet writes into a file, where its words say it: `Set-Content a.txt x`."""
    words = [word for word in command.args if word[:1] != "-"]
    _, *texts = words or [""]
    known = command.name == "set-content" and len(texts) == 1 and "$" not in texts[0]
    return FileFlow(texts[0]) if known else UNKNOWN
