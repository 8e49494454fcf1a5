"""What a piece of code does: its calls after parsing, what flows into them, and the resources that they touch.

Running programs and reading files is what code is for. What is looked for is what honest code does not do: running
what was fetched or decoded, giving a shell to the network, carrying credentials out, destroying a system.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from tree_sitter import Node

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.files import Files, Written
from aegis.detect.fold import unpiled
from aegis.detect.languages.aliases import Assignment, CodeCall, add_aliases, assignment_of, call_of, result_of
from aegis.detect.languages.calls import calls_of, flow
from aegis.detect.languages.deeds import ProgramDeeds, deeds_of
from aegis.detect.languages.followed import HOLE
from aegis.detect.languages.leaks import (
    SHELL_NAME,
    WORTH,
    kinds_told,
    leaked,
    may_leak,
    runs_sent,
    signals_together,
    steals,
    told_together,
)
from aegis.detect.languages.plain import captured
from aegis.detect.languages.reach import reached
from aegis.detect.languages.syntax import LANGUAGES, CodeLanguage, catches_errors, language_of, spelled
from aegis.detect.paths import is_secret_file, is_secret_place, is_settings_file
from aegis.detect.quick import one_of, remembered
from aegis.detect.shell.doors import take_doors
from aegis.detect.shell.heredocs import unescaped
from aegis.detect.shell.windows import analyse_command

__all__ = ["LANGUAGES", "MAX_CODE", "CodeLanguage", "analyse_code", "language_of", "parse_code"]

# The parsers (tree-sitter) never fail: what they cannot read becomes an error node, the rest around it is still there.

MAX_CODE: Final = 16_384  # characters given to a parser
_MOST_NODES: Final = 2_000  # calls and assignments of one text that are looked at
_LONGER: Final = 2  # times as long as itself that a text may become; one character can stand for eighteen
_UNITS: Final = 1  # of effort that a character of a call costs


class Code(NamedTuple):
    """The calls and assignments of a text, in its order; `cut` where not all of it was read as it stands."""

    calls: tuple[CodeCall, ...]
    assignments: tuple[Assignment, ...]
    cut: bool = False
    deeds: tuple[ProgramDeeds, ...] = ()


def parse_code(text: str, language: CodeLanguage, effort: Effort) -> Code:
    """The calls and assignments of at most `MAX_CODE` characters of `spelled` code, and what they do.

    Calls stand inside calls, and each is read whole: what it costs is its own length.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unpiled(text))  # as Python reads names (PEP 3131)
        if len(text) > MAX_CODE * _LONGER:
            return Code((), (), cut=True)
    calls: list[CodeCall] = []
    assignments: list[Assignment] = []
    aliases: dict[str, str] = {}
    deeds: list[ProgramDeeds] = []
    cut = False
    for seen in captured(text, language, effort):
        if seen is None:
            cut = True
            continue
        if language == "python":
            for node in seen.nodes.get("import", ()):
                add_aliases(node, aliases)
        every, assigns = seen.nodes.get("call", ()), seen.nodes.get("assign", ())
        nodes = [node for node in _affordable(every, effort) if not catches_errors(node)]
        assigned = _affordable(assigns, effort)
        cut = cut or len(nodes) + len(assigned) < len(every) + len(assigns)
        program = reached({**seen.nodes, "call": nodes, "assign": assigned}, language, aliases)
        calls += sorted(
            (call_of(node, aliases, language, program.names.held(node)) for node in program.nodes["call"]), key=_order
        )
        given = [*map(assignment_of, program.nodes["assign"]), *map(assignment_of, program.nodes.get("alias", ()))]
        given += map(result_of, program.nodes.get("function", ()))
        assignments += sorted(filter(None, given), key=_order)
        deeds.append(deeds_of(program, language))
    return Code(tuple(calls), tuple(assignments), cut, tuple(deeds))


