"""What a string is for: from the operator's word, then the string itself, then the names around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.conditions import (
    begins_statement,
    is_boolean_search,
    is_cmdlet_line,
    is_condition,
    is_filter,
    is_prose_with_code,
    looks_like_sql,
)
from aegis.detect.extract import Raw
from aegis.detect.markup import is_own_host, is_probe
from aegis.detect.resources import is_local_page

# Words in names of arguments and tools, and what they say about a string's use. Names are split at case changes, digits
# and punctuation; the last telling word wins, because names end with what a thing is (`file_path`, `queryUrl`). They
# are the weakest evidence: a declared role, then the string itself, come first.
_WORD: Final = Lazy(r"[A-Z]+[a-z]*|[a-z]+")
_ROLES: Final[dict[TextRole, tuple[str, ...]]] = {
    "command": ("command", "cmd", "commands", "shell", "bash", "cmdline", "argv", "shellcommand", "terminal",
        "entrypoint", "sh"),
    "sql": ("sql", "statement", "statements", "stmt", "tsql", "plsql", "pgsql"),
    "path": ("path", "file", "filename", "filepath", "dir", "directory", "folder", "paths", "files", "filenames",
        "destination", "cwd", "pathname", "workdir"),
    "url": ("url", "uri", "link", "href", "endpoint", "webhook", "host", "hostname", "urls", "domain", "ip",
        "website", "site", "address"),
    "query_fragment": ("filter", "where", "when", "if", "rule", "conditions", "condition", "criteria", "orderby",
        "predicate", "keyword", "needle", "phrase", "search", "term", "selector", "jql", "kql", "cql", "wiql",
        "lucene", "expr"),
    "code": ("code", "script", "source", "program", "expression", "snippet", "formula", "function", "lambda", "eval",
        "chunk", "apex", "pipeline", "rules"),
    "content": (
        "content", "contents", "body", "text", "message", "description", "comment", "subject", "title", "summary",
        "note", "notes", "document", "css", "html", "markdown", "caption", "reason", "prompt", "instructions",
        "instruction", "patch", "diff", "data", "payload", "output", "input", "answer", "reply", "review", "feedback",
        "thought", "bio", "post", "str", "string", "replacement", "paragraph", "value", "question", "task", "email",
        "plan", "step", "steps", "fact", "todos", "explanation", "resolution", "observation", "observations",
        "rationale", "justification", "details", "remark", "remarks", "agenda", "memory", "result", "changelog", "goal",
        "bullet", "bullets", "claim", "headline", "headlines", "paragraphs", "sentence", "sentences", "slide", "slides",
        "abstract", "article", "cv", "essay", "excerpt", "letter", "quote", "resume", "story", "transcript", "csv",
        "tsv", "xml", "yaml", "doc", "about", "blurb", "desc", "docs", "docstring", "guidance", "hint", "hints", "md",
        "mdx", "readme", "usage",
    ),
    "identifier": (
        "name", "id", "username", "user", "login", "city", "country", "state", "category", "type", "kind",
        "status", "key", "label", "tag", "code_name", "account", "firstname", "lastname", "phone", "zip", "date",
        "time", "location", "unit", "currency", "language", "format", "mode", "order", "product", "customer", "surname",
        "title_id", "password", "token",
    ),
}  # fmt: skip
_BY_WORD: Final[dict[str, TextRole]] = {word: role for role, words in _ROLES.items() for word in words}
_SQL_TOOL: Final = frozenset({
    "sql", "database", "db", "postgres", "postgresql", "mysql", "sqlite", "bigquery", "snowflake", "duckdb", "mssql",
    "sqlserver", "oracle", "mariadb", "redshift", "clickhouse", "cockroachdb", "trino", "presto", "athena",
    "timescaledb", "psql", "tsql", "plsql", "hiveql", "cql", "cassandra", "cockroach", "db2", "neo4j", "teradata", "pg",
    "pgsql", "sqlcl", "sqlplus", "jdbc", "odbc", "cypher", "hana", "greenplum", "vertica", "tidb", "hive", "impala",
})  # fmt: skip
_CODE_TOOL: Final = frozenset({
    "bun", "code", "csharp", "deno", "dotnet", "golang", "interpreter", "ipython", "java", "javascript", "jshell",
    "julia", "jupyter", "kotlin", "lua", "node", "notebook", "perl", "php", "python", "repl", "rscript", "ruby", "rust",
    "scala", "swift", "typescript", "tinker", "irb", "tsx", "groovy", "octave", "matlab", "apex", "osascript",
    "applescript", "elixir", "iex", "fsharp", "fsi", "dart", "nim",
})  # fmt: skip
_INTERPRETS: Final = frozenset({"repl", "interpreter", "ipython"})  # that call what they are asked to run a query
# Programs that a service runs for others, and what puts them there: `lambda_update`.
_HOSTED: Final = frozenset({"lambda", "lambdas", "faas", "serverless"})
_DEPLOYS: Final = frozenset({"update", "deploy", "create", "publish", "put"})
# Frameworks and languages, and what of them runs code: `rails_console`, `r_console`.
_CONSOLED: Final = frozenset({"rails", "django", "laravel", "r", "js", "go", "browser", "devtools", "cargo", "spring"})
_CONSOLES: Final = frozenset(
    {"console", "snippet", "eval", "evaluate", "runner", "script", "shell", "run", "execute", "exec"}
)
_SHELL_TOOL: Final = frozenset({
    "bash", "shell", "terminal", "sh", "cmd", "powershell", "pwsh", "ps1", "zsh", "fish", "ksh", "nushell", "console",
    "command", "bat",
})  # fmt: skip
_RUNNING: Final = frozenset({"run", "execute", "exec", "eval", "evaluate", "sandbox"})
_STARTED: Final = _RUNNING | {"invoke", "script"}
_SCRIPTED: Final = _SHELL_TOOL | _STARTED | {"batch", "ps"}  # words of a tool whose text is a script


@lru_cache(maxsize=8_192)
def words_of(name: str) -> tuple[str, ...]:
    """The lower-case words of a name; at most 16."""
    plain = name[:256].encode("ascii", "ignore").decode()
    return tuple(word.lower() for word in _WORD.findall(plain)[:16])


@lru_cache(maxsize=8_192)
def named_role(tool: str, argument: str) -> tuple[TextRole, int]:
    """What the names alone say: a role, and how sure that is (0 to 60)."""
    words = words_of(argument)
    if words[-1:] == ("cell",) and not _RUNNING.isdisjoint(words_of(tool)):
        return "code", 50  # of a notebook
    for word in reversed(words):
        role = _BY_WORD.get(word)
        if role is None:
            continue
        if word == "search" or role == "query_fragment":
            return "query_fragment", 40
        return role, 60 if role in {"command", "sql", "path", "url"} else 50
    tool_words = set(words_of(tool))
    if "query" in words or "q" in words or not words:
        if tool_words & (_SQL_TOOL | _INTERPRETS):
            return "sql" if tool_words & _SQL_TOOL else "code", 50
        return "query_fragment" if "query" in words or "q" in words else "unknown", 20
    return "unknown", 0


# Names that say of a text no more than that it is one, and tools that carry texts to people.
_ANY_TEXT: Final = frozenset({
    "data", "email", "input", "output", "payload", "str", "string", "text", "value",
})  # fmt: skip
# Services whose texts people read, and which search in a language of their own.
_SERVICES: Final = frozenset({
    "asana", "confluence", "datadog", "dropbox", "elastic", "github", "gitlab", "gmail", "hubspot", "intercom", "jira",
    "linear", "logs", "loki", "notion", "outlook", "sentry", "sharepoint", "slack", "splunk", "teams", "trello",
    "zendesk",
})  # fmt: skip
_TO_PEOPLE: Final = _SERVICES | frozenset({
    "announce", "answer", "chat", "comment", "discord", "draft", "email", "gmail", "mail", "message", "notify",
    "outlook", "post", "publish", "reply", "respond", "say", "send", "letter", "sms", "speak", "telegram", "think",
    "thinking", "tweet", "whatsapp", "announcement", "calendar", "campaign", "diary", "event", "journal", "meeting",
    "memo", "newsletter", "note", "notes", "remind", "reminder", "reminders",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def is_for_people(tool: str) -> bool:
    """Whether a tool's name says that its texts go to people."""
    return not _TO_PEOPLE.isdisjoint(words_of(tool))


