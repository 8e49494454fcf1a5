"""The files that a tool writes or runs by its own arguments: a path and a text beside it, an edit, a patch."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.facts import Text
from aegis.detect.files import LOCAL, MAX_FLOW, UNKNOWN, FileFlow, Written
from aegis.detect.line_files import PLAYS
from aegis.detect.quick import one_of
from aegis.detect.roles import argument_of, words_of
from aegis.detect.slots import names_file
from aegis.detect.tool_words import vocabulary

# Names of arguments, without case and signs: a whole text, what an edit puts in, and what it takes out.
_WHOLE: Final = frozenset({
    "body", "code", "content", "contents", "data", "filecontent", "filecontents", "filetext", "fulltext", "lines",
    "newcontent", "newcontents", "script", "source", "text", "value",
})  # fmt: skip
_IN: Final = frozenset({
    "add", "added", "after", "becomes", "codeedit", "insert", "insertion", "inserttext", "new", "newbody", "newcode",
    "newlines", "newsource", "newstr", "newstring", "newtext", "newvalue", "replace", "replacement",
    "replacementtext", "replacetext", "replacewith", "to", "updated", "with",
})  # fmt: skip
_OUT: Final = frozenset({
    "before", "find", "findtext", "from", "match", "old", "oldcode", "oldcontent", "oldlines", "oldstr", "oldstring",
    "oldtext", "oldvalue", "original", "pattern", "remove", "removed", "search", "searchstring", "searchtext", "was",
})  # fmt: skip
_BESIDE: Final = frozenset(
    {"add", "added", "becomes", "newcontent", "to", "updated"}
)  # what one puts in for what it takes out
# Verbs and arguments that say that a text is not the whole file.
_PARTLY: Final = frozenset({"append", "edit", "insert", "modify", "multiedit", "patch", "replace", "update"})
_PLACES: Final = frozenset({
    "append", "endline", "insertline", "line", "linenumber", "offset", "position", "range", "startline",
})  # fmt: skip
PATCHES: Final = ("*** Begin Patch", "diff --git ", "--- ", "Index: ", "@@ ")
_RUNS: Final = frozenset({"exec", "execute", "launch", "run", "source", "start"})
_PROGRAMS: Final = frozenset({"file", "notebook", "playbook", "program", "script"})


def plays(tool: str, texts: Sequence[Text]) -> list[Written]:
    """What a tool runs of documents of a cluster or of many machines that it is given, as files of such."""
    words = words_of(tool)
    if _APPLIES.isdisjoint(words) or not _TRIES.isdisjoint(words):
        return []
    every = [text.value for text in texts if not text.is_key and PLAYS.search(text.value) is not None]
    told = (one for one in every if "apiVersion:" not in one or _BRINGS.search(one) is not None)
    return [Written("play.yml", _flow(play), sure=True) for play in islice(told, _MOST)]


# What brings programs into a container: the rest of what runs there is done to folders of its own.
_BRINGS: Final = Lazy(r"\b(?:curl|wget|nc|ncat|base64)\s|/dev/tcp/")
# Words of tools that run what a document of a cluster or of many machines says, and of those that only look at it.
_APPLIES: Final = frozenset({"ansible", "apply", "deploy", "helm", "k8s", "kubectl", "play", "playbook", "run", "salt"})
_TRIES: Final = frozenset({"check", "diff", "dry", "explain", "lint", "plan", "read", "search", "validate"})
_MOST: Final = 256  # writes of one call that are told apart


def written_by(tool: str, texts: Sequence[Text], *, to_files: bool) -> list[Written]:
    """What a call writes: files that it hands over, and what it names where its tool writes files (`to_files`)."""
    return [*(_named(tool, texts) if to_files else []), *_filed_in(texts)]


def _filed_in(texts: Sequence[Text]) -> list[Written]:
    """The files that a call hands over as texts below their names: `{"files": {"hook.js": "..."}}`."""
    named = ((argument_of(text.path), text.value) for text in texts if text.role == "document" and not text.is_key)
    return [Written(name, _flow(value), sure=True) for name, value in islice(named, _MOST) if names_file(name)]


def _named(tool: str, texts: Sequence[Text]) -> list[Written]:
    local = {} if not _REQUESTS.isdisjoint(words_of(tool)) else {t.value: path for t in texts if (path := _local(t))}
    if not local and not any(text.role == "path" or text.value.startswith(PATCHES) for text in texts):
        return []
    fields: dict[tuple[str, str], tuple[str, str]] = {
        place: ("path", local[value]) if role == "url" and value in local else (role, value)
        for place, (role, value) in _fields(texts).items()
    }
    named = [(above, value) for (above, _), (role, value) in fields.items() if role == "path" and value]
    paths = dict(reversed(named))  # the first of each object
    encoded = any(name == "encoding" and value.lower() == "base64" for (_, name), (_, value) in fields.items())
    partly = not _PARTLY.isdisjoint(words_of(tool)) or any(
        name in _PLACES or (name == "mode" and value[:1] == "a") for (_, name), (_, value) in fields.items()
    )
    found: list[Written] = []
    for (above, name), (role, value) in fields.items():
        if value.startswith(PATCHES) and role != "path":
            found += _patched(value, _path_for(above, paths))
            continue
        path = _path_for(above, paths)
        if not path or role == "path":
            continue
        out = next((fields[above, old][1] for old in _OUT if (above, old) in fields), "")
        if (out and name in _BESIDE) or (name in _IN and name not in _BESIDE):
            found.append(Written(path, _flow(value), append=not out, sure=True, replaces=out))
        elif name in _WHOLE and name not in _OUT:
            flow = _decoded(value) if encoded else _flow(value)
            found.append(Written(path, flow, append=partly, sure=True))
    return found[:_MOST] if len(found) <= _MOST else [*found[:_MOST], *(Written(path, UNKNOWN) for _, path in named)]


# What a tool adds to the settings of an agent, by the last word of its name, and where it would stand as a file.
_ADDS: Final = frozenset(
    {"add", "configure", "create", "define", "enable", "install", "register", "save", "set", "update"}
)
_ADDED: Final = {"hook": ".claude/settings.json", "agent": ".claude/agents.json", "mcp": ".mcp.json"}
_OBJECTS: Final = (".code-workspace", ".json", ".jsonc", ".webmanifest", ".yaml", ".yml")


@lru_cache(maxsize=8_192)
def added_by(tool: str) -> str:
    """What a tool adds or writes by its name, as its last word has it; empty for one that does not."""
    words = [word.removesuffix("s").removeprefix("sub") for word in words_of(tool.rpartition("__")[2])]
    if _ADDS.isdisjoint(words) and _PARTLY.isdisjoint(words) and "write" not in words:
        return ""
    return "mcp" if "mcp" in words and words[-1] == "server" else words[-1]


def objects_by(kind: str, given: Mapping[str, Any], texts: Sequence[Text]) -> Iterator[Written]:
    """What a call puts into files as objects: beside a path, or as a hook, a server or an agent that it adds."""
    paths = [text.value for text in texts if text.role == "path" and text.value.lower().endswith(_OBJECTS)]
    if len(paths) == 1:
        for value in given.values():
            if isinstance(value, dict):
                yield Written(paths[0], _flow(json.dumps(value, ensure_ascii=False)), append=True, sure=True)
    elif kind in _ADDED:
        yield Written(_ADDED[kind], _flow(json.dumps({"hooks": {"added": given}}, ensure_ascii=False)), append=True)


# Tools whose addresses are those of servers, however short they are.
_REQUESTS: Final = frozenset({"api", "call", "http", "https", "request", "rest", "route", "url", "webhook"})


def _local(text: Text) -> str:
    """The path of a file that an editor or a server of resources names by an address; empty for any other text."""
    if text.role != "url" or text.is_key or not text.path.lower().endswith("uri") or len(text.value) > MAX_FLOW:
        return ""
    scheme, sign, rest = text.value.partition("://")
    if not sign:
        return "" if text.value.startswith("/") else text.value
    return f"/{unquote(rest.partition('/')[2])}" if scheme.lower() == "file" else ""


def _fields(texts: Sequence[Text]) -> dict[tuple[str, str], tuple[str, str]]:
    """The texts of a call by the object that they stand in and their plain name; lists as lines."""
    fields: dict[tuple[str, str], tuple[str, str]] = {}
    for text in texts:
        if text.is_key:
            continue
        above, _, name = text.path.rpartition("/")
        listed = name.isdigit()
        if listed:
            above, _, name = above.rpartition("/")
        plain = "".join(char for char in name.lower() if char.isalnum())
        before = fields.get((above, plain))
        if before is None:
            fields[above, plain] = (text.role, text.value)
        elif listed and len(before[1]) <= MAX_FLOW:
            fields[above, plain] = (before[0], f"{before[1]}\n{text.value}")
    return fields


def _path_for(above: str, paths: Mapping[str, str]) -> str:
    """The path that stands beside a text, or nearest above it, of paths by the objects that they stand in."""
    while above not in paths and above:
        above = above.rpartition("/")[0]
    return paths.get(above, "")


def _flow(text: str) -> FileFlow:
    return FileFlow().with_text(text)


def _decoded(text: str) -> FileFlow:
    try:
        return _flow(base64.b64decode(text, validate=False).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return UNKNOWN


def _patched(patch: str, path: str = "") -> Iterator[Written]:
    """What a patch puts into each file that it names, or into the one that is named beside it."""
    whole, lines, gone = False, list[str](), list[str]()
    for line in [*patch[: 4 * MAX_FLOW].split("\n"), "*** End Patch"]:
        head, _, rest = line.partition(": ")
        if line.startswith(("+++ ", "*** Add File", "*** Update File", "*** Move to", "*** End Patch", "diff --git ")):
            if path and (lines or gone):
                flow = _flow("".join(f"{one}\n" for one in lines))
                flow = flow if whole else FileFlow(flow.text, max(flow.gap, LOCAL))
                yield Written(path, flow, append=not whole, sure=True, replaces="\n".join(gone))
            lines, gone = [], []
            if line.startswith("+++ "):
                path = line[4:].split("\t")[0].strip().removeprefix("b/")
            else:
                path, whole = rest.strip() or path, head == "*** Add File"
        elif line.startswith("--- "):
            whole = line[4:].strip() == "/dev/null"
        elif line.startswith("+"):
            lines.append(line[1:])
        elif line.startswith("-"):
            gone.append(line[1:])
    if len(patch) > 4 * MAX_FLOW and path:
        yield Written(path, UNKNOWN)


@lru_cache(maxsize=8_192)
def runs_by_name(tool: str) -> bool:
    """Whether a tool's name says that it runs something."""
    return not _RUNS.isdisjoint(words_of(tool))