def _affordable(nodes: Sequence[Node], effort: Effort) -> list[Node]:
    """The first nodes, as far as `effort` goes."""
    taken: list[Node] = []
    for node in nodes[:_MOST_NODES]:
        if not effort.take((node.end_byte - node.start_byte) * _UNITS):
            break
        taken.append(node)
    return taken


def _order(item: CodeCall | Assignment) -> int:
    return item.order


_SHELL_CALLS: Final = Lazy(flow("starts"))
_STARTS: Final = Lazy(flow("starts-program"))
_RUNS_TEXT: Final = Lazy(flow("runs-text"))
_UNPICKLES: Final = Lazy(
    r"^(?:c?pickle|dill|cloudpickle|marshal|jsonpickle|joblib|shelve|torch)\.(?:loads?|open|decode)$|^yaml\.(?:load|unsafe_load|"
    r"full_load)$|^unserialize$|(?:^|\.)unserialize$|^serialize\.unserialize$"
)
_SENDS: Final = Lazy(flow("sends"))
_NETWORK_SENDS: Final = Lazy(flow("network"))
# Of JavaScript: what runs no text of a program, what runs a text or calls a function, and a name that it is given.
_LOADS: Final = frozenset({"load", "require", "compile", "math.evaluate"})
_TIMERS: Final = ("settimeout", "setinterval", "setimmediate")
_CALLED: Final = Lazy(r"^\(\s*(\w+)\s*[,)]")
_FUNCTION: Final = Lazy(r"^\s*(?:async\s*)?(?:function\b|\w+\s*=>|\([^()]*\)\s*(?::[^=]*)?=>)")
_PRINTS: Final = frozenset({"print", "puts"})
# What a name holds through which something is sent that no text of the call shows.
_CONNECTION: Final = Lazy(flow("connection"))
_FETCHED: Final = Lazy(flow("fetched"))
_DECODED: Final = Lazy(flow("decoded"))
# The argument of what runs a text: what a function of the program turns back, or a text that nobody can read.
_HIDDEN_CODE: Final = Lazy(
    r"(?i)^\(\s*(?:\w+\.){0,4}_*(?:decode|decrypt|decipher|deobfuscate|decompress|reveal|unhide|unxor|xor|unscramble)\w{0,20}\s*\("
)
_HIDDEN_TEXT: Final = Lazy(r"^\(\s*b?[\"'][A-Za-z0-9+/=_-]{80,}[\"']")
_ENVIRONMENT: Final = Lazy(flow("environment"))
_COUNTED: Final = Lazy(
    r"\bENV\.(?:to_h|to_a)\.(?:size|length|count|keys|empty\?|key\?)|\blen\(\s*(?:dict\()?os\.environ\)+"
)
# What writes a file, with the name of the file or what holds it.
_FILES: Final = Lazy(
    r"\bopen\(\s*(?:[\"']([^\"'\n]{1,200})[\"']|(\w+))\s*,\s*[\"'][wa]|"
    r"(?:writeFile(?:Sync)?|writeTextFile(?:Sync)?|file_put_contents|File\.(?:bin)?write|IO\.write|os\.WriteFile)\s*\(\s*"
    r"(?:[\"'`]([^\"'`\n]{1,200})[\"'`]|(\$?\w+))|"
    r"\bPath\(\s*(?:[\"']([^\"'\n]{1,200})[\"']|(\w+))\s*\)\.write_"
)
_TAKEN: Final = frozenset({"environment", "secret", "variable"})
_STRINGS: Final = Lazy(r"\"((?:[^\"\\\n]|\\.)+)\"|'((?:[^'\\\n]|\\.)+)'|`([^`]+)`")
# What another machine sent, as it comes in pieces or at once, and what runs it.
_COMES_IN: Final = Lazy(
    r"\.on\(\s*['\"]data['\"]\s*,\s*(?:async\s*)?(?:function\s*)?\(?\s*\w+\s*\)?\s*(?:=>)?\s*\{?\s*(\w+)\s*\+=|"
    r"(?:\.onmessage\s*=|addEventListener\(\s*['\"]message['\"]\s*,|\.on\(\s*['\"]message['\"]\s*,)\s*(?:async\s*)?(?:function\s*)?\(?(\w+)\)?|"
    r"WRITEDATA\s*,\s*(\w+)|(?:\.then\(|\.on\(\s*['\"]data['\"]\s*,)\s*(?:async\s*)?(?:function\s*)?\(?(\w+)\)?\s*(?:=>)?\s*\{?\s*(?:return\s+)?"
    r"(?:(?:window|globalThis)\.)?(?:eval|(?:new\s+)?Function|vm\.run\w+)\s*\("
)
# What runs a text, handed to whatever holds one: `fetch(url).then(r => r.text()).then(eval)`.
_HANDED_ON: Final = Lazy(
    r"^\(\s*(?:(?:globalThis|window|global|self)\.)?(?:eval|Function|vm\.runIn\w+)\s*[,)]|"
    r"^\(\s*(?:['\"](?:shell_exec|system|exec|passthru|popen|proc_open|assert)['\"]|os\.(?:system|popen)|exec|subprocess\.\w+)\s*,|"
    r"^\(\s*&(?:Kernel\.)?method\(\s*:(?:instance_)?eval\)"
)
_HAND_ON: Final = (
    ".then", "map", "call_user_func", "call_user_func_array", "array_walk", "array_filter", "filter", "each",
)  # fmt: skip
_PRIVILEGE: Final = Lazy(r"^(?:os|posix|process)\.set(?:e?uid|e?gid|resuid)$")
_DEEPEST: Final = 3  # programs that one another start and are read in turn
_MOST_PROGRAMS: Final = 16
# A command that is what a request or a message says, with nothing of the program's own before it.
_ASKED_FROM_OUTSIDE: Final = Lazy(
    r"^\(\s*(?:(?:flask\.)?request\.(?:args|form|values|json|GET|POST|data|get_json|query_params|cookies|headers)\b|"
    r"req\.(?:query|body|params|headers)\b|(?:m|msg|message|update\.message|event|ctx\.message)\.(?:text|content|body)\b|"
    r"(?:s|sock|conn|client|c)\.recv\()"
)


