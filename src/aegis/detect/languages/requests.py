"""What a program asks of a cloud by its library, as the command line that asks the same.

The libraries of a cloud are made of one description of its operations, and so is its command line: `delete_trail` of
Python, `DeleteTrailCommand` of JavaScript and `aws cloudtrail delete-trail` are one request. So what is known of the
command line in `data/programs` is known of every library.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import re2
from tree_sitter import Node

from aegis.detect.languages.syntax import Called, text_of
from aegis.detect.languages.values import NameScope
from aegis.detect.shell.catalogue import builtin_programs

SPEAKS_OF_CLOUD: Final = re2.compile(
    r"(?i)\bboto|\bbotocore|aws-sdk|aws_sdk|amazonaws|\bAWS\b|Amazon\.|/aws/|\baioboto"
)
_CLOUD: Final = "aws"
_ENDINGS: Final = ("command", "request", "async", "input", "withcontext")
_PLAIN: Final = re2.compile(r"[\s'\"`]+")
_CAPITAL: Final = re2.compile(r"([a-z0-9])([A-Z])")
_LONGEST: Final = 1_000  # characters of an argument that are compared
_MOST_OPTIONS: Final = 24


def squashed(name: str) -> str:
    """A name in small letters without what joins its words, and without what a library adds to an operation's."""
    plain = name.replace("_", "")
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending)
    return plain


@cache
def cloud_operations() -> Mapping[str, str]:
    """The operations of a cloud that are known for what they do: the words of the command line for each."""
    program = builtin_programs()[_CLOUD]
    phrases = [words for deed in program.deeds for words in deed.words]
    phrases += [words for use in program.does for words in use.when]
    found: dict[str, str] = {}
    for phrase in phrases:
        service, _, rest = phrase.partition(" ")
        operation = rest.partition(" ")[0]
        if "-" in operation and operation[0] != "-" and "*" not in service + operation and service.isalnum():
            found.setdefault(operation.replace("-", ""), f"{_CLOUD} {service} {operation}")
    return found


def cloud_command(words: str, arguments: Sequence[Node], scope: NameScope) -> str:
    """The command line of a request: each member of it as the option of the same name."""
    pairs: list[Node] = []
    for argument in arguments:
        if argument.type in ("keyword_argument", "named_argument", "pair"):
            pairs.append(argument)
        elif argument.type in ("object", "dictionary", "hash"):
            pairs += argument.named_children
    line = [words]
    for pair in pairs[:_MOST_OPTIONS]:
        if pair.named_child_count < 2:
            continue
        name = _CAPITAL.sub(r"\1-\2", text_of(pair.named_children[0]).strip("'\":")).lower().replace("_", "-")
        value = pair.named_children[-1]
        known = scope.value(value).known
        line.append(f"--{name} {shlex.quote((known[0] if known else text_of(value))[:_LONGEST])}")
    return " ".join(line)


def says(pieces: Sequence[str], parts: Called) -> bool:
    """Whether the arguments of a call hold one of the pieces, without blanks and quotes."""
    plain = _PLAIN.sub("", ",".join(text_of(one)[:_LONGEST] for one in parts.arguments[:_MOST_OPTIONS])).lower()
    return any(piece in plain for piece in pieces)
