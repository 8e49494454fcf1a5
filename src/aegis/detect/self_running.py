"""Files that run by themselves: what a call writes to where, and the commands that will run there.

A write is an effect on the resource that its path names, whichever tool makes it. Where a build server, an editor, a
package manager or a shell will run the text, its commands are read as commands: a workflow that runs the tests is a
document like any other, one that pipes a download into a shell is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice, takewhile
from typing import Any, Final

import orjson
import yaml

from aegis.core.effects import Resource, ResourceEffect
from aegis.core.names import glob_match
from aegis.core.patterns import Lazy
from aegis.detect.containers import of_container
from aegis.detect.files import MAX_FLOW, Written, last_name
from aegis.detect.hosts import is_local, read_target
from aegis.detect.line_files import (
    BUILDS,
    COMMENTS,
    PLAYS,
    TEXT,
    container_start,
    in_container,
    loose,
    of_launchd,
    of_lines,
    of_make,
    of_notebook,
    of_registry,
    of_tmpfiles,
    parsed_blocks,
    scheduled,
    tidied,
    unquoted,
    with_package,
)
from aegis.detect.permissions import stated
from aegis.detect.resources import FileSetting, builtin_resources, place_of
from aegis.detect.restated import of_states
from aegis.detect.tool_files import language_by_ending
from aegis.detect.tool_words import effect_of, vocabulary

MOST_COMMANDS: Final = 64  # of one file that are read: bounds what one write makes the analysers do
_MOST_NODES: Final = 4_000
_DEEPEST: Final = 24
_MOST_YAML: Final = 16_384
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PACKAGES: Final = frozenset({"composer.json", "package.json"})  # a piece of one does not say whether it is scripts
_SHELL_FILES: Final = ("startup", "hook", "task")
_READ_AS: Final = (
    "#!/bin/sh\n", "#!/bin/bash\n", "#!/usr/bin/env bash\n", "#!/usr/bin/env sh\n", "#!/bin/zsh\n",
)  # fmt: skip


def gives_away(
    place: Resource | None, written: Written, language: str, programs: Sequence[str]
) -> Iterator[ResourceEffect]:
    """What a written file starts, hands out or no longer guards once it runs by itself, beside what its commands do."""
    if place is not None and not language:
        if (sent := _sends_out(place, programs)) != "":
            yield ResourceEffect("send", "repository", "one", (), "", sent)
        if _TMPFILES.search(written.path) is not None and (gone := next(filter(_OWN_WORK.search, programs), "")):
            yield ResourceEffect("delete", "home", "many", (), "", gone)
    for does, shown in said(place, written, programs):
        if does:
            yield effect_of(does)._replace(evidence=shown)
    yield from declared(written)
    value = parsed_json(written.flow.text[:MAX_FLOW]) if written.path.endswith("devcontainer.json") else None
    mounts = value.get("mounts") if isinstance(value, dict) else None
    given = [one for one in mounts if _LENT.search(str(one)) is None] if isinstance(mounts, list) else []
    yield from of_container({"mounts": given})


def commands_in(place: Resource | None, written: Written) -> tuple[str, list[str]]:
    """What runs by itself of a written file: the language, empty for shell commands, and the texts in it."""
    if place is None and (written.path.endswith(_OF_PLAYS) and PLAYS.search(written.flow.text[:MAX_FLOW])):
        place = "package"
    if place is None and BUILDS.search(written.flow.text[:MAX_FLOW]) is not None:
        commands = (command for value in _documents_of(written) for command in _of_value(value))
        return "", list(islice(commands, MOST_COMMANDS))
    language, programs = _read(place, written) if place is not None else ("", [])
    if programs or language or place in (None, "public-place"):
        return language, programs
    return "", list(islice(loose(written.flow.text[:MAX_FLOW]), MOST_COMMANDS))


_OF_PLAYS: Final = (".yml", ".yaml", ".sls")
_OF_TEMPLATES: Final = Lazy(r"(?m)^[ \t]*\{%.*%\}[ \t]*$")


def _read(place: Resource, written: Written) -> tuple[str, list[str]]:
    """What runs of a file that has a form of its own, as `commands_in` tells it."""
    text, name = written.flow.text[:MAX_FLOW], last_name(written.path).lower()
    text = _OF_EDITORS.sub("/home/user", text) if place == "editor-task" else text
    if not text.strip():
        return "", []
    if place == "public-place":  # a server runs what lies there
        language = language_by_ending(name)
        return language, [text] if language else []
    if name.endswith(".pth"):
        return "python", [line for line in text.splitlines() if line.startswith(("import ", "import\t"))]
    if name.endswith(".ipynb"):
        return "python", list(of_notebook(parsed_json(text)))
    if name.endswith(".py") or name == "build.rs":
        return "python" if name.endswith(".py") else "rust", [text]
    if name.endswith((".json", ".code-workspace")):
        value = parsed_json(text)
        if value is not None:
            lent = name.endswith("devcontainer.json") and isinstance(value, dict)
            commands = [one.removeprefix("@") for one in _of_value(in_container(value) if lent else value)][
                :MOST_COMMANDS
            ]
            if lent:
                commands.append(container_start(value))
            return "", with_package(commands, value) if name == "package.json" else commands
        return "", list(_of_value(_members(text), runs=name in _PACKAGES))[:MOST_COMMANDS]
    if name.endswith((".reg", ".plist")):
        read = of_registry if name.endswith(".reg") else of_launchd
        return "", list(islice(read(text), MOST_COMMANDS))
    if name.endswith(_OF_PLAYS) or text.startswith("#cloud-config"):
        value = parsed_yaml(_OF_TEMPLATES.sub("", text)) or list(of_lines(text))
        if isinstance(value, list):  # a piece of a list of commands, as an edit puts it in
            value = [
                {"run": one} if isinstance(one, str) and " " in one and place == "pipeline" else one for one in value
            ]
        return "", [*_of_value(value), *of_states(value, {})][:MOST_COMMANDS]
    quoted = _QUOTED_IN.get(name.rpartition(".")[2] if name.endswith(_BY_ENDING) else name)
    if quoted is not None:
        commands = [_words(match) for match in quoted.finditer(text)]
        if name == "jenkinsfile":
            commands += [f"docker run {unquoted(match.group(1))} image" for match in _AGENT.finditer(text)]
        return "", commands[:MOST_COMMANDS]
    if name.endswith((".js", ".cjs", ".mjs", ".ts", ".mts", ".cts")):
        return "javascript", [text]
    if name in _LANGUAGES or name.endswith(_ENDINGS):
        return _LANGUAGES.get(name) or _LANGUAGES[name.rpartition(".")[2]], [_STEPS.sub(r"\1system \2", text)]
    if name in _OF_GIT:
        lines = (line.partition("=") for line in text.splitlines())
        return "", [_of_git(value) for key, _, value in lines if _GIT_RUNS.search(key.strip()) or "!" in value[:3]]
    if name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile"):
        return "", list(_of_image(text))[:MOST_COMMANDS]
    if name == "justfile":
        return "", [line.strip().lstrip("@-") for line in _folded(text) if line[:1] in (" ", "\t")][:MOST_COMMANDS]
    if name in ("makefile", "gnumakefile") or name.endswith(".mk"):
        return "", list(islice(of_make(_folded(text)), MOST_COMMANDS))
    if name.endswith(".rules") and place == "startup":
        return "", [unquoted(match.group(1)) for match in _OF_DEVICES.finditer(text)][:MOST_COMMANDS]
    if _TMPFILES.search(written.path) is not None:
        return "", list(islice(of_tmpfiles(text), MOST_COMMANDS))
    if place == "service" or name.endswith((".service", ".timer", ".desktop", ".conf")):
        lines = (line.partition("=") for line in _folded(text))
        return "", [
            value.strip(" -@+!") for key, _, value in lines if key.strip().lower() in vocabulary().values["unitruns"]
        ][:MOST_COMMANDS]
    if place == "task" or _OF_TIMES.search(written.path) is not None:
        return "", list(islice(scheduled(text, written.path), MOST_COMMANDS))
    if text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        return "python", [text]
    if (
        place in _SHELL_FILES
        or name in vocabulary().values["shellfiles"]
        or name.endswith((".sh", ".install"))
        or text.startswith(_READ_AS)
    ):
        return "", [text]
    return "", []


_OF_EDITORS: Final = Lazy(r"\$\{(?:userHome|env:HOME|env:USERPROFILE)\}")  # variables of Visual Studio Code
# Commands in quotation marks, by what a file is called or ends with: of Groovy, Rust, CMake, MSBuild, Terraform.
_GROOVY: Final = Lazy(
    rf"\b(?:sh|bat|powershell|pwsh|commandLine|executable|exec)\b\s*\(?\s*(?:script\s*:\s*)?\[?\s*{TEXT}(?:\s*,\s*{TEXT})*|"
    rf"\[\s*{TEXT}(?:\s*,\s*{TEXT})*\s*\]\s*\.execute\b"
)
_QUOTED_IN: Final = {
    "jenkinsfile": _GROOVY,
    "gradle": _GROOVY,
    "kts": _GROOVY,
    "rs": Lazy(rf"\bCommand::new\s*\(\s*{TEXT}\s*\)(?:\s*\.args?\s*\(\s*&?\[?\s*{TEXT}(?:\s*,\s*{TEXT})*\s*\]?\s*\))*"),
    "txt": Lazy(rf"\bCOMMAND\s+(?:\w+\s+|-\w+\s+)*{TEXT}"),
    "gyp": Lazy(r"<!@?\(([^)]*)\)"),
    "ini": Lazy(r"(?m)^\s*commands\w*\s*=\s*((?:\S[^\n]*)?(?:\n[ \t]+[^\n]+)*)"),
    "csproj": Lazy(rf"\bCommand\s*=\s*{TEXT}"),
    "props": Lazy(rf"\bCommand\s*=\s*{TEXT}"),
    "targets": Lazy(rf"\bCommand\s*=\s*{TEXT}"),
    "tf": Lazy(rf"(?m)^\s*(?:command|program|inline)\s*=\s*\[?\s*{TEXT}(?:\s*,\s*{TEXT})*"),
    "toml": Lazy(
        rf"(?m)^\s*(?:cmd|run|shell|runner|\w+-wrapper|linker|exec|command)\s*=\s*\[?\s*{TEXT}(?:\s*,\s*{TEXT})*"
    ),
}
_BY_ENDING: Final = (".gradle", ".kts", ".rs", ".txt", ".csproj", ".props", ".targets", ".tf", ".toml", ".gyp", ".ini")
_PARTS: Final = Lazy(TEXT)
_LANGUAGES: Final = {
    **dict.fromkeys(
        ("rakefile", "gemfile", "vagrantfile", "guardfile", "fastfile", "podfile", ".irbrc", ".pryrc"), "ruby"
    ),
    ".rprofile": "r", "rprofile.site": "r", ".pythonrc": "python", ".latexmkrc": "perl", ".perldb": "perl",
    "gemspec": "ruby", "rb": "ruby", "r": "r", "jl": "julia", "lua": "lua",
}  # fmt: skip
_STEPS: Final = Lazy(r"(?m)^(\s*)(?:sh|command|run_shell)\s+(['\"])")  # of Rake and Chef, whose texts a shell runs
_ENDINGS: Final = (".gemspec", ".rb", ".r", ".jl", ".lua")
_OF_GIT: Final = frozenset({".gitconfig", "gitconfig", "config", ".hgrc", "hgrc"})
_GIT_RUNS: Final = Lazy(
    r"(?i)^(?:sshcommand|fsmonitor|pager|editor|textconv|askpass|helper|command|clean|smudge|process|external|program|hook\w*|"
    r"pre-\w+|post-\w+|update)$"
)


def _words(match: Any) -> str:
    """The command line of a command in quotation marks: a text, or one a word."""
    if match.groups():
        return str(match.group(1))
    texts = [part.strip("\"'") for part in _PARTS.findall(match.group())]
    plain = [text.replace('\\"', '"').replace("\\n", "\n") for text in texts]
    return "\n".join(plain) if len(plain) == 1 or " " in plain[0] else shlex.join(plain)


# What a pipeline in Groovy starts its container with, and the programs of a table of devices (udev(7)).
_AGENT: Final = Lazy(rf"\bargs\b\s*\(?\s*({TEXT})")
_OF_DEVICES: Final = Lazy(r"\b(?:RUN|PROGRAM|IMPORT)(?:\{\w+\})?\s*(?:[+:]?=|==)\s*(\"(?:[^\"\\\n]|\\.)*\")")


def _of_git(value: str) -> str:
    value = value.strip()
    return (unquoted(value) if value[:1] == '"' == value[-1:] else value).lstrip("!")


_NEAR: Final = Lazy(r"http://(?:localhost|127\.|\[::1|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)")


@cache
def _settings() -> tuple[tuple[FileSetting, tuple[tuple[Any, ...], ...]], ...]:
    settings = (one for file in builtin_resources() for one in file.settings)
    return tuple([(one, tuple(tuple(map(Lazy, by)) for by in (one.says, one.drops, one.unless))) for one in settings])


def said(place: Resource | None, written: Written, programs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What a file does by what it says, as the table of settings has it, each with what shows it.

    `programs` are what will run of it.
    """
    path = f"/{written.path}".replace("\\", "/").lower()
    name = last_name(path)
    if place is None and path.startswith(_OF_NOBODY):
        return
    for setting, (says, drops, unless) in _settings():
        if (setting.places and place not in setting.places) or (
            setting.names and not any(glob_match(one, path if "/" in one else name) for one in setting.names)
        ):
            continue
        text = "\n".join(programs) if setting.commands else written.flow.text[:MAX_FLOW]
        text = COMMENTS.sub("", text) if drops else text
        found = [*(one.search(text) for one in says), *(one.search(written.replaces[:MAX_FLOW]) for one in drops)]
        if all(found) and not any(pattern.search(text) for pattern in (*drops, *unless)):
            yield setting.does, str(found[0].group()).strip()


