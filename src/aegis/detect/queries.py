"""What texts of query languages change: statements of their own verbs, Cypher, and mutations of GraphQL.

Statements are patterns with effects, in `data/tools`. A field of a `mutation` is read as a call of its own name: only
what is asked of the server at its outermost level counts (GraphQL, October 2021, 6.2.2), and values are followed to the
variables of the same call. A text of another kind gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import re2

from aegis.core.effects import ResourceEffect
from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.detect.extract import readable
from aegis.detect.quick import one_of
from aegis.detect.resources import is_any_secret, place_of
from aegis.detect.roles import words_of
from aegis.detect.self_running import parsed_json
from aegis.detect.tool_words import is_scratch, is_throwaway, statements

_SHOWN: Final = 80


def query_effects(text: str, *, sql: bool = False, steps: bool = False) -> list[ResourceEffect]:
    """What a text does in the language of a database or a search, or as `steps` of a browser that is driven."""
    text = _REMARKED.sub("", text) if sql and "--" in text else text
    found = [] if steps else _cypher(text)
    known = statements(sql=sql, steps=steps)
    for number in known.may(text):
        pattern, effect = known.each[number]
        match = pattern.search(text)
        judged = is_scratch if effect.resource in ("table", "record") else is_throwaway
        named = filter(None, match.groups()) if match is not None else ()
        if match is not None and not any(judged(one) or _OWN.match(one) for one in named):
            found.append(effect._replace(evidence=match.group().strip()[:_SHOWN]))
    return found


# A line of remarks: whatever it stands in, nothing that it holds is run. And this machine, or one of an own network.
_REMARKED: Final = Lazy(r"(?m)^[ \t]*--[ \t](?:[^'\"`$\\\n*/]|/\*!|`\w*`|'\w*'|\*/;?[ \t]*$)*$")
_OWN: Final = Lazy(
    r"(?i)^(?:https?://)?(?:localhost|(?:10|127)(?:\.\d{1,3}){3}|(?:192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2})(?::\d{1,5})?(?:/[\w./-]*)?$"
)

# Cypher, the language of graph databases, as far as it destroys or reaches out.

_CYPHER: Final = one_of(
    r"(?i)\b(?:match|merge|create)\s*\(|\bcall\s+(?:apoc|dbms|db)\.|\bload\s+csv\b|\bdrop\s+(?:database|constraint|index)\b"
)
_EVERY_NODE: Final = Lazy(
    r"(?is)\bmatch\s*(?:\w+\s*=\s*)?\(\s*\w*\s*\)\s*(?:-\s*\[\s*\w*\s*\]\s*-?>?\s*\(\s*\w*\s*\)\s*)?(?:optional\s+match\s[^;]{0,200}?)?(?:with\s+\w+(?:\s+limit\s+\d+)?\s+)?"
    r"(?:call\s*(?:\(\s*\w*\s*\)\s*)?\{[^}]{0,200}\bdelete\b|(?:detach\s+)?delete\b)"
)
_NODE: Final = r"\(\s*\w*\s*(?::\s*[\w|:`]+\s*)?\)"  # of any kind or of one, whatever it holds
_EVERY_OF_LABEL: Final = Lazy(
    rf"(?is)\bmatch\s*{_NODE}(?:\s*(?:,|<?-\s*(?:\[[\s\w:|*.]*\])?\s*->?)\s*{_NODE})*\s*(?:(?:detach\s+)?delete|call\s+apoc\.nodes\.delete)\b"
)
_ANOTHER: Final = Lazy(r",\s*\(\s*\w*\s*\)|\(\s*\w*\s*\)\s*,")  # a pattern beside others, of nodes of any kind
_LABEL: Final = Lazy(r"\(\s*\w*\s*:\s*([\w|:`]+)\s*\)")
_PASSING: Final = frozenset({"tmp", "temp", "fixture", "fixtures", "scratch", "dummy"})  # and no `TestResult`
_EXPLAINS: Final = Lazy(r"(?i)^\s*explain\s")  # without doing it, where PROFILE does
_SETS_EVERY: Final = Lazy(r"(?is)\bmatch\s*\(\s*\w*\s*:?\s*\w*\s*\)\s*(?:set|remove)\s+\w+[.:]")


_ITERATED: Final = Lazy(
    rf"(?is)\biterate\s*\(\s*['\"]\s*match\s*{_NODE}\s*return\s+\w+\s*['\"]\s*,\s*['\"][^'\"]{{0,200}}\bdelete\b"
)
_JOINED_TEXTS: Final = Lazy(r"'\s*\+\s*'|\"\s*\+\s*\"")


_JOINED_PARAMETER: Final = Lazy(r"(['\"])\s*\+\s*\$(\w{1,40})\s*\+\s*(['\"])")
_MOST_PARAMETERS: Final = 16
_PARAMETERS: Final = ("params", "parameters", "parameterMap")


def with_parameters(text: str, arguments: Mapping[str, Any]) -> str:
    """A text of Cypher with what its call gives for the parameters that it joins to a statement."""
    given: Mapping[str, Any] = next(
        (arguments[name] for name in _PARAMETERS if isinstance(arguments.get(name), dict)), {}
    )
    for match in islice(_JOINED_PARAMETER.finditer(text), _MOST_PARAMETERS) if given else ():
        value = given.get(match.group(2))
        if isinstance(value, str):
            text = text.replace(match.group(), value)[:_LONGEST]
    return text


def _cypher(text: str) -> list[ResourceEffect]:
    """What a text of Cypher does; empty for every other text."""
    if not _CYPHER(text) or _EXPLAINS.search(text):
        return []
    found: list[ResourceEffect] = []
    shown = text.strip()[:_SHOWN]
    if "apoc." in text:
        from aegis.detect.built_sql import built_statements  # whose parser takes long to load

        whole = [one for one in built_statements(text) if "VALUE" not in one]  # which a parameter gives
        text = "\n".join([text, *whole])[:_LONGEST]
    text = _without_idle_condition(_JOINED_TEXTS.sub("", text))  # a query that is built of texts and run by a procedure
    of_label = _ITERATED.search(text) or _EVERY_OF_LABEL.search(text)
    labels = [] if of_label is None else _LABEL.findall(of_label.group())
    if _EVERY_NODE.search(text) or (of_label is not None and (not labels or _ANOTHER.search(of_label.group()))):
        found.append(ResourceEffect("delete", "record", "all", (), "", shown))
    elif any(_PASSING.isdisjoint(words := words_of(label)) or not is_throwaway(" ".join(words)) for label in labels):
        found.append(ResourceEffect("delete", "table", "all", (), "", shown))
    if _SETS_EVERY.search(text):
        found.append(ResourceEffect("write", "record", "all", (), "", shown))
    return found


# A condition up to the clause that changes what it left, and signs of Cypher that say the same as one of SQL.
_CONDITION: Final = Lazy(
    r"(?is)\bwhere\s+(.{1,400}?)\s+((?:detach\s+|nodetach\s+)?delete|set|remove|with|call|foreach)\b"
)
_ANY_TEXT: Final = Lazy(
    r"(?i)=~\s*(?:'(?:\(\?\w+\))?\.\*'|\"(?:\(\?\w+\))?\.\*\")|(?:contains|starts\s+with|ends\s+with)\s+(?:''|\"\")"
)

_NODE_IS_THERE: Final = Lazy(r"(?i)([\s(])\w+\s+is\s+not\s+null\b")  # which every node is
_COMPARES_TEXT: Final = Lazy(r"(?i)=~|\b(?:contains|starts\s+with|ends\s+with)\b")


def _without_idle_condition(text: str) -> str:
    """The text without a condition that holds for every node: `WHERE n.id IS NULL OR n.id IS NOT NULL`."""
    plain = _COMPARES_TEXT.sub("LIKE", _ANY_TEXT.sub("LIKE '%'", _NODE_IS_THERE.sub(r"\1TRUE", text)))
    match = _CONDITION.search(plain)
    if match is None:
        return text
    from aegis.detect.chosen_rows import selects_every  # whose parser takes long to load

    if not selects_every(match.group(1)):
        return text
    return f"{plain[: match.start()]}{plain[match.start(2) :]}"


# GraphQL.

_TOKEN: Final = re2.compile(r'"""|"(?:[^"\\\n]|\\.)*"|\$?[A-Za-z_]\w*|-?\d[\d.eE+-]*|[{}()\[\]:!=@|&]|\.\.\.|#[^\n]*')
_MUTATION: Final = "mutation"
_LONGEST: Final = 65_536  # characters of a document that are read, without those that say nothing
_STEPS: Final = 4  # for a token of a document; a plain one takes each once
_MOST_PLACES: Final = 600  # values of a call that are looked at for documents
_DEEPEST: Final = 16
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}


