"""YAML into plain values with the line of every value; aliases, tags and repeated keys are refused."""

from __future__ import annotations

from typing import Any, Final

import yaml

from aegis.errors import ConfigError, Problem

MAX_DOCUMENT: Final = 262_144  # characters of one rule file: bounds what a pack can make a start cost
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str, file: str) -> tuple[Any, dict[str, int]]:
    """The one value of a YAML text, and the line (from 1) of each JSON pointer in it.

    Raises `ConfigError` naming file and line for anything that is not one plain YAML value.
    """
    if len(text) > MAX_DOCUMENT:
        raise _bad(f"the file has more than {MAX_DOCUMENT} characters", file, 0)
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise _bad("the file is empty", file, 1)
        lines: dict[str, int] = {}
        return _value(node, "", loader, lines, file, set()), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise _bad(f"not valid YAML: {problem}", file, mark.line + 1 if mark else 0) from error
    finally:
        loader.dispose()


def _value(node: yaml.Node, pointer: str, loader: Any, lines: dict[str, int], file: str, seen: set[int]) -> Any:
    line = node.start_mark.line + 1
    lines[pointer] = line
    if id(node) in seen:
        raise _bad("anchors and aliases are not supported", file, line)
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _bad("a key is not a plain word", file, key_node.start_mark.line + 1)
            if key in mapping:
                raise _bad(f"the key `{key}` stands here twice", file, key_node.start_mark.line + 1)
            mapping[key] = _value(value_node, f"{pointer}/{key}", loader, lines, file, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{pointer}/{at}", loader, lines, file, seen) for at, item in enumerate(node.value)]
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise _bad("tags are not supported", file, line)
    return loader.construct_object(node)


def _bad(message: str, file: str, line: int) -> ConfigError:
    return ConfigError((Problem(message=message, file=file, line=line),))
