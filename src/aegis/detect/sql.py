"""SQL by its tree: what each statement does, whichever words it is written with.

A statement that changes data can stand inside a common table expression, so the whole tree is walked.
Text that no dialect parses keeps its leading words as evidence and says so. Text that asks the parser for more than
its length allows is not read, and says that too: what is read depends on the text alone, never on a clock.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from aegis.core.effects import EffectScope, Resource, ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.built_sql import built_statements
from aegis.detect.chosen_rows import always_true, selects_all, selects_none
from aegis.detect.facts import Effort
from aegis.detect.queries import files_named, query_effects
from aegis.detect.resources import is_any_secret, place_of
from aegis.detect.tool_deeds import stated_deeds
from aegis.detect.tool_words import is_scratch, is_throwaway, vocabulary

MAX_SQL: Final = 16_384  # characters given to the parser, which takes about a microsecond each
MAX_NESTING: Final = 80  # brackets, cases and prefix operators inside each other: the parser recurses
_DEEPEST: Final = 2  # statements that build statements
MAX_NODES: Final = 20_000  # of the trees of one text
# Nodes that the parser may make for a token, those of readings that it gives up included. Ordinary statements take one
# at most; joins without a condition make it read all that follows twice for each of them.
_NODES_A_TOKEN: Final = 2
_LEAST_NODES: Final = 64
_SHOWN: Final = 80
_UNITS: Final = 4  # of effort that a character costs, and once more where the parser gives up
_FAILED: Final = 512  # of them that giving up costs
_OPEN: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSED: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL})

_WRITES: Final = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Alter, exp.Drop, exp.TruncateTable, exp.When,
)  # fmt: skip
_LEAVES: Final = frozenset({exp.Literal, exp.Identifier, exp.Column, exp.Paren, exp.And, exp.EQ, exp.Tuple, exp.Alias})


class SqlFacts(Struct, kw_only=True):
    """What one SQL text does; `signals` are stable names with the piece that shows them."""

    parsed: bool = True
    too_long: bool = False
    reads: bool = False
    writes: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]]
    effects: list[ResourceEffect] = field(default_factory=list)


class SqlUnparsedError(Exception):
    """The text is not grammar in the dialect."""


class SqlUnreadError(Exception):
    """The text was not read: it is too long, too deep, or too much work for the parser."""


def parse_sql(text: str, dialect: str | None = None) -> list[exp.Expr]:
    """Parse the statements of a text, as far as its tokens alone allow.

    Raises `SqlUnparsedError` where it is not grammar, and `SqlUnreadError` where reading it would take more than
    `MAX_SQL` characters, `MAX_NESTING` levels or, for each token, more nodes than ordinary statements do.
    """
    if len(text) > MAX_SQL:
        raise SqlUnreadError
    spoken = Dialect.get_or_raise(dialect)
    most = MAX_NODES
    parser = None
    try:
        tokens = spoken.tokenize(text)
        if _nesting(tokens) > MAX_NESTING:
            raise SqlUnreadError
        most = min(MAX_NODES, _LEAST_NODES + _NODES_A_TOKEN * len(tokens))
        parser = spoken.parser(max_nodes=most)
        return [statement for statement in parser.parse(tokens, text) if statement is not None]
    except RecursionError as error:  # what calls this left no room: nobody knows what else stands there
        raise SqlUnreadError from error
    except (SqlglotError, ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        # The parser tries another reading where one ended at the bound, so its last error need not name it.
        if parser is not None and parser._node_count > most:
            raise SqlUnreadError from error
        raise SqlUnparsedError from error


def _nesting(tokens: list[Token]) -> int:
    """How deep the parser has to go at most: brackets and cases that are open, and prefix operators in a row."""
    brackets = cases = prefixes = deepest = 0
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if kind in _OPEN:
            brackets += 1
        elif kind in _CLOSED:
            brackets = max(0, brackets - 1)
        elif kind is TokenType.CASE:
            cases += 1
        elif kind is TokenType.END:
            cases = max(0, cases - 1)
        elif kind is TokenType.SEMICOLON:
            brackets = cases = 0
        deepest = max(deepest, brackets + cases + prefixes)
    return deepest


def analyse_sql(text: str, effort: Effort | None = None, depth: int = 0) -> SqlFacts:
    """The facts of one SQL text; never raises, and reads at most `MAX_SQL` characters, as far as `effort` goes.

    What the database builds of constants and runs by itself is read like any other statement.
    """
    facts = SqlFacts(signals=[])
    effort = effort or Effort()
    text = _RUN_REMARK.sub(r" \1 ", text) if "!" in text else text
    if depth < _DEEPEST and len(text) <= MAX_SQL:
        for built in built_statements(text):
            inner = analyse_sql(built, effort, depth + 1)
            facts.writes |= inner.writes
            facts.irreversible |= inner.irreversible
            facts.too_long |= inner.too_long
            facts.signals.extend(inner.signals)
            facts.effects.extend(inner.effects)
    facts.effects.extend(query_effects(text[:MAX_SQL], sql=True))
    facts.effects.extend((*files_named(text[:MAX_SQL]), *stated_deeds(text[:MAX_SQL])))
    for match in islice(_BY_FILE.finditer(text[:MAX_SQL]), _MOST_FILES):
        ran, path = match.groups()
        filtered = None if ran is None else _FILTERED.fullmatch(ran)
        if not (_is_data(filtered.group(1) or ".csv") if filtered is not None else _is_data(path or "")):
            for name in ("sql.file", "sql.configures")[: 1 if path else 2]:
                _note((name, match.group()[:_SHOWN]), facts)
    kept = _PASSWORDS.search(text[:MAX_SQL])
    if kept is not None and ("authid" in text.lower() or not _MASKED.search(text[:MAX_SQL])):
        facts.effects.append(ResourceEffect("read", "credential", "many", (), "", kept.group()[:_SHOWN]))
    for name, pattern in (("sql.grants", _MAKES_ADMIN), ("sql.configures", _RUNS_PROGRAMS)):
        match = pattern.search(text[:MAX_SQL])
        if match is not None:
            facts.signals.append((name, match.group()[:_SHOWN]))
    if len(text) > MAX_SQL or not effort.take(len(text) * _UNITS):
        _unread(facts)
        return facts
    try:
        dialect = "tsql" if _OF_SESSION.search(text) is not None else "mysql" if "`" in text else None
        dialect = dialect or ("postgres" if "~" in text else None)
        statements = parse_sql(text, dialect)
    except SqlUnreadError:
        effort.left -= _FAILED + len(text) * _UNITS
        _unread(facts)
        return facts
    except SqlUnparsedError:  # a tree that cannot be built is a fact, not a failure: the words are read instead
        effort.left -= _FAILED + len(text) * _UNITS
        _by_words(text, facts)
        return facts
    if not statements:
        facts.parsed = False
        return facts
    seen_read = False
    made: set[str] = set()  # what a script makes and drops again was not brought in behind somebody's query
    passing: set[str] = set()  # tables of the session that hide every other one of their names until they are dropped
    for statement in statements:
        before = facts.irreversible
        tables = {table.sql().lower() for table in statement.find_all(exp.Table)}
        if isinstance(statement, exp.Create) and statement.find(exp.TemporaryProperty):
            passing |= set() if statement.find(exp.OnCommitProperty) else tables
        elif isinstance(statement, exp.Drop) and len(tables) == 1 and tables <= passing:
            facts.writes = True
            passing -= tables
            continue
        elif not isinstance(statement, (exp.Select, exp.Insert, exp.Update, exp.Delete)):
            passing.clear()
        _walk(statement, facts)
        privileged = (
            isinstance(statement, (exp.Grant, exp.Command))
            and _first_word(statement.sql()) in vocabulary().values["sqlwrites"]
        )
        target = statement.find(exp.Table) if isinstance(statement, (exp.Create, exp.Drop)) else None
        if isinstance(statement, exp.Create) and target is not None:
            made.add(target.sql().lower())
        own = isinstance(statement, exp.Drop) and target is not None and target.sql().lower() in made
        if seen_read and not own and ((facts.irreversible and not before) or privileged):
            _signal("sql.stacked", statement, facts)
        seen_read = seen_read or isinstance(statement, (exp.Select, exp.Union))
    return facts


_MOST_FILES: Final = 32
# Statements that run a program, or read and write a file of data, and programs that only pass on what they are given.
_GAP: Final = r"(?:\s|/\*[^*]*\*/|--[^\n]*\n)"
_BY_FILE: Final = Lazy(
    rf"(?i)\b(?:from|to){_GAP}+program{_GAP}*(?:'((?:[^']|'')*)'|\$|e'|u&')|\binto{_GAP}+dumpfile\b|"
    rf"\b(?:into{_GAP}+outfile|load{_GAP}+data{_GAP}+(?:(?:local|concurrent|low_priority){_GAP}+)*infile){_GAP}*(?:'([^'\n]*)')?"
)
_FILTER: Final = (
    r"\s*(?:(?:gzip|gunzip|zcat|zstd|xz|bzip2|sort|uniq|head|tail|cut|wc|cat)(?:\s+(?:-[a-np-zA-Z0-9,=]{1,6}|\d+))*|"
    r"curl(?:\s+-[fsS]{1,3})*\s+https?://(?:127\.0\.0\.1|localhost)(?::\d+)?/[\w./?=&-]*)\s*"
)
_FILTERED: Final = Lazy(rf"{_FILTER}(?:\|{_FILTER})*(?:>\s*(/[\w./-]+)\s*)?")
_DATA: Final = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".gz", ".zst")
_FILE_READERS: Final = frozenset({"load_file", "pg_read_file", "pg_read_binary_file", "readfile"})


def _is_data(path: str) -> bool:
    """Whether a path is that of a file of data in a place that nothing else is kept in."""
    return path.lower().endswith(_DATA) and ".." not in path and place_of(path) is None and not is_any_secret(path)


def _only_asks(link: exp.Expr) -> bool:
    """Whether what another server is asked is written out, and only reads."""
    told = link.expressions
    asked = told[-1].name.lower() if told and all(isinstance(one, exp.Literal) for one in told) else ""
    return asked.lstrip().startswith("select ") and ";" not in asked  # which is analysed by itself, as built


def _unread(facts: SqlFacts) -> None:
    """What is not read may do anything."""
    facts.parsed, facts.too_long, facts.writes = False, True, True


def _signal(name: str, node: exp.Expr, facts: SqlFacts) -> None:
    """Note a signal with the piece that shows it; the first of a name is enough, since nodes stand inside nodes."""
    if any(known == name for known, _ in facts.signals):
        return
    try:
        shown = node.sql()[:_SHOWN]
    except RecursionError:  # a chain of thousands of members is read without recursion, and written with it
        shown = node.key
    facts.signals.append((name, shown))


def _note(signal: tuple[str, str], facts: SqlFacts) -> None:
    if signal not in facts.signals:
        facts.signals.append(signal)


def _walk(statement: exp.Expr, facts: SqlFacts) -> None:
    for number, node in enumerate(statement.walk()):
        if number > MAX_NODES:
            _unread(facts)
            return
        if type(node) in _LEAVES:
            continue
        if isinstance(node, _WRITES):
            facts.writes = True
            _change(node, facts)
        elif isinstance(node, (exp.Select, exp.Table)):
            facts.reads = True
            if isinstance(node, exp.Table) and _is_catalogue(node) and node.find_ancestor(exp.Union) is not None:
                _signal("sql.catalogue-union", node, facts)
        elif isinstance(node, (exp.Or, exp.Where)):
            parts = [node.left, node.right] if isinstance(node, exp.Or) else []
            if any(always_true(part) for part in parts):
                _signal("sql.tautology", node, facts)
        elif isinstance(node, (exp.Anonymous, exp.Func)):
            name = _function(node)
            if name in vocabulary().values["sqldelay"] and not (name == "randomblob" and _is_short(node)):
                _note(("sql.delay", name), facts)
            elif name in vocabulary().values["sqlfile"]:
                if name == "dblink" and _only_asks(node):
                    continue
                given = node.expressions[:1] if name in _FILE_READERS else []
                if not (given and isinstance(given[0], exp.Literal) and _is_data(given[0].name)):
                    _note(("sql.file", name), facts)
        elif isinstance(node, exp.Copy):
            facts.writes = True
        elif isinstance(node, (exp.Command, exp.Grant)):
            _by_words(node.sql(), facts)


_RUN_REMARK: Final = Lazy(r"(?s)/\*M?!\d{0,6}(.*?)\*/")  # which MySQL runs
_OF_SESSION: Final = Lazy(r"(?i)\b(?:into|table|from|join|update|exists)\s+#\w")  # tables of SQL Server
# What lets statements run programs (SQL Server).
_RUNS_PROGRAMS: Final = Lazy(
    r"(?i)\bsp_configure\s+(?:@\w+\s*=\s*)?n?'(?:xp_cmdshell|ole automation procedures|ad hoc distributed queries|"
    r"clr enabled|external scripts enabled)'\s*,\s*(?:@\w+\s*=\s*)?(?:[1-9]|VALUE)"
)
# Rights over a whole server: of MySQL (`ON *.*`), PostgreSQL, Oracle, SQL Server and Cassandra (`SUPERUSER = true`).
_MAKES_ADMIN: Final = Lazy(
    r"(?is)\balter\s+(?:user|role|login)\s+[^;]{1,200}\b(?:createrole|bypassrls)\b|"
    r"\balter\s+role\s+[\[\"]?(?:db_(?:own|sec|acc|ddl|back)|[^;\s]*admin)\S{0,60}\s+add\s+member\b|"
    r"\b(?:alter|create)\s+(?:user|role)\s+[^;]{1,200}\b(?:superuser\s*(?:[^\s=]|=\s*'?(?:true|1)|$)|bypassrls\b)|\b(?:update|insert\s+into)\s+mysql\.(?:user|db|global_priv)\b|"
    r"\balter\s+server\s+role\s+sysadmin\b|\bsp_addsrvrolemember\b"
)
_GIVES_ALL: Final = Lazy(
    r"(?is)^\s*\(?grant\s+(?:.{1,200}\son\s+\*\s*\.\s*\*|(?:superuser|postgres|sysdba|dba|db_owner|sysadmin|rds_superuser|"
    r"accountadmin|securityadmin|control\s+server|pg_\w*(?:write|execute)_server\w*|all\s+privileges\s+to)\b|"
    r"(?:all\b.{1,200}|\w{1,60}|.{0,60}\b(?:update|insert|delete|truncate)\b.{1,200})\sto\s+(?:public|everyone|'%'|\"?guest\"?)\b)"
)
# What MySQL calls no privilege at all: an account that may sign in.
_GIVES_NOTHING: Final = Lazy(
    r"(?is)^\s*grant\s+usage\s+on\s+\*\s*\.\s*\*\s+to\s+\S{1,200}\s*(?:require\s+\w+)?\s*;?\s*$"
)


def _change(node: exp.Expr, facts: SqlFacts) -> None:
    if isinstance(node, (exp.Drop, exp.TruncateTable, exp.Delete, exp.Update)) and _is_scratch(node):
        return
    if isinstance(node, (exp.Drop, exp.TruncateTable)):
        kind = str(node.args.get("kind") or "").upper()
        if isinstance(node, exp.TruncateTable) or (
            kind in {"TABLE", "DATABASE", "SCHEMA", "COLUMN", ""} and not node.args.get("temporary")
        ):
            facts.irreversible = True
            _signal("sql.destroy", node, facts)
            whole = kind in ("DATABASE", "SCHEMA")
            _effect("database" if whole else "table", "one", node, facts)
    elif isinstance(node, (exp.Create, exp.Insert)):  # anew, from a query that finds nothing
        anew = node.args.get("replace") or node.args.get("overwrite")
        is_temporary = node.find(exp.TemporaryProperty) is not None
        if anew and str(node.args.get("kind")).upper() in ("DATABASE", "SCHEMA") and not is_scratch(node.this.sql()):
            facts.irreversible = True  # what was there is gone with all that it held
            _effect("database", "one", node, facts)
        elif anew and not is_temporary and selects_none(node.expression) and not is_scratch(node.this.sql()):
            facts.irreversible = True
            _effect("table", "many", node, facts)
    elif isinstance(node, exp.When):
        merge, then = node.find_ancestor(exp.Merge), node.args.get("then")
        is_every = bool(node.args.get("source")) or (merge is not None and selects_all(merge.args["on"], merge))
        if merge is not None and isinstance(then, exp.Var) and then.name.upper() == "DELETE" and is_every:
            facts.irreversible = True
            _effect("record", "many", merge, facts)
    elif isinstance(node, exp.Update) and node.parent is None and not node.expressions:
        return  # `UPDATE STATISTICS`: nothing is set
    elif isinstance(node, (exp.Delete, exp.Update)):
        merge = node.find_ancestor(exp.Merge) if isinstance(node.parent, exp.When) else None
        where = node.args.get("where")
        condition = merge.args.get("on") if merge is not None else where.this if where is not None else None
        if condition is None or selects_all(condition, node):
            facts.irreversible = True
            _signal("sql.every-row", node, facts)
            if isinstance(node, exp.Delete):
                _effect("record", "many", node, facts)


def _is_scratch(node: exp.Expr) -> bool:
    """Whether a statement reaches nothing but tables of its session, or of schemas that were made to be thrown away."""
    tables = list(node.find_all(exp.Table))
    if isinstance(node, exp.Drop) and str(node.args.get("kind")).upper() in ("SCHEMA", "DATABASE"):
        return bool(tables) and all(is_throwaway(part.name) for table in tables for part in table.parts)
    return bool(tables) and all(
        (isinstance(table.this, exp.Identifier) and table.this.args.get("temporary") and not table.alias)
        or is_scratch(".".join(part.name for part in table.parts))
        for table in tables
    )


def _effect(resource: Resource, scope: EffectScope, node: exp.Expr, facts: SqlFacts) -> None:
    """Note that something is deleted for good, under the name that it has in the statement."""
    table = node.find(exp.Table)
    name = "" if table is None else table.name
    facts.effects.append(ResourceEffect("delete", resource, scope, (name,) if name else (), "", name))


def _is_short(node: exp.Anonymous | exp.Func) -> bool:
    """Whether a function is given a number of a few digits alone."""
    given = list(node.find_all(exp.Literal))
    return len(given) == 1 and not given[0].is_string and len(given[0].name) <= _FEW_DIGITS


_FEW_DIGITS: Final = 4


def _is_catalogue(table: exp.Table) -> bool:
    return (
        table.name.lower() in vocabulary().values["sqlcatalogue"]
        or str(table.args.get("db") or "").lower().strip('"`') in vocabulary().values["sqlcatalogue"]
    )


def _function(node: exp.Expr) -> str:
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else ""
    return name.lower()


# What databases keep instead of the passwords of their users.
_PASSWORDS: Final = Lazy(
    r"(?i)\brolpassword\b|\bauthentication_string\b|\bpasswd\b[^;]{1,300}\bpg_shadow\b|\bpg_shadow\b[^;]{1,300}\bpasswd\b|"
    r"select\s+\*\s+from\s+(?:pg_catalog\.)?pg_(?:shadow|authid)\b|\bpassword_hash\b[^;]{1,300}\bsql_logins\b|\bspare4\b[^;]{1,300}\buser\$"
)
# A view that shows stars in their place (PostgreSQL, 53.9), alone.
_MASKED: Final = Lazy(r"(?is)^\s*select\s[\w\s,.*]{1,400}\sfrom\s+(?:pg_catalog\.)?pg_roles\b[^;()\"]{0,300};?\s*$")


def _by_words(text: str, facts: SqlFacts) -> None:
    facts.parsed = False
    for piece in text.split(";"):
        words = piece.lower().split(None, 6)
        if not words:
            continue
        first = words[0].lstrip("(")
        if first in vocabulary().values["sqlends"] and len(words) > 1 and words[1] in {"table", "database", "schema"}:
            facts.writes = facts.irreversible = True
            facts.signals.append(("sql.destroy", piece.strip()[:_SHOWN]))
        elif first == "delete" and " where " not in piece.lower() and len(words) > 2 and words[1] == "from":
            facts.writes = facts.irreversible = True
            facts.signals.append(("sql.every-row", piece.strip()[:_SHOWN]))
        elif first in vocabulary().values["sqlwrites"] or first in vocabulary().values["sqlends"]:
            facts.writes = True
            if first == "grant" and _GIVES_ALL.search(piece) and not _GIVES_NOTHING.match(piece):
                facts.signals.append(("sql.grants", piece.strip()[:_SHOWN]))
        elif first in vocabulary().values["sqlreads"]:
            facts.reads = True


def _first_word(text: str) -> str:
    words = text.split(None, 1)
    return words[0].lower() if words else ""


# Tables of SQL, from the parsed statement: joins, sub-selects and targets included, names of CTEs left out.

_ALWAYS: Final = (None, "mysql")  # the two readings of a backslash in a string: tables of both count
_OTHERS: Final = ("postgres", "tsql", "sqlite")
# Other statements do things that are not in their tables.
_TABLES_KNOWN: Final = (
    exp.Query, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.TruncateTable,
    exp.Describe,
)  # fmt: skip


@lru_cache(maxsize=512)
def table_readings(text: str) -> frozenset[tuple[str, ...]] | None:
    """The tables that a text of SQL names, as (name,) or (schema, name); `None` where it cannot be read."""
    # MySQL runs what stands in comments that begin with `/*!`.
    if not text.strip() or "/*!" in text:
        return None
    found: set[tuple[str, ...]] = set()
    is_read = False
    for dialect in (*_ALWAYS, *_OTHERS):
        if dialect in _OTHERS and is_read:
            break
        try:
            statements = parse_sql(text, dialect)
        except SqlUnparsedError:
            continue
        except SqlUnreadError:
            return None
        if not statements:
            continue
        is_read = True
        for statement in statements:
            tables = _tables(statement) if isinstance(statement, _TABLES_KNOWN) else None
            if tables is None:
                return None
            found |= tables
    return frozenset(found) if is_read else None


def _tables(statement: exp.Expr) -> set[tuple[str, ...]] | None:
    found: set[tuple[str, ...]] = set()
    for table in statement.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            return None  # a function or a parameter in the place of a table: its rows come from elsewhere
        parts = tuple(part.name.lower() for part in table.parts)
        if not all(parts):
            return None
        if len(parts) == 1 and _is_cte(table, parts[0]):
            continue
        found.add(parts)
    return found


def _is_cte(table: exp.Table, name: str) -> bool:
    """Whether the nearest definition of the name around the table is a common table expression."""
    node: Any = table
    inside: Any = None
    while node is not None:
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is not None:
            for cte in with_.expressions:
                # A CTE that is not recursive does not see itself: its own name is the table's.
                if cte.alias.lower() == name and (cte is not inside or with_.args.get("recursive")):
                    return True
        if isinstance(node, exp.CTE):
            inside = node
        node = node.parent
    return False
