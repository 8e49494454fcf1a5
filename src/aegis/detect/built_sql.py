"""Statements that a database builds and runs by itself: `EXEC`, `EXECUTE IMMEDIATE`, `PREPARE`, `DO`.

Constants are followed through expressions (`sql_constants`) and variables of the same text, so that what is run is read
like any other statement. A loop over a catalogue that is narrowed to one schema knows that schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from aegis.core.patterns import Lazy
from aegis.detect.quick import one_of
from aegis.detect.sql_constants import MOST_CHARACTERS, constant_at

MOST_BUILT: Final = 32  # statements that one text builds and that are read
_MOST_TOKENS: Final = 8_000
_BUILDS: Final = one_of(
    r"(?i)\bexec(?:ute)?\b\s*(?:immediate\b|\(|@|n?'|format\b|concat\b|[a-z_@:])|\bsp_executesql\b|\bprepare\b|\bdo\s+(?:language\s+\w+\s+)?\$|"
    r"\bquery_to_xml\s*\(|\bdblink(?:_exec)?\s*\(|\bopenquery\b|\bas\s+\$\w*\$|\bdbms_sql\b|\bcreate\s+event\b"
)
# Statements that name files, whose names can be put together as well.
_NAMES_FILES: Final = one_of(
    r"(?i)\bvacuum\b[^;]*\binto\b|\b(?:out|dump|in)file\b|\bcopy\b|\battach\b|\bexport\s+database\b|\bto\s+disk\b|"
    r"\b(?:read_\w+|\w+_scan|sniff_csv|glob|file)\s*\(|\bapoc\.(?:cypher|periodic)\b"
)
_STATEMENT: Final = Lazy(
    r"(?is)^\s*(?:noaudit|audit|drop|delete|truncate|alter|update|insert|create|grant|revoke|copy|exec|execute|select|with|merge|shutdown|backup|"
    r"sp_configure|do|declare|begin|call|set|load|attach|detach|lock|kill|vacuum|reindex|refresh|use)\b"
)
_SCHEDULED: Final = Lazy(r"(?is)\bcreate\s+(?:definer\s*=\s*\S+\s+)?event\b[^;]*?\bdo\s+(?:begin\s+)?([^;]+)")
_RUNNING: Final = Lazy(r"(?i)\b(?:execute\s+immediate|execute|exec|call|vacuum|prepare\s+\w+\s+from)\b")
_PREPARED: Final = Lazy(r"(?i)\bprepare\s+\w+\s*(?:\([^)]{0,200}\))?\s+as\s+([^;]+)")
_DOLLARS: Final = Lazy(r"\$(\w*)\$")


class _Name(NamedTuple):
    """A variable that is set, and where what it is set to begins."""

    name: str
    begin: int


def built_statements(text: str) -> list[str]:
    """The statements that the database builds of a text; empty for a text that builds none."""
    names_files = bool(_NAMES_FILES(text))
    if not names_files and not _BUILDS(text):
        return []
    found: dict[str, None] = dict.fromkeys(_bodies(text))
    for pattern in (_PREPARED, _SCHEDULED):
        found.update(dict.fromkeys(match.group(1).strip() for match in pattern.finditer(text)))
    try:
        # These words make a command of all that follows, which no dialect divides into tokens.
        blank = _RUNNING.sub(lambda match: " " * len(match.group()), text)
        dialect = "mysql" if "apoc." in text else None  # in Cypher both kinds of quotes are put around texts
        tokens = Dialect.get_or_raise(dialect).tokenize(blank)[:_MOST_TOKENS]
    except (SqlglotError, ValueError, IndexError):
        return list(found)[:MOST_BUILT]
    runs_names = _RUNS_NAME.search(text) is not None
    variables: dict[str, str | int] = dict(_narrowed(text))
    at = kept = 0
    folded = ""  # the text with what its expressions come to
    while at < len(tokens):
        if tokens[at].text.lower() in _MESSAGES and (behind := _past_message(text, tokens, at)) > at:
            at = behind
            continue
        set_here = _assigned(tokens, at)
        if set_here is not None:
            value = constant_at(tokens, set_here.begin, variables)
            if value is not None:
                held = value.value
                if tokens[set_here.begin - 1].text == "+=":
                    held = f"{variables.get(set_here.name, '')}{held}"[:MOST_CHARACTERS]
                variables[set_here.name] = held
                _note(str(held), runs_names, found)
        else:
            if tokens[at].text.lower() == _CONFIGURES:
                _configured(tokens, at + 1, variables, found)
            value = constant_at(tokens, at, variables)
            if value is not None:
                _note(value.text, runs_names, found)
                if value.end + 1 < len(tokens) and tokens[value.end].token_type is TokenType.ALIAS:
                    variables[tokens[value.end + 1].text.lower()] = value.value
        begin = at if set_here is None else set_here.begin
        if value is not None and names_files and value.end > begin + 1:
            quoted = value.text.replace("'", "''")
            folded = f"{folded}{text[kept : tokens[begin].start]} '{quoted}' "[:MOST_CHARACTERS]
            kept = tokens[min(value.end, len(tokens)) - 1].end + 1
        at = at + 1 if value is None else max(value.end, at + 1)
    if folded:
        found[f"{folded}{text[kept:]}"[:MOST_CHARACTERS]] = None
    return list(found)[:MOST_BUILT]


def _past_message(text: str, tokens: Sequence[Token], at: int) -> int:
    """The place behind a statement that only says something, made with what only makes texts; `at` for any other."""
    last = min(at + _LONGEST_MESSAGE, len(tokens))
    end = next((one for one in range(at, last) if tokens[one].token_type is TokenType.SEMICOLON), last)
    said = text[tokens[at].start : tokens[min(end, len(tokens) - 1)].end]
    return end if _SAYS.match(said) is not None and _CALLS.search(_MAKES_TEXTS.sub("", said)) is None else at


_MESSAGES: Final = frozenset({"raise", "print", "dbms_output"})
_SAYS: Final = Lazy(r"(?i)^(?:raise\s+(?:debug|exception|info|log|notice|warning)|print|dbms_output\s*\.\s*put_line)\b")
_LONGEST_MESSAGE: Final = 64  # tokens
_CALLS: Final = Lazy(r"(?i)\w\s*\(|\b(?:begin|call|declare|exec|execute|if|prepare|select|set|[sx]p_\w+)\b")
_MAKES_TEXTS: Final = Lazy(r"(?i)\b(?:concat|concat_ws|format|put_line|quote_ident|quote_literal|quotename)\s*\(")
_CONFIGURES: Final = "sp_configure"


def _configured(tokens: Sequence[Token], at: int, variables: dict[str, str | int], found: dict[str, None]) -> None:
    """Note which option of a server is set to what: `sp_configure @option, 1`."""
    option = constant_at(tokens, at, variables)
    if option is not None and option.end < len(tokens) and tokens[option.end].token_type is TokenType.COMMA:
        value = constant_at(tokens, option.end + 1, variables)
        found[f"EXEC {_CONFIGURES} '{option.text}', {'VALUE' if value is None else value.text}"] = None


# A loop over the catalogue of a database, and what its condition says of the schema and the table of each row.
_LOOPS: Final = Lazy(r"(?is)\bfor\s+(\w+)\s+in\s+\(?\s*(select\b.{1,990}?)\bloop\b")
_ONE_SCHEMA: Final = Lazy(
    r"(?i)\band\s+(?:\w+\.)?(\w*schema\w*|nspname|\w*owner|\w*table_?name|relname)\s*(?:=|\blike\b)\s*'([^']{1,80})'"
)
# Tables of its own session, and a name that is put behind that of a schema.
_OF_SESSION: Final = Lazy(
    r"(?i)\band\s+(?:\w+\.)?(?:relnamespace\s*=\s*pg_my_temp_schema\s*\(\)|(?:nspname|schemaname)\s+like\s+'pg_temp|temporary\s*=\s*'y')"
)
_QUALIFIED: Final = Lazy(r"\.\s*[%'\"]")
_TABLE_NAMES: Final = ("relname", "tablename", "table_name")
_EITHER: Final = Lazy(r"(?i)\bor\b|\bunion\b|\bwhere\b")


def _narrowed(text: str) -> Iterator[tuple[str, str]]:
    """What each row of a loop is known to hold: `r.schemaname`, where the loop asks for one schema alone."""
    for loop in islice(_LOOPS.finditer(text), MOST_BUILT):
        where = _WHERE.search(loop.group(2))
        condition = "" if where is None else f" and {loop.group(2)[where.end() :]}"
        if _EITHER.search(condition) is None:
            for asked in _ONE_SCHEMA.finditer(condition):
                yield f"{loop.group(1)}.{asked.group(1)}".lower(), asked.group(2).rstrip("%").replace("$", "_")
            if _OF_SESSION.search(condition) is not None and not _QUALIFIED.search(text):
                yield from ((f"{loop.group(1)}.{name}".lower(), "pg_temp.VALUE") for name in _TABLE_NAMES)


_WHERE: Final = Lazy(r"(?i)\bwhere\b")


# Routines that reach beyond the database, whose names are put together to be run: `EXEC @name`.
_ROUTINE: Final = Lazy(
    r"(?i)^[\w.\[\]]{0,80}\b(?:xp_(?:cmdshell|reg\w+|dirtree|fileexist)|sp_(?:oacreate|oamethod|addsrvrolemember|add_jobstep))\]?$"
)


_RUNS_NAME: Final = Lazy(r"(?i)\bexec(?:ute)?\s*(?:immediate\b|\(|@|n?')|\bopenquery\b|\bsp_executesql\b")


def _note(value: str, runs_names: bool, found: dict[str, None]) -> None:
    if _STATEMENT.match(value):
        found[value.strip()] = None
    elif runs_names and _ROUTINE.match(value):
        found[f"SELECT {value.rpartition('.')[2].strip('[]')}('value')"] = None


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


def _assigned(tokens: Sequence[Token], at: int) -> _Name | None:
    """A variable that is set at a place: `SET @s = ...`, `DECLARE @s nvarchar(max) = ...`, `s := ...`."""
    token = tokens[at]
    if token.token_type is TokenType.PARAMETER and at + 1 < len(tokens):
        name, after = f"@{tokens[at + 1].text.lower()}", at + 2
    elif token.token_type is TokenType.VAR and token.text.lower() not in _BEFORE_NAME:
        name, after = token.text.lower(), at + 1
    else:
        return None
    for later in range(after, min(after + 6, len(tokens))):
        kind = tokens[later].token_type
        if kind in (TokenType.EQ, TokenType.COLON_EQ, TokenType.DEFAULT) or tokens[later].text == "+=":
            return _Name(name, later + 1)
        if kind is TokenType.PLUS and later + 1 < len(tokens) and tokens[later + 1].token_type is TokenType.EQ:
            return None
        if later > after and kind in (TokenType.SEMICOLON, TokenType.COMMA):
            return None
        if later == after and kind not in _TYPES and tokens[later].text.lower() not in _TYPE_WORDS:
            return None
    return None


_BEFORE_NAME: Final = frozenset({"declare", "let", "var", "variable", "begin"})
_TYPES: Final = frozenset({
    TokenType.TEXT, TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR, TokenType.VAR,
    TokenType.INT,
})  # fmt: skip
_TYPE_WORDS: Final = frozenset({"varchar2", "text", "nvarchar", "varchar", "as", "clob", "sysname"})
