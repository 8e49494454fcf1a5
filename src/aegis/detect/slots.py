"""Slots: values whose type is known by the name of their argument, and what holds something else than that.

A host that is no host and a number that is no number are findings of their own, whatever they would do: what fuzzers
send is told by where it stands. What schemas say is checked by the schema guard; names are what is left.

And places where nothing but a program, a file or the name of one stands, whatever the tool is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.extract import Raw
from aegis.detect.roles import argument_of, executes, named_role, runs_code, words_of

SlotType = Literal["number", "host", "id", "date", "email", "code", "phone"]
_NAMES: Final[Mapping[SlotType, frozenset[str]]] = {
    "number": frozenset({
        "count", "limit", "offset", "page", "port", "quantity", "qty", "year", "timeout", "width", "height",
        "latitude", "longitude", "lat", "lon", "lng", "zoom", "percent", "percentage", "threshold", "retries", "depth",
    }),
    "host": frozenset({"host", "hostname", "ip", "ipaddress", "domain", "fqdn", "gateway", "subnet", "cidr"}),
    "id": frozenset({"id", "uuid", "guid", "sku", "isbn", "iban", "ids"}),
    "date": frozenset({"date", "datetime", "timestamp", "dob", "birthday"}),
    "email": frozenset({"email", "cc", "bcc"}),
    "code": frozenset({"currency", "country", "language", "locale", "timezone", "lang", "tz", "region"}),
    "phone": frozenset({"phone", "zip", "zipcode", "postcode", "fax", "mobile"}),
}  # fmt: skip
# Arguments that say which language a tool runs a text in, and the words for each as the name of what runs it.
_SPOKEN_IN: Final = ("language", "lang", "runtime", "interpreter", "kernel", "shell", "engine", "dialect")
_RUN_BY: Final[Mapping[str, frozenset[str]]] = {
    "run_python": frozenset({"python", "python2", "python3", "py", "ipython", "pypy"}),
    "run_javascript": frozenset({"javascript", "js", "node", "nodejs", "mjs", "bun"}),
    "run_typescript": frozenset({"typescript", "ts", "tsx", "deno", "ts-node"}),
    "run_php": frozenset({"php"}),
    "run_ruby": frozenset({"ruby", "rb", "irb"}),
    "run_perl": frozenset({"perl", "perl5", "pl"}),
    "run_java": frozenset({"java", "jshell"}),
    "run_golang": frozenset({"go", "golang"}),
    "run_csharp": frozenset({"csharp", "c#", "cs", "dotnet"}),
    "run_rust": frozenset({"rust", "rs"}),
    "run_kotlin": frozenset({"kotlin", "kt", "kts"}),
    "run_swift": frozenset({"swift"}),
    "run_dart": frozenset({"dart", "flutter"}),
    "run_nim": frozenset({"nim"}),
    "run_scala": frozenset({"scala", "sc"}),
    "run_groovy": frozenset({"groovy"}),
    "run_lua": frozenset({"lua", "luajit"}),
    "run_r": frozenset({"r", "rscript", "rlang"}),
    "run_julia": frozenset({"julia", "jl"}),
    "run_elixir": frozenset({"elixir", "ex", "exs"}),
    "run_bash": frozenset({"bash", "sh", "shell", "zsh", "fish", "ksh", "dash", "shellscript"}),
    "run_powershell": frozenset({"powershell", "pwsh", "ps1", "ps"}),
    "run_cmd": frozenset({"cmd", "batch", "bat", "cmd.exe"}),
    "run_sql": frozenset({"sql", "postgres", "postgresql", "mysql", "sqlite", "tsql", "plsql", "mariadb", "duckdb"}),
}
_BY_LANGUAGE: Final = {word: tool for tool, words in _RUN_BY.items() for word in words}
LANGUAGES: Final = frozenset(_BY_LANGUAGE)  # names of arguments that may hold a program
_BY_NAME: Final[Mapping[str, SlotType]] = {word: kind for kind, words in _NAMES.items() for word in words}
# No bounds in them: the length is asked first, and bounds make a pattern large.
_FITS: Final[Mapping[SlotType, Any]] = {
    "number": Lazy(r"\s*[-+]?[\d.,_ ]+(?:e[-+]?\d+)?\s*[%\pL/°]*\.?\s*"),
    "host": Lazy(r"\s*(?:[a-zA-Z][a-zA-Z0-9+.-]+://)?[\pL\d._~:/\[\]%@,* -]+\s*"),
    # With the connection of an identity provider before it: `auth0|91`.
    "id": Lazy(
        r"\s*\[(?:\s*\"[\w-]+\"\s*,?)*\s*\]\s*|"
        r"\s*[\pL\pN._:@/#+=~,()\[\] &!*?-]+\s*|"
        r"(?:auth0|google-oauth2|github|windowslive|facebook|apple|linkedin|samlp|waad|adfs|oidc|okta|oauth2)\|[\w|.@-]+|"
        r"ns=\d{1,5};[bgis]=[\w. \"\[\]:/-]+"
    ),
    "date": Lazy(r"\s*[\pL\pN.:,/+' ()-]+\s*"),
    "email": Lazy(r"[\pL\pN.!#%&'*+/=?^_~@<>(),: \"\n-]+"),
    "code": Lazy(r"\s*[\pL\pN.,'’/()&_+: -]+\s*"),
    "phone": Lazy(r"\s*[\pL\pN()+./#, -]+\s*"),
}
# Marks of a language that something behind the tool would read: of queries, shells, templates, markup, paths, headers.
_SYNTAX: Final = Lazy(
    r"'|\"|`|;(?:\D|$)|\||<|>|\$[({]|\{\{|&&|\x00|[\r\n]|--|/\*|\*/|\.\.[/\\]|%(?:0[0ad]|2[27e]|3[bce]|5c|u00)|\\[xu\d]|#\{|\bor\s+\d|\*\)|\)\("
)
_TO_FILL: Final = Lazy(r"<[a-z]{1,20}[ _-][a-z _-]{1,40}>")  # `<key id>`: a person puts something in its place
# One apostrophe between letters ends nothing: what follows it is no syntax of any language.
# Nor does a semicolon before another name, or the number of a branch behind a sign: `D'Angelo & Sons; Branch $42`.
_APOSTROPHE: Final = Lazy(
    r"\s*[\pL\pN._ &-]*\pL'[\pL\pN][\pL\pN._ &-]*(?:; \p{Lu}\p{Ll}[\pL\pN._ &-]*)?(?:\$\d{1,6})?\s*"
)
_SHORT: Final = 24  # characters of the name of a language
_LONGEST: Final = 2_048  # characters of a value that is compared; a longer one is none of these


@lru_cache(maxsize=8_192)
def slot_type(argument: str) -> SlotType | None:
    """What the name of an argument says its value is; `None` where it says nothing of that kind."""
    words = words_of(argument)
    return _BY_NAME.get(words[-1]) if words else None


def spoken(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The argument of a call that says which language its text is in, and a tool that runs that; empty for none.

    Of arguments that say different things a shell is believed: nobody knows which of them the tool asks.
    """
    found: list[tuple[str, str]] = []
    for name in _SPOKEN_IN:
        value = arguments.get(name)
        told = value.rpartition("/")[2] if isinstance(value, str) and len(value) < _SHORT else ""
        tool = _BY_LANGUAGE.get(told.strip().lower())
        if tool is not None:
            found.append((name, tool))
    return min(found, key=lambda one: one[1] not in _SHELLS, default=("", ""))


