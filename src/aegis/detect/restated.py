"""A call that is a command of a known program in other words: the command line that does the same.

`aws_api(service, operation, parameters)`, `kubernetes(action, resource, name)`, `redis_execute(args)` and the like say
member by member what a command line says in one text. What such a command does is known in `data/programs`; so is then
what the call does, without a table of its own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.line_files import scheduled
from aegis.detect.permissions import only_looks
from aegis.detect.roles import words_of
from aegis.detect.shell.catalogue import builtin_programs
from aegis.detect.shell.uses import DRY
from aegis.detect.tool_words import ToolCommand, commands_of, vocabulary

# What tools are called by, and the program whose commands they run.
_PROGRAMS: Final[Mapping[str, str]] = {
    "kubectl": "kubectl", "kubernetes": "kubectl", "kube": "kubectl", "k8s": "kubectl", "openshift": "oc", "oc": "oc",
    "helm": "helm", "docker": "docker", "podman": "podman", "terraform": "terraform", "tofu": "tofu",
    "opentofu": "tofu", "pulumi": "pulumi", "aws": "aws", "boto": "aws", "gcloud": "gcloud",
    "gcp": "gcloud", "az": "az", "azure": "az", "redis": "redis-cli",
    "valkey": "redis-cli", "git": "git", "systemctl": "systemctl", "systemd": "systemctl", "etcd": "etcdctl",
    "etcdctl": "etcdctl", "vault": "vault", "heroku": "heroku", "flyctl": "flyctl", "argocd": "argocd",
    "consul": "consul", "nomad": "nomad", "gh": "gh", "rabbitmq": "rabbitmqctl", "ansible": "ansible",
    "pip": "pip", "npm": "npm", "yarn": "yarn", "pnpm": "pnpm", "apt": "apt-get", "brew": "brew", "cargo": "cargo",
    "conda": "conda", "poetry": "poetry", "uv": "uv", "composer": "composer", "gem": "gem", "bun": "bun",
}  # fmt: skip
# Programs that fetch packages, and what they are told to do by the names of tools.
_PACKAGERS: Final = frozenset(
    {"pip", "npm", "yarn", "pnpm", "apt-get", "brew", "cargo", "conda", "poetry", "uv", "composer", "gem", "bun"}
)
_FETCHES: Final = frozenset({"install", "add", "download", "upgrade", "update", "sync", "remove", "uninstall"})
_OWNERS: Final = frozenset({"owner", "owners", "maintainer", "maintainers"})
_SERVICE_NAMES: Final = {"s3": "s3api"}  # where the command line has another name for what members ask
_SHELLS: Final = frozenset({"mongo", "mongodb", "mongosh"})  # whose commands are code
_ACTIONS: Final = (
    "subcommand", "action", "operation", "operationname", "op", "verb", "command", "cmd", "apicall", "method", "api",
    "call", "rpc",
)  # fmt: skip
_SERVICES: Final = ("service", "servicename", "client", "product")
_WORDS: Final = ("args", "argv", "arguments", "argslist", "commandargs", "cmdargs")
_PARAMETERS: Final = frozenset({
    "params", "parameters", "kwargs", "options", "flags", "input", "payload", "request", "args", "arguments", "body",
})  # fmt: skip
# Members whose values stand without a name on the command line, in this order.
_PLAIN: Final = (
    "resourcetype", "resource", "kind", "resourcename", "name", "names", "release", "releasename", "chart", "key",
    "keys", "container", "image", "remote", "branch", "ref", "refspec", "target", "path", "value", "unit",
    "packages", "package", "modules", "dependencies", "formula", "crate",
)  # fmt: skip
_OF_GCLOUD: Final = frozenset({"compute", "container", "sql", "iam", "projects", "storage", "functions", "run", "kms"})
_CAPITAL: Final = Lazy(r"([a-z0-9])([A-Z])")
_LONGEST: Final = 400  # characters of a value that is put on the line
_LONGEST_SCRIPT: Final = 8_192  # of a value that may be a script
_MOST: Final = 40  # words of a line
_OPTION: Final = Lazy(r"^--?[A-Za-z]")
_NAME: Final = Lazy(r"^[A-Za-z][\w:.-]{0,63}$")


class Restated(NamedTuple):
    """What a call says in other words, and what it is read as."""

    text: str
    role: TextRole


@lru_cache(maxsize=8_192)
def _program_of(tool: str) -> tuple[str, tuple[str, ...]]:
    """The program that a tool is called by, and the deed that follows in its name: `helm`, `("uninstall",)`."""
    words = words_of(tool.replace("k8s", "kubectl").replace("K8s", "kubectl"))
    for at, word in enumerate(words):
        if word in _SHELLS:
            return word, ()
        program = _PROGRAMS.get(word)
        if program is not None:
            if program == "gcloud":
                return program, tuple(one for one in words[at + 1 :] if one in _OF_GCLOUD)
            if program in _PACKAGERS:
                deed = next((one for one in words if one in _FETCHES), None)
                if deed is not None and not _OWNERS.isdisjoint(words):
                    return program, ("owner", deed)
                return (program, (deed,)) if deed is not None else ("", ())
            after = words[at + 1 :]
            known = vocabulary().values["deedwords"]
            if program == "aws" and len(after) == 1 and after[0] in vocabulary().values["served"]:
                return program, after
            if program == "aws" and len(after) > 2 and after[0] not in known and after[1] in known:
                return program, (_SERVICE_NAMES.get(after[0], after[0]), "-".join(after[1:]))
            deeds = [one for one in (*words[at + 1 :], *words[:at]) if one in known]
            if not deeds and not _LISTS.isdisjoint(words):
                return "", ()
            return program, (deeds[0], *words[words.index(deeds[0]) + 1 :]) if deeds else ()
    return "", ()


def restated(tool: str, arguments: Mapping[str, Any], deed: str = "") -> list[Restated]:
    """The command lines, or the code, that do what a call does; nothing where it names neither program nor deed.

    `deed` is what the call does in words, where a member says that beside the name of the tool.
    """
    known = commands_of(tool)
    if deed not in ("", tool):
        known = (*known, *(one for one in commands_of(deed) if one not in known))
    found = list(_commands(known, arguments)) if known else []
    if not _ROUTINES.isdisjoint(arguments):
        found += _routine(arguments)
    if not _CRON.isdisjoint(words_of(tool)):
        found += _scheduled(arguments)
    program, done = _program_of(tool if _MANAGERS.isdisjoint(arguments) else _managed(tool, arguments))
    if not program:
        for value in arguments.values():  # an option in the place of a name, or the words of what a tool is called by
            if value.__class__ is list:
                smuggled = any(map(_is_option, value)) or tool.lower() in builtin_programs()
            else:
                asks = " --" in str(value) and tool.partition("_")[0] in vocabulary().values["clouds"]
                smuggled = value.__class__ is str and (asks or (value[:1] == "-" and _is_option(value)))
            if smuggled:
                program = next((word for word in words_of(tool)[:2] if word in builtin_programs()), "")
                break
    if not program and len(arguments) < len(_OF_CLUSTER) and _CMDLET not in arguments:  # most calls
        return found
    members = {_plain(name): _Member(name, value) for name, value in arguments.items()}
    if _CMDLET in members and not program:
        return [*found, *_cmdlet(members)]
    if not program and members.keys() >= _OF_CLUSTER and isinstance(members["kind"].value, str):
        known_deeds = vocabulary().values["deedwords"]
        program, done = "kubectl", tuple(word for word in words_of(tool) if word in known_deeds)[:1]
    if not program:
        return found
    if program in _SHELLS:
        given = (one.value for one in members.values())
        code = next((value for value in given if isinstance(value, str) and value.startswith("db.")), None)
        return found if code is None else [*found, Restated(code, "code")]
    words = [part for one in _line(program, done, members) for part in (one.split() if one[:1] == "-" else [one])]
    script = next((members[name].value for name in _LUA if name in members), None) if program == "redis-cli" else None
    if isinstance(script, str):
        keys, behind = (list(_values(members[name].value)) if name in members else [] for name in ("keys", "args"))
        words = [program, "eval", script, str(len(keys)), *keys, *behind]
    if len(words) < 2:
        return found
    found.append(Restated(shlex.join(words[:_MOST]), "command"))
    for name in _BATCHES:  # commands, each by itself
        listed = members[name].value if name in members else None
        for one in islice(listed, _MOST_CALLED) if isinstance(listed, list) else ():
            said = _split(one) if isinstance(one, str) else [str(each) for each in one] if isinstance(one, list) else []
            if said:
                said = said[1:] if said[0] == program else said
                found.append(Restated(shlex.join([program, *(word[:_LONGEST] for word in said[:_MOST])]), "command"))
    return found


def _commands(known: Sequence[ToolCommand], arguments: Mapping[str, Any]) -> Iterator[Restated]:
    """The lines of a tool for a machine whose members are all given."""
    given = {_plain(str(name)): value for name, value in arguments.items()}
    for one in known:
        told = [(given[name], values) for name, values in one.when.items() if name in given]
        if any(str(value).lower() not in values for value, values in told):
            continue
        for line in one.lines:
            words = [word for part in _PIECES.findall(line) for word in _filled(part, given)]
            if "" not in words:
                yield Restated(shlex.join(words[:_MOST]), "command")


def _routine(arguments: Mapping[str, Any]) -> Iterator[Restated]:
    """The statement that calls a routine of a database which a call names beside what it is given."""
    name = next((value for key, value in arguments.items() if key in _ROUTINES), None)
    if isinstance(name, str) and _ROUTINE.match(name) is not None:
        held = next((value for key, value in arguments.items() if _plain(str(key)) in _GIVEN), None)
        named = held.items() if isinstance(held, dict) else [("", one) for one in _values(held)]
        sign = " = " if "." in name.replace("dbms_", "") or name[:3] in ("sp_", "xp_") else " => "
        words = [f"{key}{sign if key else ''}'{value}'"[:_LONGEST] for key, value in islice(named, _MOST)]
        yield Restated(
            f"EXEC {name} {', '.join(words)}" if sign == " = " else f"BEGIN {name}({', '.join(words)}); END;", "sql"
        )


def _scheduled(arguments: Mapping[str, Any]) -> Iterator[Restated]:
    """The commands behind the times of a table of jobs."""
    given = (one for value in arguments.values() for one in (value if isinstance(value, list) else [value]))
    lines = (line for one in given if isinstance(one, str) for line in one.split("\n") if line.lstrip()[:1] in _TIMES)
    for command in scheduled("\n".join(line[:_LONGEST_SCRIPT] for line in islice(lines, _MOST_CALLED)), "crontab"):
        yield Restated(command, "command")


_CRON: Final = frozenset({"cron", "crontab", "cronjob"})
_TIMES: Final = frozenset("*@0123456789")  # what the times of a job begin with


def _managed(tool: str, arguments: Mapping[str, Any]) -> str:
    manager = next((value for key, value in arguments.items() if key in _MANAGERS), None)
    return f"{manager} {tool}" if isinstance(manager, str) and manager in _PROGRAMS else tool


_LISTS: Final = frozenset({"count", "find", "list", "search", "show"})  # what is asked for without a deed
_MANAGERS: Final = frozenset({
    "manager", "package_manager", "packageManager", "pm", "installer", "ecosystem", "provider", "cloud", "cli",
})  # fmt: skip
_ROUTINES: Final = frozenset(
    {"proc", "procedure", "procedure_name", "procedureName", "stored_procedure", "storedProcedure", "sproc", "routine"}
)
_GIVEN: Final = _PARAMETERS | {"args", "arguments"}
_ROUTINE: Final = Lazy(r"^[\w.\[\]$]{2,120}$")
_PIECES: Final = Lazy(r"\{[^}]*\}|\[[^\]]*\]|\S+")


def _filled(piece: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The words that a piece of a line stands for; an empty one where no member is given that it needs."""
    option, _, named = piece[1:-1].rpartition(" ")
    members = [given[name] for each in named.split("|") if (name := _plain(each)) in given]
    if piece[0] == "[":
        yield from [option] if any(value is True or value in ("true", "yes") for value in members) else ()
    elif piece[0] == "{":
        yield from next((words for value in members if (words := list(_values(value)))), [""])
    else:
        yield piece