@lru_cache(maxsize=8_192)
def names_any_text(argument: str) -> bool:
    """Whether an argument's name says no more than that there is some text: `input`, `value`, `user_data`."""
    return next((word for word in reversed(words_of(argument)) if word in _BY_WORD), "") in _ANY_TEXT


# Where text is searched for, or goes to a forge that shows it as it is: nothing executes, renders or obeys it.
_WEB: Final = frozenset({
    "web", "google", "bing", "internet", "duckduckgo", "brave", "tavily", "wikipedia", "docs", "documentation", "arxiv",
    "news", "scholar", "perplexity", "serp", "online",
})  # fmt: skip
# What is searched beside the web where nothing but an index of texts answers, and what says that it is a search.
_INDEXED: Final = frozenset({
    "law", "legal", "literature", "papers", "patents", "pubmed", "code", "codebase", "semantic", "repo", "repository",
    "workspace", "grep", "issues",
})  # fmt: skip
# Languages in which logs are asked, and services that speak them: what they compare with is text, however it looks.
_ASKS_LOGS: Final = frozenset({
    "chronicle", "defender", "edr", "eql", "graylog", "hunting", "insights", "kql", "kusto", "logql", "monitor",
    "qradar", "sentinel", "siem", "spl", "vql",
})  # fmt: skip
# What a search by text or of files is named after, and the words for looking through it.
_TEXTS: Final = frozenset({"content", "contents", "file", "files", "fulltext", "text", "texts", "workspace"})
_LOOKS: Final = frozenset({"find", "grep", "search"})
_SEARCHES: Final = frozenset({"search", "grep", "find", "lookup", "query"})
# Tools that work on a text as a text, whatever it says, and give it back.
_ON_TEXTS: Final = frozenset({
    "anonymize", "annotate", "classify", "detect", "extract", "grade", "label", "moderate", "paraphrase", "proofread",
    "rewrite", "sentiment", "spellcheck", "spelling", "transcribe", "translate", "translation", "translator",
})  # fmt: skip
# Tools that lay a program out, colour it or find fault with it, and those that tell what it would do: none runs it.
_LAYS_OUT: Final = frozenset({"beautify", "format", "formatter", "highlight", "lint", "linter", "prettify"})
_TELLS: Final = frozenset({"document", "explain", "review"})
# Pages that are made of markup: what stands in a place for markup is the page.
_PAGES: Final = frozenset({"page", "site", "website", "template", "theme", "landing", "component"})
_MARKUP: Final = frozenset({"html", "markup", "template", "jsx", "css"})
_SHOWS_PAGES: Final = frozenset({
    "browser", "chrome", "cypress", "navigate", "playwright", "puppeteer", "selenium", "webdriver",
})  # fmt: skip
# Texts that are filed as they are: who reads them later is shown them as a result, and judged then.
_FILED: Final = frozenset({
    "article", "confluence", "diary", "doc", "draft", "docs", "document", "faq", "journal", "kb", "lesson", "memo",
    "memories", "memory", "remember",
    "note", "notes", "wiki",
})  # fmt: skip
_FORGE: Final = frozenset({
    "bug", "commit", "defect", "gist", "git", "incident", "issue", "jira", "merge", "postmortem", "pr", "pull",
    "release", "ticket",
})  # fmt: skip
# Cells of a sheet are texts for people.
_SHEETS: Final = frozenset({"append", "airtable", "excel", "sheet", "sheets", "spreadsheet"})
_CELLS: Final = frozenset({"cells", "fields", "records", "row", "rows", "values"})
# Tools that show texts to people who learn, or try a pattern, a filter or a model with them, and the places of those
# texts: nothing runs them.
_TRIED: Final[Mapping[frozenset[str], frozenset[str]]] = {
    frozenset({"exam", "flashcard", "flashcards", "poll", "quiz", "survey"}): frozenset({
        "a", "answers", "choices", "example", "examples", "explanation", "hint", "hints", "options", "q", "questions",
        "topic",
    }),
    frozenset({"regex", "regexp"}): frozenset({"haystack", "input", "sample", "string", "subject", "text"}),
    frozenset({"classifier", "eval", "evals", "guardrail", "redteam", "regex", "regexp"}): frozenset({
        "cases", "examples", "inputs", "prompts", "questions", "samples", "utterances",
    }),
}  # fmt: skip
_ANALYSES: Final = frozenset({"analyse", "analyze", "parse"})
_PATTERNS: Final = frozenset({"regex", "regexp", "pattern", "glob"})


