"""Statements that a database builds and runs by itself: `EXEC`, `EXECUTE IMMEDIATE`, `PREPARE`, `DO`.

Constants are followed through concatenation, `CONCAT`, `CHAR`, `REPLACE`, `FORMAT` and variables of the same text, so
that what is run is read like any other statement. What comes from a table or a parameter is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from aegis.core.patterns import Lazy
from aegis.detect.quick import one_of

MOST_BUILT: Final = 32  # statements that one text builds and that are read
_MOST_TOKENS: Final = 8_000
_BUILDS: Final = one_of(
    r"(?i)\bexec(?:ute)?\b\s*(?:immediate\b|\(|@|n?'|format\b|concat\b|[a-z_@:])|\bsp_executesql\b|\bprepare\b|\bdo\s+(?:language\s+\w+\s+)?\$|"
    r"\bquery_to_xml\s*\(|\bdblink(?:_exec)?\s*\(|\bopenquery\b|\bas\s+\$\w*\$|\bdbms_sql\b|\bcreate\s+event\b"
)
_STATEMENT: Final = Lazy(
    r"(?is)^\s*(?:drop|delete|truncate|alter|update|insert|create|grant|revoke|copy|exec|execute|select|with|merge|shutdown|backup|"
    r"do|declare|begin|call|set|load|attach|detach|lock|kill|vacuum|reindex|refresh|use)\b"
)
_SCHEDULED: Final = Lazy(r"(?is)\bcreate\s+(?:definer\s*=\s*\S+\s+)?event\b[^;]*?\bdo\s+(?:begin\s+)?([^;]+)")
_RUNNING: Final = Lazy(r"(?i)\b(?:execute\s+immediate|execute|exec|call|prepare\s+\w+\s+from)\b")
_PREPARED: Final = Lazy(r"(?i)\bprepare\s+\w+\s*(?:\([^)]{0,200}\))?\s+as\s+([^;]+)")
_DOLLARS: Final = Lazy(r"\$(\w*)\$")
_JOINS: Final = frozenset({TokenType.PLUS, TokenType.DPIPE})
_STRINGS: Final = frozenset({
    TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING,
})  # fmt: skip
_CODES: Final = frozenset({"char", "chr", "nchar"})


class _Text(NamedTuple):
    """A constant that stands at a place among the tokens, and where it ends."""

    value: str
    end: int


def built_statements(text: str) -> list[str]:
    """The statements that the database builds of a text; empty for a text that builds none."""
    if not _BUILDS(text):
        return []
    found: dict[str, None] = dict.fromkeys(_bodies(text))
    for pattern in (_PREPARED, _SCHEDULED):
        found.update(dict.fromkeys(match.group(1).strip() for match in pattern.finditer(text)))
    try:
        # These words make a command of all that follows, which no dialect divides into tokens.
        tokens = Dialect.get_or_raise(None).tokenize(_RUNNING.sub(" ", text))[:_MOST_TOKENS]
    except (SqlglotError, ValueError, IndexError):
        return list(found)[:MOST_BUILT]
    variables: dict[str, str] = {}
    at = 0
    while at < len(tokens):
        name = _assigned(tokens, at)
        if name is not None:
            value = _constant(tokens, name.end, variables)
            if value is not None:
                before = variables.get(name.value, "") if tokens[name.end - 1].text == "+=" else ""
                variables[name.value] = before + value.value
                _note(variables[name.value], found)
                at = value.end
                continue
        value = _constant(tokens, at, variables)
        if value is not None:
            _note(value.value, found)
            at = max(value.end, at + 1)
            continue
        at += 1
    return list(found)[:MOST_BUILT]


# Routines that reach beyond the database, whose names are put together to be run: `EXEC @name`.
_ROUTINE: Final = Lazy(
    r"(?i)^[\w.\[\]]{0,80}\b(?:xp_(?:cmdshell|reg\w+|dirtree|fileexist)|sp_(?:oacreate|oamethod|addsrvrolemember|add_jobstep))\]?$"
)


def _note(value: str, found: dict[str, None]) -> None:
    if _STATEMENT.match(value):
        found[value.strip()] = None
    elif _ROUTINE.match(value):
        found[f"SELECT {value.strip('[]')}('value')"] = None


def _bodies(text: str) -> list[str]:
    """What stands between dollars (PostgreSQL, 4.1.2.4): the statements of a block, without its words of procedure."""
    marks = list(_DOLLARS.finditer(text))[: 2 * MOST_BUILT]
    found = []
    at = 0
    while at + 1 < len(marks):
        end = next((later for later in range(at + 1, len(marks)) if marks[later].group() == marks[at].group()), None)
        if end is None:
            break
        body = text[marks[at].end() : marks[end].start()]
        for piece in body.split(";"):
            words = piece.split()
            while words and words[0].lower() in _PROCEDURE:
                words = words[1:]
            if words and _STATEMENT.match(" ".join(words)):
                found.append(" ".join(words))
        found.extend(built_statements(body))
        at = end + 1
    return found


_PROCEDURE: Final = frozenset({"begin", "then", "loop", "else", "perform", "end", "atomic"})


def _assigned(tokens: Sequence[Token], at: int) -> _Text | None:
    """A variable that is set at a place: `SET @s = ...`, `DECLARE @s nvarchar(max) = ...`, `s := ...`."""
    token = tokens[at]
    if token.token_type is TokenType.PARAMETER and at + 1 < len(tokens):
        name, after = f"@{tokens[at + 1].text.lower()}", at + 2
    elif token.token_type is TokenType.VAR:
        name, after = token.text.lower(), at + 1
    else:
        return None
    for later in range(after, min(after + 6, len(tokens))):
        kind = tokens[later].token_type
        if kind in (TokenType.EQ, TokenType.COLON_EQ) or tokens[later].text == "+=":
            return _Text(name, later + 1)
        if kind is TokenType.PLUS and later + 1 < len(tokens) and tokens[later + 1].token_type is TokenType.EQ:
            return None
        if later > after and kind in (TokenType.SEMICOLON, TokenType.COMMA):
            return None
        if later == after and kind not in _TYPES and tokens[later].text.lower() not in _TYPE_WORDS:
            return None
    return None


_TYPES: Final = frozenset({
    TokenType.TEXT, TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR, TokenType.VAR,
})  # fmt: skip
_TYPE_WORDS: Final = frozenset({"varchar2", "text", "nvarchar", "varchar", "as", "clob", "sysname"})


def _constant(tokens: Sequence[Token], at: int, variables: dict[str, str]) -> _Text | None:
    """The constant that begins at a place, with what is put behind it."""
    first = _piece(tokens, at, variables)
    if first is None:
        return None
    value, end = first
    while end < len(tokens) and tokens[end].token_type in _JOINS:
        following = _piece(tokens, end + 1, variables)
        if following is None:
            break
        value, end = (value + following.value)[:16_384], following.end
    return _Text(value, end)


def _piece(tokens: Sequence[Token], at: int, variables: dict[str, str]) -> _Text | None:
    if at >= len(tokens):
        return None
    token = tokens[at]
    if token.token_type in _STRINGS:
        return _Text(token.text, at + 1)
    if token.token_type is TokenType.PARAMETER and at + 1 < len(tokens):
        known = variables.get(f"@{tokens[at + 1].text.lower()}")
        return None if known is None else _Text(known, at + 2)
    name = token.text.lower()
    if at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.L_PAREN:
        return _function(name, tokens, at + 2, variables)
    known = variables.get(name) if token.token_type is TokenType.VAR else None
    return None if known is None else _Text(known, at + 1)


def _function(name: str, tokens: Sequence[Token], at: int, variables: dict[str, str]) -> _Text | None:
    """What a function of constants makes: `CONCAT`, `CHAR`, `FORMAT`, `REPLACE`, `REVERSE`."""
    given: list[str] = []
    while at < len(tokens) and tokens[at].token_type is not TokenType.R_PAREN:
        one = _constant(tokens, at, variables)
        if one is not None:
            given.append(one.value)
            at = one.end
        elif tokens[at].token_type is TokenType.NUMBER:
            given.append(tokens[at].text)
            at += 1
        elif tokens[at].token_type is TokenType.COMMA:
            at += 1
        else:
            return None
    end = at + 1
    if name in ("concat", "concat_ws"):
        return _Text("".join(given[1:] if name == "concat_ws" else given), end)
    if name in _CODES and given and all(one.isdigit() and int(one[:7]) < 0x110000 for one in given):
        return _Text("".join(chr(int(one[:7])) for one in given), end)
    if name == "reverse" and given:
        return _Text(given[0][::-1], end)
    if name == "replace" and len(given) == 3:
        return _Text(given[0].replace(given[1], given[2]), end)
    if name in ("format", "printf") and given:
        text = given[0]
        for argument in given[1:]:
            text = next((text.replace(sign, argument, 1) for sign in ("%I", "%s", "%L") if sign in text), text)
        return _Text(text, end)
    return None