class CodeFacts(Struct, kw_only=True):
    """What one piece of code does; `signals` are stable names with the piece that shows them."""

    too_long: bool = False
    network: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    programs: list[tuple[str, str]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    effects: list[ResourceEffect] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)


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
    text = spelled(text, language)
    code = parse_code(text, language, effort)
    facts.too_long = code.cut
    kinds = _flows(code) if _MAY_FLOW(text) else None
    if kinds is not None:
        for match in _COMES_IN.finditer(text):
            kinds[next(filter(None, match.groups()))] = frozenset({"fetched"})
    for call in code.calls:
        _judge(call, kinds, language, facts, effort, files)
    if kinds is not None and may_leak(text):
        for call in code.calls:
            _judge_leak(call, kinds, facts)
        for one in code.assignments:
            placed = one.name.endswith((".src", ".href", "location"))
            if placed and _kinds(one.value, kinds) & {"person", "environment"}:
                facts.effects.append(ResourceEffect("send", "address", "one", (), "", one.value[:80]))
        if steals(text):
            facts.effects.append(ResourceEffect("read", "browser-data", "one", (), "", text[:80]))
    for deeds in code.deeds:
        facts.effects.extend(deeds.effects)
        take_doors(deeds.effects, HOLE, facts)
        facts.irreversible |= any(
            effect.verb == "delete" and effect.scope == "all" and effect.resource != "file" for effect in deeds.effects
        )
        for command in deeds.commands:
            _command(command, facts, effort, files)
        facts.programs.extend((language, program) for program in deeds.programs)
        facts.statements.extend(deeds.statements)
        facts.written.extend(deeds.written)
    facts.effects.extend(list(told_together(text, language, facts.effects, _strings)))
    for started, program in facts.programs[:_MOST_PROGRAMS]:
        if depth == _DEEPEST:
            facts.too_long = True
            break
        inner = analyse_code(program, started, effort, files, depth + 1)
        facts.too_long |= inner.too_long
        facts.runs.extend(inner.runs)
        facts.signals.extend(inner.signals)
        facts.effects.extend(inner.effects)
        facts.statements.extend(inner.statements)
    facts.signals.extend(signals_together(text))
    facts.signals.extend(runs_sent(text, code.assignments, code.calls))
    return facts


