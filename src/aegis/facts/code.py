"""What a piece of code does: its calls after parsing (Python, JavaScript, PHP), and what flows into them.

Running programs and reading files is what code is for. What is looked for is what honest code does not do: running
what was fetched or decoded, giving a shell to the network, carrying credentials out, deleting a system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import re2

from aegis.facts.code_tree import MAX_CODE, Call, Code, CodeLanguage, language_of, parse_code
from aegis.facts.effort import Effort
from aegis.facts.files import Files
from aegis.facts.paths import is_secret_file, is_secret_place
from aegis.facts.shell import analyse_shell
from aegis.facts.shell_heredocs import unescaped
from aegis.facts.shell_words import SYSTEM_ROOTS

_SHELL_CALLS: Final = re2.compile(
    r"^(?:os\.(?:system|popen|exec\w*|spawn\w*)|subprocess\.\w+|commands\.getoutput|pty\.spawn|(?:\w+\.)*(?:exec|execsync|"
    r"spawn|spawnsync|execfile|execfilesync)|system|shell_exec|passthru|popen|proc_open|pcntl_exec|shell_command|run|"
    r"asyncio\.create_subprocess_shell|call|check_output|check_call)$"
)
_RUNS_TEXT: Final = re2.compile(
    r"^(?:(?:builtins\.|__builtins__\.)?(?:exec|eval|compile|execfile)|(?:globalthis\.|window\.)?(?:eval|function|settimeout|"
    r"setinterval)|vm\.\w+|assert|create_function|include|include_once|require|types\.codetype|importlib\.\w+)$"
)
_UNPICKLES: Final = re2.compile(
    r"^(?:c?pickle|dill|cloudpickle|marshal|jsonpickle|joblib|shelve|torch)\.(?:loads?|open|decode)$|^yaml\.(?:load|unsafe_load|"
    r"full_load)$|^unserialize$|(?:^|\.)unserialize$|^serialize\.unserialize$"
)
_SENDS: Final = re2.compile(
    r"(?:^|\.)(?:post|put|patch|urlopen|request|send|sendall|sendto|sendmail|send_message|fetch|sendbeacon|curl_exec|"
    r"curl_setopt|file_get_contents|write)$|^mail$|^fetch$|^axios$"
)
_NETWORK_SENDS: Final = re2.compile(
    r"https?://|socket|smtp|requests\.|urlopen|axios|fetch\(|curl_|aiohttp|httpx|s\.send|sock\."
)
_DELETES: Final = re2.compile(
    r"^(?:shutil\.rmtree|(?:fs\.)?(?:rm|rmsync|rmdir|rmdirsync)|fs\.promises\.rm|rimraf|os\.removedirs|rmdir)$"
)
_FETCHED: Final = re2.compile(
    r"requests\.(?:get|post)|\b\w+\.get\s*\(\s*f?['\"]https?:|urlopen\s*\(|urlretrieve|httpx\.(?:get|post)|aiohttp|\bfetch\s*\(|axios\.(?:get|post)|http\.get\s*\(|"
    r"https\.get\s*\(|file_get_contents\s*\(\s*['\"]https?:|curl_exec|\.recv\s*\(|socket\.\w+|wget\.download|\$_(?:GET|POST|REQUEST|COOKIE|"
    r"SERVER|FILES)\b|php://input|getallheaders"
)
_DECODED: Final = re2.compile(
    r"(?i)b64decode|b32decode|a85decode|bytes\.fromhex|unhexlify|zlib\.decompress|gzip\.decompress|lzma\.decompress|"
    r"\batob\s*\(|,\s*['\"](?:base64|hex)['\"]\s*\)|base64_decode|gzinflate|gzuncompress|str_rot13|convert_uudecode|"
    r"codecs\.decode|marshal\.loads|fromcharcode|\bchr\s*\([^)]*\)\s*(?:for|\+|\.)|hex2bin|strrev\s*\("
)
_ENVIRONMENT: Final = re2.compile(
    r"\b\w+\.environ\b(?:\s*\)|\s*,|\s*$|\.items|\.copy|\})|\bprocess\.env\b(?:\s*[,)};]|\s*$)|\bgetenv\s*\(\s*\)|\$_ENV\b"
)
_STRINGS: Final = re2.compile(r"\"((?:[^\"\\\n]|\\.)+)\"|'((?:[^'\\\n]|\\.)+)'|`([^`]+)`")
_ESCAPES_SANDBOX: Final = re2.compile(
    r"__subclasses__\s*\(|__globals__\s*\[|__builtins__\s*\[|\.mro\s*\(\)|func_globals|constructor\s*\.\s*constructor\s*\(|"
    r"\.constructor\s*\(\s*['\"]return\s+(?:this|process)|process\.binding\s*\(|process\.mainModule|__import__\s*\(\s*['\"](?:os|subprocess|pty)['\"]\s*\)\s*\.\s*(?:system|popen|spawn)"
)
_DUPLICATES: Final = re2.compile(
    r"\bdup2\s*\(|fileno\s*\(\)|\.pipe\s*\(\s*\w*(?:stdin|sh\.stdin|client|socket|net)|stdin\s*=\s*s\b|proc_open"
)
_CONNECTS: Final = re2.compile(
    r"socket\.socket|\.connect\s*\(|net\.(?:connect|socket|createconnection)|fsockopen|stream_socket_client|new\s+net\.Socket|create_connection"
)
_SHELL_NAME: Final = re2.compile(r"['\"](?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh(?:\s+-i)?['\"]|cmd\.exe|powershell")
_PRIVILEGE: Final = re2.compile(r"^(?:os|posix|process)\.set(?:e?uid|e?gid|resuid)$")
_DEEPEST: Final = 3  # programs that one another start and are read in turn
_MOST_PROGRAMS: Final = 16
_FORK: Final = re2.compile(
    r"while\s*(?:\(?\s*(?:True|true|1)\s*\)?)\s*[:{]?\s*(?:os\.fork|fork\s*\(|child_process\.fork|pcntl_fork)"
)


@dataclass(kw_only=True, slots=True)
class CodeFacts:
    """What one piece of code does; `signals` are stable names with the piece that shows them."""

    too_long: bool = False
    network: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    programs: list[tuple[str, str]] = field(default_factory=list)


def analyse_code(
    text: str, hint: str = "", effort: Effort | None = None, files: Files | None = None, depth: int = 0
) -> CodeFacts:
    """The facts of one piece of code; never raises, and reads `MAX_CODE` characters at most, while `effort` lasts.

    `files` is what is known of files that were written before; `runs` of the answer are those that it runs.
    """
    facts = CodeFacts()
    effort = effort or Effort()
    if len(text) > MAX_CODE or not effort.take(len(text)):
        facts.too_long = True
        return facts
    language = language_of(text, hint)
    code = parse_code(text, language, effort)
    facts.too_long = code.cut
    kinds = _flows(code)
    for call in code.calls:
        _judge(call, kinds, language, facts, effort, files)
    for started, program in facts.programs[:_MOST_PROGRAMS]:
        if depth == _DEEPEST:
            facts.too_long = True
            break
        inner = analyse_code(program, started, effort, files, depth + 1)
        facts.too_long |= inner.too_long
        facts.runs.extend(inner.runs)
        facts.signals.extend(inner.signals)
    if _ESCAPES_SANDBOX.search(text):
        facts.signals.append(("code.escapes", text[:80]))
    if _CONNECTS.search(text) and _SHELL_NAME.search(text) and (_DUPLICATES.search(text) or "spawn" in text):
        facts.signals.append(("code.reverse", text[:80]))
    if _FORK.search(text):
        facts.signals.append(("code.destroys", text[:80]))
    return facts


def _judge(
    call: Call,
    kinds: dict[str, frozenset[str]],
    language: CodeLanguage,
    facts: CodeFacts,
    effort: Effort,
    files: Files | None,
) -> None:
    name, shown = call.name, call.text[:80]
    given = _kinds(call.arguments, kinds)
    if _RUNS_TEXT.match(name) and not (language == "javascript" and name in {"require", "compile"}):
        if "fetched" in given:
            facts.signals.append(("code.runs-fetched", shown))
        elif "decoded" in given:
            facts.signals.append(("code.runs-decoded", shown))
    if _SHELL_CALLS.match(name):
        if "fetched" in given:
            facts.signals.append(("code.runs-fetched", shown))
        elif "decoded" in given:
            facts.signals.append(("code.runs-decoded", shown))
        _shell(call, facts, effort, files)
    if _UNPICKLES.match(name) and given & {"fetched", "decoded"}:
        facts.signals.append(("code.unpickles", shown))
    if _DELETES.match(name) and any(_is_system(word) for word in _strings(call.arguments)):
        facts.irreversible = True
        facts.signals.append(("code.destroys", shown))
    if _PRIVILEGE.match(name) and call.arguments.strip("() ") == "0":
        facts.signals.append(("code.privilege", shown))
    reads = (
        "open" in name or "read" in name or "load" in name or "copy" in name or "get_contents" in name or "path" in name
    )
    if reads and any(is_secret_file(word) or is_secret_place(word) for word in _strings(call.arguments)):
        facts.signals.append(("code.reads-secret", shown))
    if _SENDS.search(name) and _NETWORK_SENDS.search(call.text):
        facts.network = True
        if given & {"secret", "environment"}:
            facts.signals.append(("code.sends-secret", shown))


def _shell(call: Call, facts: CodeFacts, effort: Effort, files: Files | None) -> None:
    """What a call that runs a program runs: the words of a list are one command line."""
    words = list(_strings(call.arguments))
    if not words:
        return
    line = " ".join(words) if call.arguments.lstrip("( ").startswith("[") else words[0]
    # A raw string keeps its backslashes, every other one is undone.
    for script in dict.fromkeys((unescaped(line), line)):
        inner = analyse_shell(script, 1, effort, files=files)
        facts.runs.extend(inner.runs)
        facts.programs.extend(inner.programs)
        facts.too_long |= inner.too_long
        facts.network |= inner.network
        facts.irreversible |= inner.irreversible
        facts.signals.extend(inner.signals)


def _flows(code: Code) -> dict[str, frozenset[str]]:
    """What the names of a text hold, by what was assigned to them, in its order."""
    kinds: dict[str, frozenset[str]] = {}
    for assignment in code.assignments:
        found = _kinds(assignment.value, kinds)
        if found:
            kinds[assignment.name] = kinds.get(assignment.name, frozenset()) | found
    return kinds


_NAME: Final = re2.compile(r"\$?[A-Za-z_]\w*")


def _kinds(text: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    if _FETCHED.search(text):
        found.add("fetched")
    if _DECODED.search(text):
        found.add("decoded")
    if _ENVIRONMENT.search(text):
        found.add("environment")
    if any(is_secret_file(word) or word == "/etc/passwd" for word in _strings(text)):
        found.add("secret")
    if known:
        for match in _NAME.finditer(text):
            found |= known.get(match.group(), frozenset())
    return frozenset(found)


def _strings(text: str) -> Iterator[str]:
    for number, match in enumerate(_STRINGS.finditer(text)):
        if number >= 100:
            return
        yield next(group for group in match.groups() if group is not None)


def _is_system(word: str) -> bool:
    lowered = word.lower()
    return lowered in SYSTEM_ROOTS or (lowered.rstrip("/") or "/") in SYSTEM_ROOTS