@lru_cache(maxsize=8_192)
def guards_by_name(tool: str) -> bool:
    """Whether a tool changes who may do what with a file, by its name, and reads nothing of it."""
    return any(line.startswith(("chmod ", "chown ")) for one in commands_of(tool) for line in one.lines)


def only_says(arguments: Mapping[str, Any]) -> bool:
    """Whether a call says that it only shows what it would do (`--dry-run`), or lets somebody see what there is."""
    if any(map(only_looks, arguments.values())):
        return True
    listed = [value for name, value in arguments.items() if _plain(name) in _WORDS and isinstance(value, list)]
    return any(isinstance(word, str) and word in DRY for value in listed for word in value[:_MOST])


def of_task(arguments: Mapping[str, Any]) -> list[Restated]:
    """The command that does what a task of Ansible does that runs one or takes a path away; nothing for any other."""
    given = next((arguments[name] for name in _OF_MODULE if name in arguments), None)
    kind = next((str(arguments[name]) for name in MODULES if name in arguments), "").rpartition(".")[2]
    if kind in _RUN_BY_MODULE:
        text = next((given[name] for name in _TEXTS if name in given), "") if isinstance(given, dict) else given
        return [Restated(text, "command")] if isinstance(text, str) and text else []
    return [Restated(line, "command") for line in of_states({kind: given}, {})]