# What is asked of the name of a call; names come again, so the answers are remembered.
_ASKED: Final = remembered(
    one_of(*(pattern.pattern for pattern in (_RUNS_TEXT, _SHELL_CALLS, _UNPICKLES, _SENDS, _PRIVILEGE, _STARTS)))
)
_READS: Final = remembered(one_of("open|read|load|copy|get_contents|path"))


def _judge(
    call: CodeCall,
    kinds: dict[str, frozenset[str]] | None,
    language: CodeLanguage,
    facts: CodeFacts,
    effort: Effort,
    files: Files | None,
) -> None:
    """Judge one call; `kinds` is what names of the text hold, `None` where no text of its may hold anything."""
    name = call.name
    asked = _ASKED(name)
    if kinds is None:
        if 1 in asked:
            if _ASKED_FROM_OUTSIDE.match(call.arguments):
                facts.signals.append(("code.runs-fetched", call.text[:80]))
            _shell(call, facts, effort, files)
        if 3 in asked and _NETWORK_SENDS.search(call.text):
            facts.network = True
    elif asked or _READS(name) or name.endswith(_HAND_ON):
        _judge_flow(call, asked, kinds, language, facts, effort, files)
    if 4 in asked and call.arguments.strip("() ") == "0":
        facts.signals.append(("code.privilege", call.text[:80]))


def _judge_leak(call: CodeCall, kinds: dict[str, frozenset[str]], facts: CodeFacts) -> None:
    """Add what a call carries out of who and where the program runs, or to whom nobody answers for."""
    given, told = call.arguments, _kinds(call.arguments, kinds)
    effects = leaked(call.name, given, list(_strings(given)), told, call.text[:80])
    facts.network = facts.network or bool(effects)
    facts.effects.extend(effects)


def _judge_flow(
    call: CodeCall,
    asked: list[int],
    kinds: dict[str, frozenset[str]],
    language: CodeLanguage,
    facts: CodeFacts,
    effort: Effort,
    files: Files | None,
) -> None:
    name, shown = call.name, call.text[:80]
    given = _kinds(call.arguments, kinds) if set(asked) & {0, 1, 2, 3} else frozenset()
    if _HANDED_ON.search(call.arguments) and "fetched" in _kinds(call.text, kinds):
        facts.signals.append(("code.runs-fetched", shown))
    if 0 in asked and (_HIDDEN_CODE.match(call.arguments) or _HIDDEN_TEXT.match(call.arguments)):
        facts.signals.append(("code.runs-decoded", shown))
    elif 0 in asked and not (
        language in ("javascript", "typescript") and (name in _LOADS or _calls_function(call, kinds))
    ):
        if "fetched" in given:
            facts.signals.append(("code.runs-fetched", shown))
        elif "decoded" in given:
            facts.signals.append(("code.runs-decoded", shown))
    if 1 in asked:
        read = "fetched" in given and _FED.search(call.arguments) and _READER.search(call.arguments)
        told = _kinds(str(_FED.sub("", call.arguments)), kinds) if read else given  # by a program that runs nothing
        if _ASKED_FROM_OUTSIDE.match(call.arguments) or "fetched" in told:
            facts.signals.append(("code.runs-fetched", shown))
        elif "decoded" in given:
            facts.signals.append(("code.runs-decoded", shown))
        _shell(call, facts, effort, files)
    elif 5 in asked and "fetched" in _kinds(call.arguments, kinds) and SHELL_NAME.search(call.text):
        facts.signals.append(("code.runs-fetched", shown))
    if 2 in asked and given & {"fetched", "decoded"}:
        facts.signals.append(("code.unpickles", shown))
    folders = "copy" in name or "archive" in name
    reads = _READS(name) and calls_of(language).may_read(name, call.arguments)
    if reads and any(_is_secret(word) or (folders and is_secret_place(word)) for word in _strings(call.arguments)):
        facts.signals.append(("code.reads-secret", shown))
    written = name.rpartition(".")[2] in _PRINTS and language != "perl"  # an address that is shown leads nowhere
    if 3 in asked and (
        _NETWORK_SENDS.search(call.text.replace("://", "") if written else call.text)
        or _CONNECTION.search(call.text)
        or "connection" in kinds.get(name.partition(".")[0], frozenset())
    ):
        facts.network = True
        if given & {"secret", "environment"}:
            facts.signals.append(("code.sends-secret", shown))


