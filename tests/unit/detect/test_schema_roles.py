from __future__ import annotations

from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.compile_tools import schema_roles
from aegis.config.config import parse_config
from aegis.core.principal import Principal
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.model import Incoming

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "target": {"type": "string", "format": "uri"},
        "what": {"type": "string", "contentMediaType": "Application/SQL; charset=utf-8"},
        "a/b": {"type": "object", "properties": {"run": {"contentMediaType": "text/x-shellscript"}}},
        "free": {"type": "string"},
        "odd": True,
        "many": {"type": "array", "items": {"format": "uri"}},
    },
}


def test_formats_and_media_types_give_roles() -> None:
    assert schema_roles(SCHEMA) == {"/target": "url", "/what": "sql", "/a~1b/run": "command"}


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}, {"properties": {"a": None}}, {"format": ["uri"]}])
def test_a_schema_that_says_nothing_gives_no_role(schema: dict[str, Any] | None) -> None:
    assert schema_roles(schema) == {}


def test_a_deep_or_endless_schema_is_bounded() -> None:
    schema: dict[str, Any] = {"format": "uri"}
    for _ in range(2_000):
        schema = {"properties": {"a": schema}}
    assert schema_roles(schema) == {}
    wide = {"properties": {f"p{number}": {"format": "uri"} for number in range(5_000)}}
    assert len(schema_roles(wide)) < 1_000


def outcome(config: str, arguments: dict[str, Any]) -> str:
    call = Incoming(
        tool="t", server=None, arguments=arguments, principal=Principal(id="p", roles=frozenset({"agent"})), agent="p",
        session="", call_id="1", now=0, charge=False,
    )  # fmt: skip
    return compile_policy(parse_config(config), cache=default_cache_folder()).evaluate(call).combined.outcome.word


def test_what_the_schema_says_is_a_command_is_read_as_one_and_the_operators_word_goes_first() -> None:
    typed = "{type: object, properties: {x: {type: string, contentMediaType: text/x-shellscript}}}"
    destroys = {"x": "kill -9 -1"}
    assert outcome("version: 1", destroys) != "block"
    assert outcome(f"tools: {{t: {{schema: {typed}}}}}", destroys) == "block"
    assert outcome(f"tools: {{t: {{schema: {typed}, roles: {{x: content}}}}}}", destroys) != "block"