class Mutation(NamedTuple):
    """A change that a document asks for: where the document stands, the field and what it is given."""

    pointer: str
    field: str
    given: dict[str, Any]


def mutations_of(arguments: Mapping[str, Any]) -> list[Mutation]:
    """Every change that the documents of a call ask for, in texts of JSON as well.

    A document that is too long to be read asks for one without a name.
    """
    found: list[Mutation] = []
    waiting: list[tuple[str, Any, Any]] = [("", arguments, None)]
    seen = 0
    while waiting and seen < _MOST_PLACES:
        pointer, value, variables = waiting.pop()
        seen += 1
        if isinstance(value, dict):
            given = value.get("variables")
            waiting.extend((f"{pointer}/{escape(str(name))}", inner, given) for name, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{at}", inner, variables) for at, inner in enumerate(value))
        elif isinstance(value, str) and _MUTATION in value:
            inner = parsed_json(value) if value.lstrip()[:1] in ("{", "[") and '"' in value else None
            if inner is not None:
                waiting.append((pointer, inner, None))
            elif len(value) > _LONGEST and len(value := _SAYS_NOTHING.sub(" ", value)) > _LONGEST:
                found.append(Mutation(pointer, "", {}))
            else:
                found.extend(Mutation(pointer, field, given) for field, given in mutations(value, variables))
    return found


_SAYS_NOTHING: Final = re2.compile(r"#[^\n]*\n|[\s,]{2,}")


def mutations(text: str, variables: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of every mutation in a document, with their arguments; those of an `input` stand for themselves."""
    if len(text) > _LONGEST or _MUTATION not in text:
        return
    tokens = [token for token in _TOKEN.findall(readable(text)[0]) if token[0] != "#"]
    given = variables if isinstance(variables, dict) else {}
    fields = _Fields(tokens, given)
    for at, token in enumerate(tokens):
        if token == _MUTATION and (not at or tokens[at - 1] == "}"):
            yield from fields.read(at + 1)


class _Fields:
    def __init__(self, tokens: list[str], variables: Mapping[str, Any]):
        self._tokens = tokens
        self._variables = variables
        self._at = 0
        # Whatever begins again and again in one document is read that often and no more.
        self._left = _STEPS * len(tokens)

    def _next(self) -> str:
        self._left -= 1
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._at] if self._left > 0 and self._at < len(self._tokens) else ""

    def read(self, at: int) -> Iterator[tuple[str, dict[str, Any]]]:
        self._at = at
        while self._peek() not in ("{", "}", ""):  # a name, declarations of variables, directives
            if self._next() == "(":
                self._skip("(", ")")
        self._at += 1
        while self._peek() not in ("}", ""):
            name = self._next()
            if self._peek() == ":":  # another name for the answer
                self._at += 1
                name = self._next()
            arguments: dict[str, Any] = {}
            if self._peek() == "(":
                self._at += 1
                arguments = self._members(")", 0)
            if self._peek() == "{":
                self._at += 1
                self._skip("{", "}")
            if name.isidentifier():
                inner = arguments.pop("input", None)
                yield name, {**arguments, **inner} if isinstance(inner, dict) else arguments

    def _skip(self, opens: str, closes: str) -> None:
        depth = 1
        while depth and self._peek():
            token = self._next()
            depth += (token == opens) - (token == closes)

    def _members(self, closes: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek() not in (closes, ""):
            name = self._next()
            if self._peek() == ":":
                self._at += 1
                found[name] = self._value(depth + 1)
        self._at += 1
        return found

    def _value(self, depth: int) -> Any:
        sign = self._next()
        if depth > _DEEPEST:
            return None
        if sign == "{":
            return self._members("}", depth)
        if sign == "[":
            items = []
            while self._peek() not in ("]", ""):
                items.append(self._value(depth + 1))
            self._at += 1
            return items
        if sign[:1] == "$":
            return self._variables.get(sign[1:])
        return sign[1:-1] if sign[:1] == '"' else _WORDS.get(sign, sign)


def files_named(text: str) -> Iterator[ResourceEffect]:
    """What is read of files that are more than data, and what is written where everybody reads it or a system does."""
    for pattern in (_FILE_READ, _FILE_WRITTEN):
        for match in islice(pattern.finditer(text), _MOST_NAMED):
            path, shown = match.group(1), match.group()[-_SHOWN:]
            place = place_of(path)
            if pattern is _FILE_WRITTEN and place is not None:
                is_public = place.resource == "public-place"
                yield ResourceEffect("expose" if is_public else "write", place.resource, "all", (path,), "", shown)
            elif place is not None or ("*" in path and is_any_secret(path)):
                resource = "credential" if place is None else place.resource
                yield ResourceEffect("read", resource, "one", (path,), "", shown)


# Files that statements read and write, as SQLite, DuckDB, MySQL, PostgreSQL, ClickHouse and SQL Server name them.
_FILE_NAME: Final = (
    r"'(?:file:(?://)?)?([^'?\n]{1,400})(?:\?[^'\n]{0,80})?'\s*(?:[^\s|+]|$)"  # with nothing put behind it
)
_FILE_READ: Final = Lazy(
    r"(?i)\b(?:attach(?:\s+database)?(?:\s+if\s+not\s+exists)?|from|infile|read_\w+|\w+_scan|sniff_csv|(?:load_|read)?file|pg_read_(?:binary_)?file)\s*"
    rf"\(?\s*\[?\s*{_FILE_NAME}"
)
_FILE_WRITTEN: Final = Lazy(
    r"(?i)\b(?:vacuum\s+(?:\w+\s+)?into|(?:out|dump)file|copy\b[^;]*?\bto|export\s+database|to\s+disk\s*=)\s*"
    rf"n?{_FILE_NAME}"
)
_MOST_NAMED: Final = 32