def _calls_function(call: CodeCall, kinds: dict[str, frozenset[str]]) -> bool:
    """Whether a call has a function called later by its name, which never holds anything else."""
    named = _CALLED.match(call.arguments) if call.name.endswith(_TIMERS) else None
    held = kinds.get(named.group(1), frozenset()) if named is not None else frozenset()
    return "function" in held and "value" not in held


def _is_secret(word: str) -> bool:
    """Whether a program that names the file is after credentials: settings of its own (`.env`) are none."""
    return is_secret_file(word) and not word.rpartition("/")[2].startswith(".env")


def _shell(call: CodeCall, facts: CodeFacts, effort: Effort, files: Files | None) -> None:
    """What a call that runs a program runs: the words of a list are one command line."""
    words, listed = list(_strings(call.arguments)), call.arguments.lstrip("( ").startswith("[")
    if len(words) == 1 and _NAMED_ARGUMENTS.search(call.arguments):
        return  # what the program is called with is followed where names are
    options = words[1:2] and words[1][:1] == "-"  # a program, and behind it what it is called with
    line = " ".join(words) if listed else shlex.join(words) if options else "".join(words[:1])
    # A raw string keeps its backslashes, every other one is undone.
    for script in dict.fromkeys((unescaped(line), line)) if line else ():
        _command(script, facts, effort, files)


# A program by itself that runs nothing of what it reads, with options that name no other program.
_READER: Final = Lazy(
    r"^\(\s*(?:\[\s*)?[\"'`](?:/usr)?(?:/bin/)?(?:jq|wc|grep|head|tail|uniq|cut|tr|base64|md5sum|sha\d+sum|"
    r"gunzip|zcat|xmllint|column|cat)(?:[\"'`]|\s+[^|&;$`<>\"'\n]{0,200}[\"'`])"
)
_FED: Final = Lazy(r",\s*(?:input|stdin)\s*[=:]\s*[\w.]+(?:\(\))?")
_NAMED_ARGUMENTS: Final = Lazy(r"^\(?\s*[\"'][^\"']{1,80}[\"']\s*,\s*[A-Za-z_$][\w$.]*\s*(?:,[^()]{0,200})?\)?$")


def _command(script: str, facts: CodeFacts, effort: Effort, files: Files | None) -> None:
    """Add what a command line does that the code runs; each is read once."""
    if script in facts.commands:
        return
    facts.commands.add(script)
    inner = analyse_command(script, "", effort, files or Files(), 1)
    facts.runs.extend(inner.runs)
    facts.programs.extend(inner.programs)
    facts.too_long |= inner.too_long
    facts.network |= inner.network
    facts.irreversible |= inner.irreversible
    facts.signals.extend(inner.signals)
    facts.effects.extend(inner.effects)
    facts.written.extend(inner.written)