def program_in(tool: str, arguments: Mapping[str, Any], *, runs: bool) -> tuple[str, str]:
    """The argument of a call that holds a program, and a tool that runs such; empty for none.

    Where nothing says that the tool runs what it is given, only an argument that is called as a language is one.
    """
    name, meant = _named_after(arguments)
    if runs:
        return (name, meant) if name else _filed_program(tool, arguments)
    is_one = name and len(words_of(name)) == 1 and "\n" in arguments[name] and "(" in arguments[name]
    return (name, meant) if is_one and _READS_CODE.isdisjoint(words_of(tool)) else ("", "")


def _named_after(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The argument of a call that is named after the language of the program in it (`groovy`, `main_rs`), and a tool
    that runs that; empty for none.
    """
    for name, value in arguments.items():
        *before, last = words_of(name) or ("",)
        tool = _BY_LANGUAGE.get(last) if before[:1] == ["main"] or last not in _SAYS_ELSE else None
        if tool and tool not in _SHELLS and isinstance(value, str) and not _OF_PROGRAMS.isdisjoint(value[:_LONGEST]):
            return name, tool
    return "", ""


def _filed_program(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a script that a tool files and runs, and a tool that runs what its file's name ends in."""
    last = {name: (words_of(name) or ("",))[-1] for name, value in arguments.items() if isinstance(value, str)}
    text = next((name for name, word in last.items() if word in _TAKES_TEXT), "")
    files = [arguments[name] for name, word in last.items() if word in _NAMES_FILE]
    meant = _BY_LANGUAGE.get(files[0][-_LONGEST_ENDING:].rpartition(".")[2].lower(), "") if files else ""
    return (text, meant) if text and meant and not _RUNS.isdisjoint(words_of(tool)) else ("", "")


_NAMES_FILE: Final = frozenset({"file", "filename", "path"})
_RUNS: Final = frozenset({"run", "execute", "exec"})
_LINES: Final = frozenset({"line", "lines"})  # of a shell, where a tool's name says no more than that it runs
_LONGEST_ENDING: Final = 12
# Short names of languages that are names of something else as well, and signs that stand in programs and in no version.
_SAYS_ELSE: Final = frozenset({"bun", "c", "cs", "deno", "dotnet", "go", "node", "pl", "r", "sc", "ts", "sql"})
_OF_PROGRAMS: Final = frozenset("(=;{\n")
_SHELLS: Final = frozenset({"run_bash", "run_powershell", "run_cmd"})
# Words that name a shell of a system and nothing else, and last words of arguments that may hold any text.
_SYSTEM_SHELLS: Final = frozenset({
    "bash", "bat", "batch", "cmd", "fish", "ksh", "nushell", "powershell", "ps", "ps1", "pwsh", "sh", "shell",
    "terminal", "zsh",
})  # fmt: skip
_TAKES_TEXT: Final = frozenset({
    "block", "body", "chunk", "content", "contents", "data", "document", "e", "expr", "input", "line", "lines", "main",
    "payload", "query", "statement", "statements", "str", "string", "text", "value",
})  # fmt: skip
_ASKED: Final = frozenset({"query", "statement"})  # what a tool that is named after a database runs
_CONSOLES: Final = frozenset({"console", "interpreter", "irb", "jshell", "osascript", "repl", "runner", "tinker"})
# What is done to a program instead of running it.
_READS_CODE: Final = frozenset({
    "check", "complete", "explain", "format", "generate", "lint", "parse", "review", "scan", "test", "tests",
    "validate",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def may_run(tool: str, argument: str) -> TextRole | None:
    """As what a tool may run, by its name, the text in an argument that is named after any text; `None` for not."""
    last, words = words_of(argument)[-1:], set(words_of(tool))
    if not _TAKES_TEXT.issuperset(last) or not last:
        return None
    role, runs = executes(tool), runs_code(tool)
    if role is None and words <= _RUNS and last[0] in _LINES:
        return "command"
    if role == "command":
        return "command" if runs or words & _SYSTEM_SHELLS else None
    if role == "sql" or "statement" in words:
        return "sql" if runs or words & _ASKED else None
    return "code" if runs_language(tool) else None


@lru_cache(maxsize=8_192)
def runs_language(tool: str) -> bool:
    """Whether a tool runs programs in a language by its name, and no commands of a shell: `python_repl`, `run_go`."""
    words = set(words_of(tool))
    spoken = executes(tool) == "code" or any(_BY_LANGUAGE.get(word, "run_sql") != "run_sql" for word in words)
    runs = runs_code(tool) or not words.isdisjoint(_CONSOLES)
    return spoken and runs and words.isdisjoint(_READS_CODE | _SYSTEM_SHELLS)


def misfit(kind: SlotType, value: str) -> Literal["", "odd", "syntax"]:
    """Whether a value is none of a kind: `odd` for one that only looks different, `syntax` for one that speaks."""
    if len(value) > _LONGEST:
        return "odd"
    if _FITS[kind].fullmatch(value) is not None or _TO_FILL.fullmatch(value) is not None:
        return ""
    spelled = _APOSTROPHE.fullmatch(value) is not None and "--" not in value
    return "syntax" if not spelled and _SYNTAX.search(value) is not None else "odd"


# Arguments that hold a query of a document database, and fields in which its operators make a log-in succeed.
_QUERIES: Final = frozenset({
    "aggregate", "aggregation", "arrayfilters", "condition", "conditions", "criteria", "filter", "filters", "find",
    "match", "pipeline", "projection", "query", "selector", "sort", "update", "where",
})  # fmt: skip
_CREDENTIALS: Final = frozenset({"login", "otp", "pass", "passwd", "password", "pin", "pwd", "secret", "token"})
_MOMENTS: Final = frozenset({"at", "count", "date", "last", "time"})  # of a log-in, and no part of one
_RUN_BY_DATABASE: Final = frozenset({"$accumulator", "$function", "$where"})


def key_role(path: str, key: str) -> TextRole:
    """What a key of the arguments is for: an operator within a query is the query's language, elsewhere a name."""
    if key[:1] != "$" or key in _RUN_BY_DATABASE or not key[1:].isalnum():
        return "identifier"
    _, first, *rest = path.split("/")
    fields = [words for words in map(words_of, rest) if _MOMENTS.isdisjoint(words)]
    words = {word for field in fields for word in field}
    is_query = not _QUERIES.isdisjoint(words_of(first)) and words.isdisjoint(_CREDENTIALS)
    return "document" if is_query else "identifier"


# Where names say that a text is run though none of them is that of a program, by the words of the tool (one of which is
# enough; none for every tool) and the argument's name.
_RUN_IN: Final[tuple[tuple[frozenset[str], frozenset[str], TextRole], ...]] = (
    (frozenset({"cron", "crontab"}), frozenset({"entries", "entry", "job", "jobs", "line", "lines"}), "command"),
    (frozenset({"schtasks", "scheduledtask"}), frozenset({"action", "actions"}), "command"),
    (frozenset({"tmux", "screen"}), frozenset({"keys"}), "command"),
    (frozenset({"sftp", "ftp", "lftp"}), frozenset({"batch", "lines"}), "command"),
    (frozenset({"ansible", "cli"}), frozenset({"args"}), "command"),
    (frozenset({"bashrc", "zshrc", "zprofile"}), frozenset({"line", "lines"}), "command"),
    (frozenset({"salt"}), frozenset({"arg"}), "command"),
    (frozenset(), frozenset({"dockerfile"}), "document"),
    (frozenset(), frozenset({"ps1", "pwsh", "powershell", "ps", "scriptblock"}), "command"),
    (frozenset({"postman", "insomnia", "hoppscotch"}), frozenset({"exec"}), "code"),
    (frozenset({"eval", "nrepl"}), frozenset({"form"}), "code"),
)  # fmt: skip
_STARTERS: Final = frozenset({"engine", "executable", "interpreter", "runtime", "shell"})
_STARTER: Final = Lazy(
    r"^(?:/(?:usr/)?(?:local/)?bin/(?:env )?)?(?:(?:ba|z|da|k|fi)?sh|node|deno|bun|python3?|ruby|perl|php)$|"
    r"^(?:cmd|powershell|pwsh)(?:\.exe)?$"
)
_FILES_NAME: Final = Lazy(
    r"^[\w.@-]{1,80}\.(?:c|cfg|conf|cpp|cs|css|env|go|h|html|ini|java|js|json|jsx|kt|md|mjs|php|plist|properties|ps1|"
    r"py|rb|rs|service|sh|sql|timer|toml|ts|tsx|txt|xml|ya?ml)$"
)
_SCRIPTS: Final = ("/scripts/", "/scripts.")
_ARGV: Final = frozenset({"program_arguments", "programarguments"})  # of a job of launchd


# The names of all such arguments, and of those that name what starts a program: those of most calls are none of them.
PLACES: Final = frozenset({*_STARTERS, *_ARGV, "run", *(name for _, names, _ in _RUN_IN for name in names)})


@lru_cache(maxsize=8_192)
def _runs_in(tool: str, argument: str) -> TextRole | None:
    words = frozenset(words_of(tool))
    return next((role for tools, names, role in _RUN_IN if argument in names and (not tools or tools & words)), None)


def names_starter(argument: str, value: str) -> bool:
    """Whether a value only says which program is to start another: a shell, or what runs a language."""
    return argument.lower() in _STARTERS and value.isascii() and _STARTER.match(value) is not None


def names_file(argument: str) -> bool:
    """Whether the name of a member is that of a file, whose text its value is: `{"files": {"hook.js": "..."}}`."""
    return "." in argument and argument.isascii() and _FILES_NAME.match(argument) is not None


_MOST_NAMES: Final = 200  # strings of a call among which an argument that is named after a program is looked for


def names_program(tool: str, raw: Sequence[Raw]) -> bool:
    """Whether an argument of a call is named after what its tool runs."""
    programs = {"command", "code", executes(tool)}
    named = ((argument_of(path), value) for path, value, is_key in raw[:_MOST_NAMES] if not is_key)
    return any(named_role("", name)[0] in programs and not names_starter(name, value) for name, value in named)


def role_at(tool: str, path: str, argument: str, value: str) -> tuple[TextRole, int] | None:
    """The role of a text that stands where nothing but a program, a file or the name of one does; `None` elsewhere.

    `path` is the text's pointer and `argument` the nearest name above it.
    """
    if argument.lower() in _ARGV:
        return "command", 80
    if " " not in value:
        return ("identifier", 60) if names_starter(argument, value) else None
    if names_file(argument) and "\n" in value and executes(tool) is None and not runs_code(tool):
        return "document", 60
    stepped = argument == "run" and ("/step" in path or "/jobs/" in path or "/tasks/" in path)
    if stepped or (argument != "scripts" and any(part in path for part in _SCRIPTS)):
        return "command", 60
    role = _runs_in(tool, argument.lower())
    return None if role is None else (role, 60)