def run_by(tool: str, texts: Sequence[Text]) -> list[Text]:
    """The arguments that name a program which a tool runs by its name: `run_script`, `execute_file`."""
    words = set(words_of(tool))
    return [
        text
        for text in texts
        if text.role == "path"
        and not text.is_key
        and not (
            _PROGRAMS.isdisjoint(words) and "script" not in text.path.lower() and "program" not in text.path.lower()
        )
    ]


_PUTS: Final = frozenset({
    "backup", "convert", "copy", "cp", "download", "dump", "export", "extract", "fetch", "install", "link", "move",
    "mv", "record", "rename", "render", "restore", "save", "symlink", "unpack", "untar", "unzip",
})  # fmt: skip
_TARGETS: Final = frozenset({"dest", "destination", "dst", "out", "outfile", "output", "target", "to"})
_OF_PLACES: Final = frozenset({"path", "file", "dir", "directory", "folder", "filename"})


@lru_cache(maxsize=8_192)
def puts_by_name(tool: str) -> bool:
    """Whether a tool's name says that it puts a file at a place that one of its arguments names."""
    return not _PUTS.isdisjoint(words_of(tool))


def put_at(tool: str, texts: Sequence[Text]) -> list[Text]:
    """The arguments that name where a tool puts a file which is none of its arguments: a download, a copy."""
    if not puts_by_name(tool):
        return []
    return [text for text in texts if text.role == "path" and not text.is_key and _is_target(text.path)]