def declared(written: Written) -> Iterator[ResourceEffect]:
    """What a file of infrastructure opens, gives to whom or no longer guards, by the objects that stand in it."""
    for value in _documents_of(written):
        yield from stated(written.path.lower(), value)


def _documents_of(written: Written) -> list[Any]:
    """The objects that stand in a file of infrastructure, document by document; none for another file."""
    path, text, known = written.path.lower(), written.flow.text[:MAX_FLOW], vocabulary().values
    ending = path.rpartition(".")[2]
    if path.endswith(_OF_PLAYS):
        return [_document(one) for one in text.split("\n---")[:_MOST_PARTS]]
    if path.endswith((".json", ".template")) and (value := parsed_json(text)) is not None:
        return [value]
    is_build = ending in known["blockfiles"] or (ending in known["buildfiles"] and BUILDS.search(text) is not None)
    return [parsed_blocks(text)] if is_build else []


def _document(text: str) -> Any:
    return parsed_yaml(text) or parsed_yaml(_FILLED.sub("VALUE", _OF_TEMPLATES.sub("", text))) or list(of_lines(text))


_FILLED: Final = Lazy(r"\{\{[^{}\n]*\}\}")
_MOST_PARTS: Final = 16
_OF_NOBODY: Final = ("//tmp/", "//var/tmp/", "//dev/shm/")  # where no program looks for its settings