def of_states(value: Any, told: Mapping[str, Any], named: str = "", depth: int = 0) -> Iterator[str]:
    """The commands that stand for what tasks of Ansible and states of Salt say that there is to be.

    `told` are the values of variables, `named` is what the states are of.
    """
    for one in value if isinstance(value, list) and depth < _DEEPEST else ():
        yield from of_states(one, told, named, depth + 1)
    if not isinstance(value, dict) or depth >= _DEEPEST:
        return
    told = {**told, **given} if isinstance(given := value.get("vars"), dict) else told
    loops = (inner for name, inner in value.items() if name == "loop" or name[:5] == "with_")
    looped = _with_told(next(loops, ""), told)
    for name, inner in value.items():
        args: dict[str, Any] = {"name": named}
        for one in inner if isinstance(inner, list) else [inner]:
            pairs = (word.partition("=")[::2] for word in one.split()) if isinstance(one, str) else ()
            args.update(one if isinstance(one, dict) else pairs)
        state = str(args.get("state") or ("present" if "job" in args else told.get("state", "")))
        deeds = [state, *(deed for member, values, deed in _SAID if str(args.get(member)).lower() in values)]
        tools = [f"{name.rpartition('.')[2]} {deed}" for deed in deeds if deed] + ([name] if "." in name else [])
        known = [one for tool in tools for one in commands_of(tool)]
        for item in (looped if isinstance(looped, list) else [""])[:_MOST_CALLED] if known else ():
            parts = {f"item.{key}": one for key, one in item.items()} if isinstance(item, dict) else {}
            filled = {member: _with_told(one, {**told, **parts, "item": item}) for member, one in args.items()}
            yield from (said.text for said in _commands(known, filled))
        yield from of_states(inner, told, name, depth + 1)