@lru_cache(maxsize=8_192)
def _is_target(pointer: str) -> bool:
    words = words_of(pointer.rpartition("/")[2])
    return not _TARGETS.isdisjoint(words) or (words[:1] in (("save",), ("new",)) and not _OF_PLACES.isdisjoint(words))


_ENDINGS: Final = {
    "py": "python", "js": "node", "mjs": "node", "cjs": "node", "jsx": "node", "ts": "node", "tsx": "node",
    "php": "php", "sql": "sql", "go": "golang", "rs": "rust", "rb": "ruby", "pl": "perl", "pm": "perl", "java": "java",
    "jsp": "java", "kt": "kotlin", "kts": "kotlin", "cs": "csharp", "fsx": "csharp", "swift": "swift", "scala": "scala",
    "sc": "scala", "lua": "lua", "r": "r", "jl": "julia", "ex": "elixir", "exs": "elixir", "groovy": "groovy",
    "dart": "dart", "nim": "nim",
}  # fmt: skip


def language_by_ending(path: str) -> str:
    """The language of a program by the ending of its name; empty where a shell runs it."""
    return _ENDINGS.get(path.rpartition(".")[2].lower(), "")


# How a script that lies anywhere is read, by the ending of its name and by the program that its first line names.
_SHELLS: Final = {
    "sh": "", "bash": "", "zsh": "", "ksh": "", "ps1": "powershell", "psm1": "powershell", "bat": "cmd", "cmd": "cmd",
}  # fmt: skip
_STARTED_BY: Final = Lazy(
    r"\A#![ \t]*\S*?(?:/env[ \t]+(?:-S[ \t]+)?)?\b((?:ba|z|k|da)?sh|python|ruby|perl|node|php|pwsh)[\d.]*\s"
)