# A file, or what a program is given, that a command sends to a host (curl(1), GNU Wget's manual).
_SENDS: Final = Lazy(
    r"\b(?:curl|wget)\b[^\n;|&]*?\s(?:-[A-Za-z]{0,6}T|--upload-file|-[A-Za-z]{0,6}F\s*\S+=@|--form[ =]\S+=@|"
    r"-[A-Za-z]{0,6}d\s*@|--data(?:-binary|-raw|-ascii)?[ =]@|--post-file|--body-file)[^\n;|]*"
)
_ADDRESS: Final = Lazy(r"https?://[^\s\"'<>|;&)]{1,300}")
_TO_PEOPLE: Final[frozenset[Resource]] = frozenset({"hook", "agent-settings"})


def _sends_out(place: Resource, programs: Sequence[str]) -> str:
    """The command by which a hook hands files, or what it is given, to a host of others; empty for none."""
    if place not in _TO_PEOPLE:
        return ""
    for program in programs:
        for sent in _SENDS.finditer(program):
            asked = _ADDRESS.search(sent.group())
            target = None if asked is None else read_target(str(asked.group()))
            if target is not None and "." in target.host and not is_local(target) and not _NEAR.search(asked.group()):
                return str(sent.group())
    return ""


_INSTRUCTION: Final = Lazy(
    r"(?i)^\s*(?:onbuild\s+)?(?:healthcheck\s+(?:--\S+\s+)*)?(?:run|cmd|entrypoint)\s+(?:--\S+\s+)*(\S.*)$"
)
_WAITS: Final = Lazy(r"^\S*\b(?:ba|z|da|k|a)?sh(?:\s+-[il]+|\s+--login)*\s*$")  # a shell for whoever starts the image
_HEREDOC: Final = Lazy(r"<<-?\s*[\"']?(\w{1,64})[\"']?")