def of_orders(name: str, words: Sequence[str]) -> Iterator[str]:
    """The commands that stand for what many machines are told at once: `ansible all -m lvol -a 'state=absent'`."""
    told = dict(pairwise(words))
    if name == "ansible" and _CHECKS.isdisjoint(words):
        given = {short: told.get(short, told.get(long, "")) for short, long in _OF_ORDERS.items()}
        yield from of_states({given["-m"]: given["-a"]}, {"state": "done"})
    elif name in _SALTS:
        at = next((at for at, word in enumerate(words) if _OF_SALT.fullmatch(word) is not None), len(words))
        named = next((word for word in words[at + 1 :] if "=" not in word), "")
        for module in words[at : at + 1]:
            yield from of_states(
                {named: {module: " ".join(word for word in words[at + 1 :] if "=" in word)}}, {"state": "done"}
            )


_CHECKS: Final = frozenset({"-C", "--check"})
_OF_ORDERS: Final = {"-m": "--module-name", "-a": "--args"}
_SALTS: Final = frozenset({"salt", "salt-call", "salt-ssh"})
_OF_SALT: Final = Lazy(r"[a-z_]+\.[a-z_]+")
_DEEPEST: Final = 24
_SAID: Final = (("masked", ("true", "yes"), "masked"), ("enabled", ("false", "no"), "disabled"))
_TOLD: Final = Lazy(r"\{\{\s*([\w.]{1,64})\s*\}\}")


