"""What a program asks for by a name: of a cloud by its library, of a module by looking a function up.

The libraries of a cloud are made of one description of its operations, and so is its command line: `delete_trail` of
Python, `DeleteTrailCommand` of JavaScript and `aws cloudtrail delete-trail` are one request. So what is known of the
command line in `data/programs` is known of every library.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.syntax import Called, arguments_of, text_of
from aegis.detect.languages.values import NameScope
from aegis.detect.resources import place_of
from aegis.detect.shell.catalogue import builtin_programs

SPEAKS_OF_CLOUD: Final = Lazy(r"(?i)\bboto|\bbotocore|aws-sdk|aws_sdk|amazonaws|\bAWS\b|Amazon\.|/aws/|\baioboto")
FETCHES: Final = Lazy(
    r"(?i)requests\.|urlopen|urlretrieve|httpx|aiohttp|\bfetch\(|axios|https?\.get|downloadfile|wget\.|\.recv\(|curl_|"
    r"file_get_contents\(.http|open-uri|getstore|net::http|restclient|pycurl|ftplib"
)
# Statements that are worth a parser wherever a program hands them to a database.
GRAVE_STATEMENT: Final = Lazy(
    r"(?i)\bdrop\s+(?:database|schema)\b|\bxp_cmdshell\b|\bto\s+program\b|\binto\s+(?:out|dump)file\b|\bgrant\s+all\b|"
    r"\bsuperuser\b|\bload_file\s*\("
)
_CLOUD: Final = "aws"
_ENDINGS: Final = ("command", "request", "async", "input", "withcontext")
_PLAIN: Final = Lazy(r"[\s'\"`]+")
_CAPITAL: Final = Lazy(r"([a-z0-9])([A-Z])")
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


# What is called is looked up by its name in a module that runs programs, though it could be written out.
_LOOKED_UP: Final = Lazy(
    r"^(?:getattr\s*\(\s*(?:(os|subprocess|builtins|__builtins__|sys|shutil|socket|posix)\s*,|"
    r"(?:__import__|importlib\.import_module)\s*\([^)]{0,60}(?:os|sub|process|\+|builtins|socket|ctypes|pty))|"
    r"(?:os|subprocess|builtins|__builtins__|__import__\([^)]{1,40}\))\.(?:__dict__\s*\[|__getattribute__\s*\())[^,]{0,80}"
    r"(?:,\s*[^,]{1,60})?[\])]$"
)
_LONGEST_LOOKUP: Final = 200


def looked_up(function: Node, scope: Callable[[], NameScope], aliases: Mapping[str, str]) -> list[str] | None:
    """The full names that what is called may have, where it is looked up by its name; `None` where it is not."""
    if function.type not in ("call", "subscript"):
        return None
    match = _LOOKED_UP.match(text_of(function)[:_LONGEST_LOOKUP])
    if match is None:
        return None
    module = match.group(1) or _module_of(function, scope)
    named = arguments_of(function)[-1:] if function.type == "call" else function.named_children[-1:]
    return [f"{aliases.get(module, module)}.{name}".lower() for one in named for name in scope().value(one).known]


def _module_of(function: Node, scope: Callable[[], NameScope]) -> str:
    """The module that is loaded on the spot where a function is looked up."""
    inner = arguments_of(function)[:1] if function.type == "call" else ()
    while inner and inner[0].type == "call":
        given = arguments_of(inner[0])
        if given and text_of(inner[0]).startswith(("__import__", "importlib")):
            return next(iter(scope().value(given[0]).known), "")
        inner = given[:1]
    return ""


def is_whole(folder: str) -> bool:
    """Whether a folder is a system or a home as a whole."""
    place = place_of(folder)
    return (
        place is not None
        and place.whole
        and place.resource in ("system-file", "home")
        and folder not in ("/opt", "/srv")
    )