_SECRETS: Final = (
    r"(?i)\.ssh|id_rsa|id_dsa|id_ecdsa|id_ed25519|identity|\.aws|\.azure|gcloud|\.kube|docker|netrc|pgpass|"
    r"my\.cnf|npmrc|pypirc|git-credentials|gnupg|vault|htpasswd|history|shadow|passwd|sudoers|keytab|environ|[/\\]proc[/\\]|"
    r"[/\\]sam\b|system32|ntds|login data|cookies|logins\.json|key[34]\.db|wallet|service[_-]account|\.env|\.pem|\.p12|"
    r"\.pfx|keystore|\.jks|\.ppk|kdbx|secrets?|credential|keyring|keychain|s3cfg|\.boto|password|rhosts|mozilla|rclone|[/\\]gh[/\\]|master|kaggle|huggingface|wp-config|tfstate"
)
_HIDES: Final = (
    r"(?i)\b(?:exec|eval|assert|compile)\s*\(\s*(?:b?[\"'][A-Za-z0-9+/=_-]{80}|(?:\w+\.){0,4}_*(?:de(?:code|crypt|cipher|obfuscate|"
    r"compress)|reveal|un(?:hide|xor|scramble)|xor))"
)
# What something must stand in the text for: most programs have nothing of it, and are not asked call by call.
_MAY_FLOW: Final = one_of(_FETCHED.pattern, _DECODED.pattern, _ENVIRONMENT.pattern, _SECRETS, _HIDES, *WORTH)


def _flows(code: Code) -> dict[str, frozenset[str]]:
    """What the names of a text hold, by what was assigned to them, in its order, and the files that it writes."""
    kinds: dict[str, frozenset[str]] = {}
    _assign(code.assignments, kinds)
    if not any(map(_TAKEN.intersection, kinds.values())) and not any(
        _ENVIRONMENT.search(call.arguments) for call in code.calls
    ):
        return kinds
    held = {one.name: target for one in code.assignments for target in _files_of(one.value)}
    for call in code.calls:
        owner, _, verb = call.name.rpartition(".")
        targets = _files_of(call.text)
        if verb in _WRITES:  # to the file that it is called on, or is given
            targets += [held[name] for name in (owner, *_NAME.findall(call.arguments)[-1:]) if name in held]
        taken = _kinds(call.arguments, kinds) & _TAKEN if targets else frozenset()
        for target in (_FILED, *targets) if taken else ():
            kinds[target] = kinds.get(target, frozenset()) | taken
    _assign(code.assignments, kinds)
    return kinds


def _assign(assignments: Sequence[Assignment], kinds: dict[str, frozenset[str]]) -> None:
    for assignment in assignments:
        found = _kinds(assignment.value, kinds)
        if found:
            found |= {"function" if _FUNCTION.match(assignment.value) else "value"}
        for match in _NAME.finditer(assignment.name) if found else ():
            kinds[match.group()] = kinds.get(match.group(), frozenset()) | found


def _files_of(text: str) -> list[str]:
    """The files that a piece of code writes: a name that holds one, or the file's own name behind a quote."""
    groups = [match.groups() for match in _FILES.finditer(text)]
    return [f"{_FILED}{group}" if at % 2 == 0 else group for found in groups for at, group in enumerate(found) if group]


_FILED: Final = '"'  # before the name of a file among those of values
_WRITES: Final = frozenset({"write", "writelines", "puts", "print", "WriteString", "Write", "writeText", "dump"})


_NAME: Final = Lazy(r"\$?[A-Za-z_]\w*")


def _kinds(text: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    if _FETCHED.search(text):
        found.add("fetched")
    if _DECODED.search(text):
        found.add("decoded")
    if _ENVIRONMENT.search(text) and _ENVIRONMENT.search(str(_COUNTED.sub("", text))):
        found.add("environment")
    if _CONNECTION.search(text):
        found.add("connection")
    if any(is_secret_file(word) or is_settings_file(word) or word == "/etc/passwd" for word in _strings(text)):
        found.add("secret")
    found |= kinds_told(text)
    if known:
        for match in _NAME.finditer(text):
            found |= known.get(match.group(), frozenset())
        for word in _strings(text) if _FILED in known else ():
            found |= known.get(f"{_FILED}{word}", frozenset())
    return frozenset(found)


def _strings(text: str) -> Iterator[str]:
    for number, match in enumerate(_STRINGS.finditer(text)):
        if number >= 100:
            return
        yield next(group for group in match.groups() if group is not None)