def _with_told(value: Any, told: Mapping[str, Any]) -> Any:
    """A value with what variables stand for, which may name others: `{{ item.path }}/a`."""
    for _ in range(2):
        found = _TOLD.search(value[:_LONGEST]) if isinstance(value, str) else None
        if found is None:
            break
        whole, value = found.group() == value.strip(), value[:_LONGEST]
        value = told.get(found[1], value) if whole else _TOLD.sub(lambda one: str(told.get(one[1], one[0])), value)
    return value


MODULES: Final = frozenset({"module", "module_name"})  # members that name what a task is done by
_OF_MODULE: Final = ("module_args", "args", "arguments", "params", "parameters")
_RUN_BY_MODULE: Final = frozenset({"command", "shell", "raw"})
_TEXTS: Final = ("cmd", "_raw_params", "free_form")
_APPLESCRIPTS: Final = frozenset({"osascript", "applescript", "jxa"})


def as_applescript(tool: str, text: str) -> str:
    """The command line that runs the text a tool for AppleScript is given; empty for every other tool."""
    if _APPLESCRIPTS.isdisjoint(words_of(tool)) or text.startswith("osascript "):
        return ""
    return f"osascript -e {shlex.quote(text)}"


def _cmdlet(members: Mapping[str, _Member]) -> Iterator[Restated]:
    """A command of PowerShell by its name, with its parameters beside it or in a member of their own."""
    name = members[_CMDLET].value
    if not isinstance(name, str) or _VERB_NOUN.match(name) is None:
        return
    line = [name]
    for plain, (option, value) in members.items():
        if plain in _PARAMETERS and isinstance(value, dict):
            line += [word for key, inner in value.items() for word in _parameter(str(key), inner)]
        elif plain != _CMDLET:
            line += _parameter(option, value)
    yield Restated(" ".join(line[:_MOST]), "command")


def _parameter(name: str, value: Any) -> Iterator[str]:
    """A parameter of PowerShell with its value."""
    if _NAME.match(name) is None or value is None:
        return
    if isinstance(value, bool):
        yield f"-{name}:${str(value).lower()}"
    elif isinstance(value, (str, int, float, list)):
        words = (word[:_LONGEST].replace("'", "''") for word in _values(value))
        yield f"-{name} " + ",".join(f"'{word}'" for word in words)


_CMDLET: Final = "cmdlet"
_VERB_NOUN: Final = Lazy(r"^[A-Za-z]{2,20}-[A-Za-z]{2,40}$")


def _is_option(value: Any) -> bool:
    return isinstance(value, str) and _OPTION.match(value) is not None


class _Member(NamedTuple):
    """A member of a call: its name as it is written, and its value."""

    name: str
    value: Any


_BATCHES: Final = ("commands", "pipeline", "batch", "statements", "operations")
_OF_CLUSTER: Final = frozenset({"kind", "namespace"})
_MOST_CALLED: Final = 16
_LUA: Final = ("script", "lua", "luascript", "code", "source")  # of a script that a store is to run