def _goes_on(end: str, line: str) -> bool:
    """Whether a line of a here-document is not the one that ends it."""
    return line.strip() != end


def _of_image(text: str) -> Iterator[str]:
    """The command lines of a Dockerfile, as lines for a shell, in words and in here-documents."""
    lines = iter(_folded(text))
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        command = match.group(1)
        words = parsed_json(command) if command[:1] == "[" else None
        if isinstance(words, list):
            command = shlex.join([one for one in words if isinstance(one, str)])
        here = _HEREDOC.search(command)
        if here is not None:  # up to the line that ends it
            end = str(here.group(1))
            command = "\n".join((command, *takewhile(partial(_goes_on, end), lines), end))
            command = f"sh {command}" if command.startswith("<<") else command
        if _WAITS.match(command) is None:
            yield tidied(command)


_OF_TIMES: Final = Lazy(r"(?:^|/)(?:cron\.d/[^/]+|(?:ana)?crontab|[^/]+\.cron(?:tab)?)$")
_TMPFILES: Final = Lazy(r"(?:^|/)(?:user-)?tmpfiles\.d/[^/]+\.conf$")
_OWN_WORK: Final = Lazy(
    r"^rm -\w+ (?:~|/home/[^/]+|/root|/Users/[^/]+)(?:/+(?:\./+)*(?:[^./]|\.ssh|\.config(?:/*$)|\.\.).*|/*)$"
)