@lru_cache(maxsize=8_192)
def is_inert(tool: str, argument: str, role: TextRole) -> bool:
    """Whether names say that a text is only searched for, filed or worked on: patterns, searches, issues, documents."""
    words = set(words_of(tool))
    place = set(words_of(argument))
    if (role in _RUN | {"sql"} and role != "command" and _only_reads_code(tool)) or _PATTERNS & place:
        return True
    if any(words & tools and place & places for tools, places in _TRIED.items()):
        return True
    looks = words & _LOOKS and words & _TEXTS and not (executes(tool) or writes_by_name(tool))
    if role == "query_fragment":
        return bool(words & _WEB or looks) or bool(words & (_INDEXED | _SERVICES) and words & _SEARCHES)
    shown = (words & _PAGES and _MARKUP & place) or (words & {"log", "logs"} and words & _ANALYSES)
    return role == "content" and bool(words & (_FILED | _FORGE | _ON_TEXTS) or looks or shown)


def _is_cell(tool: str, argument: str) -> bool:
    """Whether names say that a text stands in a cell of a sheet."""
    return not _SHEETS.isdisjoint(words_of(tool)) and not _CELLS.isdisjoint(words_of(argument))


_WRITES: Final = frozenset({
    "write", "edit", "create", "save", "update", "patch", "append", "insert", "replace", "apply", "put", "add",
    "commit", "overwrite", "modify", "push", "multiedit", "generate", "new",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def writes_by_name(tool: str) -> bool:
    """Whether a tool's name says that it writes."""
    return not _WRITES.isdisjoint(words_of(tool))


@lru_cache(maxsize=8_192)
def runs_code(tool: str) -> bool:
    """Whether a tool's name says that it runs what it is given, in whatever language: `run_go`, `sandbox_exec`."""
    return not _RUNNING.isdisjoint(words_of(tool))


@lru_cache(maxsize=8_192)
def drives_library(tool: str) -> bool:
    """Whether a tool is named after a library and how that is spoken to: `graph_js`, `azure_sdk`, `kafka_admin`."""
    words = words_of(tool)
    ends = not _SPOKEN.isdisjoint(words[-1:]) or not _SPOKEN.isdisjoint(words[:1])
    return ends and _LAYS_OUT.isdisjoint(words) and _TELLS.isdisjoint(words) and _MAKES.isdisjoint(words)


_SPOKEN: Final = frozenset({
    "admin", "client", "cs", "exs", "go", "jl", "js", "kt", "nodejs", "pl", "py", "rb", "rs", "scala", "sdk", "ts",
})  # fmt: skip
_MAKES: Final = frozenset({
    "build", "bundle", "check", "compile", "convert", "create", "minify", "obfuscate", "optimize", "parse", "post",
    "save", "search", "transpile", "write",
})  # fmt: skip
_LANGUAGES: Final = _CODE_TOOL | _SQL_TOOL | {"json", "query", "script"}


@lru_cache(maxsize=8_192)
def _only_reads_code(tool: str) -> bool:
    """Whether a tool's name begins or ends with what it does to a program as to a text: `lint_sql`, `explain_code`."""
    words = words_of(tool)
    ends = {*words[:1], *words[-1:]}
    if not _RUNNING.isdisjoint(words) or (words[-1:] != ("code",) and not ends & _LAYS_OUT):
        return False
    return bool(ends & (_LAYS_OUT | _TELLS)) and not _LANGUAGES.isdisjoint(words)


@lru_cache(maxsize=8_192)
def executes(tool: str) -> TextRole | None:
    """What a tool executes by its name: commands, SQL or code; `None` where the name does not say."""
    if _only_reads_code(tool):
        return None
    found = set(words_of(tool))
    if found & _SQL_TOOL:
        return "sql"
    if found & _CODE_TOOL or (found & _CONSOLED and found & _CONSOLES) or (found & _HOSTED and found & _DEPLOYS):
        return "code"
    if found & _SHELL_TOOL or found == {"batch"} or (found & {"ps", "batch"} and found & _STARTED):
        return "command"
    return None


_MOST_NAMES: Final = 200  # strings of a call among which the name of a file is looked for
# Places that hold a short plain value by their nature: a whole statement in one of them is an attack on
# the query that it will be put into, not a query.
_PLAIN: Final[frozenset[TextRole]] = frozenset({"identifier", "path", "url", "content", "code"})
_STATED: Final[frozenset[TextRole]] = _PLAIN | {"command"}
_WRITTEN: Final[frozenset[TextRole]] = frozenset({"content", "code"})
_RUN: Final[frozenset[TextRole]] = frozenset({"unknown", "query_fragment", "content", "command", "code"})
_SHAPED: Final[frozenset[TextRole]] = frozenset({"unknown", "query_fragment"})
# A query of logs that begins and quotes as one: no order to a store (`.drop table`) or a shell, no end of a value.
_LOG_QUERY: Final = Lazy(
    r"^\s*(?:(?:let|fields|union|search|find)\s|[\w.@]+\s*[:=~!|(\n]|[\w.]+ +(?:where|in|has|contains|sort|take)\b)"
    r"(?:[^'`]|'[^']*'(?:[^'`\w]|$))*$"
)
_ORDERS: Final = Lazy(r"(?i)--|[;|]\s*(?:alter|bash|curl|delete|drop|grant|nc|rm|sh|truncate|update|wget|xargs)\b")
_TYPED: Final[frozenset[TextRole]] = frozenset({"unknown", "query_fragment", "content", "identifier"})


_FILE: Final = Lazy(
    r"^[^\n<>|*?\"]{0,400}(?:[/\\][^/\\\n]{1,200}|[\w)\]-]\.[A-Za-z0-9]{1,12})$|^(?:\.[A-Za-z][\w.-]{0,60}|[A-Za-z]{1,40}file|LICENSE|README|CODEOWNERS|PKGBUILD|crontab)$"
)
_MAIL: Final = Lazy(r"^\s*[\w.+-]{1,64}@[A-Za-z][A-Za-z0-9.-]{0,252}\s*$")  # who is written to, and no host
_LINES: Final = frozenset({"lines", "line_range"})  # that are edited in a file which is open
_LINES_OF_FILE: Final = Lazy(r"^\d{1,9}[:-]\d{1,9}$")
# A short text of one line is as much a value as any other: what is put into a query, a command or a path.
_SHORT: Final = 200
# What a text for people does not begin with: at most one word, and then a sign that ends a value.
_ENDS_VALUE: Final = Lazy(r"""^\s*[\w.@%+-]{0,16}\s*(?:['";|&*()]|\$[({])""")
# A quotation that opens behind a blank and closes before one ends no value: `Mug "Best dad"`.
_QUOTED: Final = Lazy(r"""(\s)"\w[^"'`]*"($|[\s.,:;!?)])""")
_VALUE_SIGNS: Final = frozenset("'\";|&*()$")  # one of which that asks for: most texts are asked no further
# What edits of a file call its text.
_EDITED: Final = frozenset({
    "after", "append", "before", "insert", "lines", "new", "old", "prepend", "replace", "replacement",
})  # fmt: skip
_EDITS: Final = frozenset({"edit", "file", "files", "modify", "multiedit", "patch", "replace"})
_PATCH: Final = ("diff --git ", "--- ", "*** Begin Patch", "@@ ", "Index: ")


def argument_of(path: str) -> str:
    """The nearest name in a pointer: indexes of arrays are no names."""
    above, _, token = path.rpartition("/")
    return token if token and not token.isdigit() else _last_name(above)


@lru_cache(maxsize=8_192)
def _last_name(path: str) -> str:
    for token in reversed(path.split("/")):
        if token and not token.isdigit():
            return token
    return ""


def writes_file(tool: str, raw: Sequence[Raw]) -> bool:
    """Whether a call writes or edits a file: the tool's name says so, and an argument names the file or its lines."""
    if not writes_by_name(tool):
        return False
    for argument, value in ((argument_of(path), value) for path, value, is_key in raw[:_MOST_NAMES] if not is_key):
        if (named_role(tool, argument)[0] == "path" and _FILE.search(value)) or (
            argument in _LINES and _LINES_OF_FILE.match(value) is not None
        ):
            return True
    return False


def is_trial(tool: str, role: TextRole, value: str, raw: Sequence[Raw]) -> bool:
    """Whether a text tries what a page escapes, which a browser shows or the machine itself serves."""
    if role not in _TYPED or not is_probe(value):
        return False
    served = any(where.endswith(("url", "uri")) and is_own_host(told) for where, told, _ in raw[:_MOST_NAMES])
    return served or not _SHOWS_PAGES.isdisjoint(words_of(tool))


def role_of(
    tool: str, path: str, argument: str, value: str, declared: Mapping[str, TextRole], *, to_file: bool = False
) -> tuple[TextRole, int]:
    """The role of one string, and how sure it is (0 to 100).

    `path` is the string's pointer and `argument` the nearest name above it; `declared` maps pointers
    and argument names to the operator's word, which is always believed. `to_file` says that the call
    writes a file, so that what would be content or code is the text of that file.
    """
    if declared:
        word = declared.get(path) or declared.get(argument)
        if word is not None:
            return word, 100
    role, confidence, inert, runs = _named(tool, argument)
    if role == "url" and words_of(argument)[-1:] == ("address",) and _MAIL.match(value) is not None:
        return "identifier", 60
    if role == "url" and not _SHOWS_PAGES.isdisjoint(words_of(tool)) and is_local_page(value):
        return "document", 60
    if role == "code" and is_source_path(tool, argument, value):
        return "path", 60
    located = (role in _LOCATED and works_on_files(tool)) or (role == "unknown" and runs == "sql")
    if located and value.startswith(_ROOTS) and value[:2] != "/*" and len(value) < _MOST_PATH and "\n" not in value:
        return "path", 60
    if role == "code" and runs is None and not to_file and (runs_code(tool) or drives_library(tool)):
        return "code", 60
    if (role in _WRITTEN and (to_file or value.startswith(_PATCH))) or (
        to_file and argument in _EDITED and not _EDITS.isdisjoint(words_of(tool))
    ):
        return "document", 70
    if inert:
        return "document", 50
    asks_logs = role == "query_fragment" and not _ASKS_LOGS.isdisjoint(words_of(tool))
    if asks_logs and _LOG_QUERY.match(value) and _ORDERS.search(value) is None:
        return "document", 50
    may_be_line = role in _SHAPED and "-" in value and _RUNS_NOTHING.isdisjoint(words_of(tool))
    if may_be_line and is_cmdlet_line(value, alone=runs not in (None, "command")):
        return "command", 80
    if runs == "sql" and role == "content" and begins_statement(value):
        return "sql", 70
    if runs is not None and (role in _RUN or (role == "sql" and runs == "code" and not looks_like_sql(value))):
        if role == "command" or (runs == "sql" and role != "content"):
            is_line = role == "command" and (runs != "sql" or value.startswith(("sqlite3 ", "psql ", "mysql ")))
            return ("command", 80) if is_line else (runs, 70)
        if runs == "command" and role in ("unknown", "code"):
            return "command", 60
        if runs == "code" and (role == "code" or argument == "expr" or (role != "query_fragment" and "\n" in value)):
            return "code", 70 if role == "code" else 60
    if role not in _STATED and looks_like_sql(value):
        return "sql", 80
    if "/" in path[1:] and _is_compared(tool, path):
        return "document", 50
    if role in _SHAPED:
        if role == "query_fragment" and (is_condition(value) or is_boolean_search(value) or is_filter(value)):
            return "document", 50
        return _by_shape(value, role, confidence)
    if role == "content" and _BOUND.search(value) is not None and "query" in words_of(tool) and looks_like_sql(value):
        return "sql", 80
    if role == "content" and _is_value(tool, argument, value):
        return _by_shape(value, "unknown", 20)
    return role, confidence


_BOUND: Final = Lazy(r"(?i)(?:[=<>(,]|like)\s*(?:\$\d|\?|%s|:[a-z]\w*)")  # a value that stands beside its statement
_RUNS_NOTHING: Final = _SEARCHES | _FILED | _FORGE | _TO_PEOPLE - _SERVICES  # tools that search, or speak to people
_FROM: Final = frozenset({"src", "source"})
_TAKES_FILES: Final = frozenset({
    "archive", "backup", "copy", "cp", "file", "files", "link", "move", "mv", "rename", "rsync", "scp", "symlink",
    "sync", "upload", "zip",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def works_on_files(tool: str) -> bool:
    """Whether a tool's name says that it works on files."""
    return not _FILING.isdisjoint(words_of(tool))


def is_source_path(tool: str, argument: str, value: str) -> bool:
    """Whether a source is where a file comes from, and no program."""
    takes = argument.lower() in _FROM and not _TAKES_FILES.isdisjoint(words_of(tool))
    return takes and len(value) < _MOST_PATH and "\n" not in value


_MOST_PATH: Final = 1_024
# Where a tool for files may be told its file, words of such tools, and what a path from a root begins with.
_LOCATED: Final[frozenset[TextRole]] = frozenset({"identifier", "url", "code"})
_FILING: Final = _TAKES_FILES | {
    "cat", "dir", "directory", "folder", "fs", "filesystem", "path", "read", "rm", "rmdir", "trash", "unlink", "write",
}  # fmt: skip
_ROOTS: Final = ("/", "~/", "../", "\\\\", *(f"{letter}:\\" for letter in "CDEcde"))
# Clauses of a query of Elasticsearch or OpenSearch whose values an engine compares with what it indexed: texts, and
# never a part of a language (https://www.elastic.co/docs/reference/query-languages/querydsl).
_CLAUSES: Final = frozenset({
    "fuzzy", "match", "match_phrase", "match_phrase_prefix", "multi_match", "prefix", "term", "terms", "wildcard",
})  # fmt: skip
_ENGINES: Final = frozenset({"elastic", "elasticsearch", "es", "kibana", "logs", "opensearch", "search"})


def _is_compared(tool: str, path: str) -> bool:
    """Whether a value stands in a clause of a search engine's query, below a `query` that is an object."""
    tokens = path.split("/")
    at = next((at for at, token in enumerate(tokens) if token in _CLAUSES), 0)
    return at > 1 and "query" in tokens[1:at] and not _ENGINES.isdisjoint(words_of(tool))


@lru_cache(maxsize=8_192)
def _named(tool: str, argument: str) -> tuple[TextRole, int, bool, TextRole | None]:
    """What names say: the role, how sure it is, whether it is inert, and what the tool executes."""
    role, confidence = named_role(tool, argument)
    if role in _SHAPED and _is_cell(tool, argument):
        role, confidence = "content", 50
    elif role == "content" and argument in _TEXTS and _SCRIPTED.issuperset(words_of(tool)):
        role = "unknown"
    return role, confidence, is_inert(tool, argument, role), executes(tool)


def _is_value(tool: str, argument: str, value: str) -> bool:
    """Whether what stands in a place for text is no text for people: short, and named or written like a value."""
    if len(value) > _SHORT or "\n" in value or is_for_people(tool):
        return False
    if names_any_text(argument):
        return True
    return not _VALUE_SIGNS.isdisjoint(value) and _ENDS_VALUE.search(_QUOTED.sub(r"\1\2", value)) is not None


def _by_shape(value: str, role: TextRole, confidence: int) -> tuple[TextRole, int]:
    if "`" in value and is_prose_with_code(value):
        return "content", 50
    if value.startswith(("http://", "https://", "ftp://", "file://")) and " " not in value:
        return "url", 70
    if value.startswith(("/", "./", "../", "~/")) and " " not in value and len(value) < 1_024:
        return "path", 60
    if len(value) > 200 and value.count(" ") * 12 > len(value):
        return "content", 50
    return role, confidence