def script_of(path: str, text: str) -> tuple[TextRole | None, str]:
    """What a script is read as, and its language or its shell; no role for what is none."""
    ending = path.rpartition(".")[2].lower()
    if ending in _SHELLS:
        return "command", _SHELLS[ending]
    if language := language_by_ending(path):
        return "code", language
    started = _STARTED_BY.match(text)
    if started is None:
        return None, ""
    name = started.group(1)
    return ("command", "") if name.endswith("sh") else ("code", name)


# What somebody's code does to the data of whoever runs it, as every program with a store does; and what is lived on.
_ITS_OWN: Final = one_of(
    "^(?:record|table|database|namespace|cluster|cloud-(?:resource|identity|log)|file|repository)$"
)
_KEPT: Final = frozenset({"credential", "secret-store", "log"})  # by a program for itself where no path says whose
_IS_PATH: Final = one_of(r"[/\\~]")
_TESTS: Final = one_of(r"(?i)(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)test_[^/]*$|[._](?:test|spec)\.[a-z]+$")
_LIVED_ON: Final = one_of(r"(?i)(?:^|[^a-z])(?:prod|prd|production|live)(?:[^a-z]|$)")
_WITH_SECRETS: Final = ("code.sends-secret", "code.reads-secret")  # where the text names one of a person
_CARRIES: Final = one_of(
    r"(?i)environ\b|process\.env|getenv|\bENV\b|\.(?:ssh|aws|npmrc|netrc|kube|gnupg|pypirc|docker|git-credentials)\b|"
    r"id_rsa|login data|dup2|/bin/(?:ba)?sh|logins\.json|/etc/shadow"
)


def steals(fact: str) -> bool:
    """Whether a signal of a script that is only written is one of what nobody's script does."""
    return fact in vocabulary().values["scriptsteals"]


def is_of_tests(path: str) -> bool:
    """Whether a file is named as one of tests, which do to what they made whatever is to be tried."""
    return bool(_TESTS(path))


def breaks(fact: str, program: str, *, is_test: bool) -> bool:
    """Whether a signal of a program that is only written counts wherever it is run."""
    if " " in fact:
        return False
    return bool(_CARRIES(program)) if fact in _WITH_SECRETS else not is_test


def concerns_others(effect: ResourceEffect) -> bool:
    """Whether a program that is only written does something to more than its own data."""
    own = _ITS_OWN(effect.resource) or (effect.resource in _KEPT and not any(map(_IS_PATH, effect.values)))
    return not own or any(map(_LIVED_ON, (*effect.values, effect.evidence)))