_LENT: Final = Lazy(r"docker\.sock|\$\{localEnv:|type=(?:volume|tmpfs)")


def _folded(text: str) -> list[str]:
    """The lines of a text, each with those that continue it."""
    return text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()


def parsed_json(text: str) -> Any:
    """The value of a text of JSON, lines of comments left out; nothing where it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        try:
            return orjson.loads(plain)
        except orjson.JSONDecodeError:
            return None


_MEMBER: Final = Lazy(r"\"((?:[^\"\\\n]|\\.)*)\"\s*:\s*(\"(?:[^\"\\\n]|\\.)*\")")


def _members(text: str) -> dict[str, Any]:
    """The texts with their names in a piece of JSON, as an edit puts it in."""
    return {match.group(1): parsed_json(match.group(2)) for match in _MEMBER.finditer(text)}


def parsed_yaml(text: str) -> Any:
    """The value of a document of YAML as lists, mappings and texts; nothing where it is none, or merges too much."""
    if len(text) > _MOST_YAML:
        return None
    loader = _LOADER(text)
    left = [_MOST_NODES]
    try:
        node = loader.get_single_node()
        value = None if node is None else _plain(node, 0, left)
        return None if left[0] < 0 and "<<:" in text else value
    except yaml.YAMLError:
        return None
    finally:
        loader.dispose()


# Functions of a template of CloudFormation, in the short way and in the long one.
_FUNCTIONS: Final = {"!Select": "Fn::Select", "!Join": "Fn::Join", "!Sub": "Fn::Sub", "!Ref": "Ref"}


def _nested(name: str, value: Any) -> Any:
    """A value, or the document in it where its member holds one as a text: `values` of a release, `patch` of a part."""
    if not isinstance(value, str) or "\n" not in value or name.lower() not in vocabulary().values["nested"]:
        return value
    inner = parsed_json(value) if value.lstrip()[:1] in ("{", "[") else parsed_yaml(value)
    return inner if isinstance(inner, (dict, list)) else value


def _plain(node: yaml.Node, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return None
    if isinstance(node, yaml.MappingNode):
        own: dict[str, Any] = {}
        merged: list[Any] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            inner = _plain(value, depth + 1, left)
            if key.tag.endswith(":merge"):
                merged += inner if isinstance(inner, list) else [inner]
            else:
                own[str(key.value)] = _nested(str(key.value), inner)
        for one in merged:  # what stands there itself counts before what is merged, and of that the first
            for name, inner in one.items() if isinstance(one, dict) else ():
                own.setdefault(name, inner)
        return own
    function = _FUNCTIONS.get(node.tag)
    if isinstance(node, yaml.SequenceNode):
        items = [_plain(item, depth + 1, left) for item in node.value]
        return items if function is None else {function: items}
    if function is not None:
        return {function: node.value}
    return True if node.value == "true" and node.tag.endswith(":bool") else node.value


def _of_value(value: Any, *, runs: bool = False, depth: int = 0) -> Iterator[str]:
    """The texts of a configuration that are commands, in their order."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if runs and value.strip():
            yield value
    elif isinstance(value, list):
        in_words = runs and value and all(isinstance(one, str) for one in value) and " " not in value[0]
        if in_words and value[-1][:1] != "@":
            yield (shlex.join if value[0].endswith("sh") and value[1:] else " ".join)(value)
        else:
            for one in value:
                yield from _of_value(one, runs=runs, depth=depth + 1)
    elif isinstance(value, dict):
        known, named = vocabulary().values, {str(key).lower(): inner for key, inner in value.items()}
        arguments = named.get("args", named.get("runtimeargs"))
        if str(named.get("shell")).rpartition("/")[2] in known["stepshells"]:
            del named["shell"]
        if isinstance(started := named.get("command"), list) and isinstance(arguments, list):  # of a container
            yield shlex.join([one for one in (*started, *arguments) if isinstance(one, str)])
        image, command = named.get("image"), named.get("command")
        entry = named.get("entrypoint")
        opened = " ".join(map(str, entry)) if isinstance(entry, list) else str(entry)
        if opened.partition(" ")[0].rpartition("/")[2] in known["stepshells"] and isinstance(command, (str, list)):
            words = command if isinstance(command, list) else [command]
            is_line = isinstance(command, str) and not opened.endswith("c")
            named["entrypoint"] = f"{opened} {command if is_line else shlex.join(map(str, words))}"  # both are one line
            del named["command"]
        if isinstance(image, str) and isinstance(command, str) and "entrypoint" not in named:
            yield f"{image.partition(':')[0].rpartition('/')[2]} {command}"  # images are named after their program
        script = inner.get("script") if isinstance(inner := named.get("with"), dict) else None
        if isinstance(script, str) and str(named.get("uses")).startswith("actions/github-script"):
            yield f"node -e {shlex.quote(script)}"
            return
        for key, inner in named.items():
            if key in known["tellnames"] and not known["started"].isdisjoint(named):
                continue
            if key in known["started"] and isinstance(inner, str) and isinstance(arguments, list):
                yield f"{inner} {shlex.join([one for one in arguments if isinstance(one, str)])}"
            else:
                yield from _of_value(inner, runs=runs or key in known["runs"], depth=depth + 1)


def is_read_when_written(written: Written) -> bool:
    """Whether all that a file will run was read: a hook, or what a person's own shell begins with, known to its end.

    Settings beside hooks (`.git/config`), and hooks for an interpreter that is not read so, are judged by their place,
    but for those of which the table of settings knows every line.
    """
    place, text = place_of(written.path), written.flow.text
    if place is None or written.flow.gap:
        return False
    if any(not does for does, _ in said(place.resource, written, ())):
        return True
    if not (text.startswith(_READ_AS) or not text.startswith("#!")):
        return False
    folder, _, name = place.path.rpartition("/")
    if place.resource == "hook":
        return folder.endswith(("hooks", ".husky"))
    return place.resource == "startup" and (
        name.startswith(".") or (folder[:1] == "~" and name.endswith((".fish", ".py")))
    )