def _line(program: str, deed: tuple[str, ...], members: Mapping[str, _Member]) -> list[str]:
    given = {name: one.value for name, one in members.items()}
    listed = next((given[name] for name in _WORDS if isinstance(given.get(name), list)), None)
    spoken = (*_ACTIONS, *_WORDS) if program in vocabulary().values["clouds"] else _ACTIONS
    action = next((given[name] for name in spoken if _is_action(given.get(name))), None)
    if isinstance(action, list):
        listed, action = action, None
    line = [program]
    service = next((given[name] for name in _SERVICES if isinstance(given.get(name), str)), None)
    if program == "aws" and action is None and isinstance(told := given.get("target"), str):
        service, _, action = told.rpartition(".")  # `CloudTrail.StopLogging`
    if program == "aws" and service is None and deed and not vocabulary().values["deedwords"].issuperset(deed):
        service = deed[0]
    if program == "aws" and service is not None and action is not None:
        line += [service.lower(), _dashed(action.rpartition(":")[2].rpartition(".")[2])]
    elif program == "gcloud" and action is not None and (service or isinstance(given.get("group"), str)):
        line += [*(service or given["group"]).lower().split(), *_dashed(action).split(".")]
    elif program == "gcloud" and action is not None and isinstance(given.get("resource"), str):
        return [program, *deed, given["resource"], action, *_values(given.get("name"))]
    elif action is not None:
        said = _split(action)
        said = said[1:] if said[:1] == [program] else said
        line += ["get", *said[1:]] if program in _CLUSTERS and said[:1] == ["list"] else said
    elif listed is None or not _RUNS.issuperset(deed[:1]):
        line += [word for word in deed if not _is_named(word, given)]
    if listed is not None:
        longest = _LONGEST_SCRIPT if program == "redis-cli" else _LONGEST
        line += [str(one)[:longest] for one in listed if isinstance(one, (str, int, float))]
    used = {*_WORDS, *_ACTIONS, *_SERVICES} if action is not None or listed is not None else set[str]()
    if program != "aws":
        for name in _PLAIN:
            if name in given and name not in used:
                used.add(name)
                line += list(_values(given[name]))
    for plain, (name, value) in members.items():
        if plain in _PARAMETERS and isinstance(value, dict):
            line += _options(value, program)
        elif plain not in used:
            line += _options({name: value}, program)
    return line


_CLUSTERS: Final = ("kubectl", "oc")  # of whose servers a command gets what their interface lists
_SINGLE: Final = frozenset({"terraform", "tofu"})  # whose long options begin with one dash
_RUNS: Final = frozenset({"exec", "run"})  # verbs of tools that run any command of a program


def _options(members: Mapping[str, Any], program: str) -> Iterator[str]:
    """The options of a command line that members are: a switch, or a name with its value."""
    for name, value in members.items():
        option = f"{'-' if program in _SINGLE else '--'}{_dashed(str(name))}"
        if not _NAME.match(str(name)) or value in (False, None):
            continue
        if value is True:
            yield option
            if program == "aws":
                yield "true"
        elif isinstance(value, (dict, list)) and program == "aws":
            yield option
            yield json.dumps(value, ensure_ascii=False)[: 4 * _LONGEST]
        elif isinstance(value, (str, int, float, list)):
            words = list(_values(value))
            if any(_OPTION.match(word) for word in words):  # an option in the place of a name is one
                yield from words
            else:
                yield option
                yield ",".join(words)


def _values(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (str, int, float)) and not isinstance(one, bool) and str(one):
            yield str(one)[:_LONGEST]


def _is_action(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, (str, int, float)) for one in value)
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and "\n" not in value and value[:1].isalpha()


def _is_named(word: str, given: Mapping[str, Any]) -> bool:
    """Whether a word of a tool's name says again what a member holds the name of."""
    return word in ("resource", "object", "command", "tool", "release", "cli", "api") or (
        word in given and isinstance(given[word], str)
    )


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _dashed(name: str) -> str:
    return str(_CAPITAL.sub(r"\1-\2", name)).lower().replace("_", "-")
