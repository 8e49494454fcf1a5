"""Files that run by themselves: what a call writes to where, and the commands that will run there.

A write is an effect on the resource that its path names, whichever tool makes it. Where a build server, an editor, a
package manager or a shell will run the text, its commands are read as commands: a workflow that runs the tests is a
document like any other, one that pipes a download into a shell is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
import yaml

from aegis.core.effects import Resource
from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW, Written, last_name
from aegis.detect.tool_files import language_by_ending

MOST_COMMANDS: Final = 64  # of one file that are read: bounds what one write makes the analysers do
_MOST_NODES: Final = 4_000
_DEEPEST: Final = 24
_MOST_YAML: Final = 16_384
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Members of configuration files whose text is a command: of build servers, editors, containers and package managers.
_RUN: Final = frozenset({
    "run", "script", "before_script", "after_script", "command", "commands", "entry", "cmd", "bash", "pwsh",
    "powershell", "sh", "postcreatecommand", "poststartcommand", "postattachcommand", "initializecommand",
    "oncreatecommand", "updatecontentcommand", "entrypoint", "init", "before", "prebuild", "install", "build",
    "before_install", "before_build", "post_build", "pre_build", "exec", "execstart", "ondirenter", "inlinescript",
})  # fmt: skip
_IN_SCRIPTS: Final = frozenset({"scripts", "hooks", "tasks"})  # objects of which every text is a command
_SHELL_FILES: Final = frozenset({"startup", "hook", "task"})
_STARTS: Final = frozenset({"startup", "hook", "task", "service", "editor-task"})
_SECTIONS: Final = ("execstart", "execstartpre", "execstartpost", "execreload", "execstop", "run", "exec")


# A program that lies where everybody can write, started by a file that runs by itself.
_LOOSE_START: Final = Lazy(
    r"(?m)(?:^|[;&|(]|\b(?:nohup|exec|bash|sh|source|setsid|sudo|env|python3?|\.))[ \t]*[\"']?"
    r"((?:/tmp|/dev/shm|/var/tmp)/[^\s;&|\"']+)"
)


def loose_start(place: Resource, programs: Sequence[str]) -> str:
    """The program in a place that everybody can write which a file that runs by itself starts; empty for none."""
    if place not in _STARTS:
        return ""
    for program in programs:
        match = _LOOSE_START.search(program)
        if match is not None:
            return str(match.group(1))
    return ""


def commands_in(place: Resource, written: Written) -> tuple[str, list[str]]:
    """What runs by itself of a written file: the language, empty for shell commands, and the texts in it."""
    text, name = written.flow.text[:MAX_FLOW], last_name(written.path).lower()
    if not text.strip():
        return "", []
    if place == "public-place":  # a server runs what lies there
        language = language_by_ending(name)
        return language, [text] if language else []
    if name.endswith(".pth"):
        return "python", [line for line in text.splitlines() if line.startswith(("import ", "import\t"))]
    if name.endswith(".py"):
        return "python", [text]
    if name.endswith((".json", ".code-workspace")):
        return "", list(_of_value(parsed_json(text)))[:MOST_COMMANDS]
    if name.endswith((".yml", ".yaml")):
        return "", list(_of_value(parsed_yaml(text)))[:MOST_COMMANDS]
    if name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile"):
        return "", [line[4:].strip() for line in _folded(text) if line[:4].upper() == "RUN "][:MOST_COMMANDS]
    if name in ("makefile", "gnumakefile") or name.endswith(".mk"):
        return "", [line.strip().lstrip("@-+") for line in _folded(text) if line.startswith("\t")][:MOST_COMMANDS]
    if place == "service" or name.endswith((".service", ".timer", ".desktop", ".conf")):
        lines = (line.partition("=") for line in _folded(text))
        return "", [value.strip(" -@+!") for key, _, value in lines if key.strip().lower() in _SECTIONS][:MOST_COMMANDS]
    if place == "task":
        return "", [command for line in text.splitlines() if (command := _scheduled(line))][:MOST_COMMANDS]
    if text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        return "python", [text]
    if place in _SHELL_FILES or name in (".envrc", "postinst", "preinst", "jenkinsfile"):
        return "", [text]
    return "", []


def _scheduled(line: str) -> str:
    """The command of a line of a table of `cron` (crontab(5)), the user's name with it."""
    line = line.strip()
    if not line or line.startswith("#"):
        return ""
    parts = line.split(None, 1 if line.startswith("@") else 5)
    return parts[-1] if len(parts) > 1 else ""


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


def parsed_yaml(text: str) -> Any:
    """The value of a document of YAML as lists, mappings and texts; nothing where it is none, or names itself."""
    if len(text) > _MOST_YAML or ("*" in text and "&" in text and "<<:" in text):
        return None
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _plain(node, 0, [_MOST_NODES])
    except yaml.YAMLError:
        return None
    finally:
        loader.dispose()


def _plain(node: yaml.Node, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return None
    if isinstance(node, yaml.MappingNode):
        return {
            str(key.value): _plain(value, depth + 1, left)
            for key, value in node.value
            if isinstance(key, yaml.ScalarNode)
        }
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, depth + 1, left) for item in node.value]
    return True if node.value == "true" and node.tag.endswith(":bool") else node.value


def _of_value(value: Any, *, runs: bool = False, depth: int = 0) -> Iterator[str]:
    """The texts of a configuration that are commands, in their order."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if runs and value.strip():
            yield value
    elif isinstance(value, list):
        if runs and value and all(isinstance(one, str) for one in value) and not any(" " in one for one in value[:1]):
            yield " ".join(value)
        else:
            for one in value:
                yield from _of_value(one, runs=runs, depth=depth + 1)
    elif isinstance(value, dict):
        named = {str(key).lower(): inner for key, inner in value.items()}
        arguments = named.get("args")
        for key, inner in named.items():
            if key == "command" and isinstance(inner, str) and isinstance(arguments, list):
                yield f"{inner} {shlex.join([one for one in arguments if isinstance(one, str)])}"
            else:
                yield from _of_value(inner, runs=runs or key in _RUN or key in _IN_SCRIPTS, depth=depth + 1)
