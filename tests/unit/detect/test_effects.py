"""The vocabulary of effects, and the table of resources with its own examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aegis.core.effects import KIND_OF, RESOURCES, VERBS, ResourceEffect, names_matched
from aegis.detect.endpoints import requests_of
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.files import FileFlow, Written
from aegis.detect.gather import gather
from aegis.detect.queries import mutations, mutations_of, query_effects
from aegis.detect.resources import (
    FileAttribute,
    FileSetting,
    WrittenFile,
    builtin_resources,
    host_place,
    load_resources,
    place_of,
    resource_folder,
)
from aegis.detect.self_running import commands_in, declared, said
from aegis.detect.tool_deeds import tool_deeds
from aegis.detect.tool_words import ToolExample, builtin_tools, effect_of
from aegis.errors import ConfigError

_PLACES = [(file.about, place) for file in builtin_resources() for place in file.places]
_FOUND = [(place.resource, path) for _, place in _PLACES for path in place.found]
_PASS = [(place.resource, path) for _, place in _PLACES for path in place.passes]


@pytest.mark.claim("DET-80")
@pytest.mark.parametrize(("resource", "path"), _FOUND)
def test_a_path_is_recognised(resource: str, path: str) -> None:
    found = place_of(path)
    assert found is not None
    assert found.resource == resource


@pytest.mark.claim("DET-80")
@pytest.mark.parametrize(("resource", "path"), _PASS)
def test_a_path_like_it_is_not(resource: str, path: str) -> None:
    found = place_of(path)
    assert found is None or found.resource != resource


_HOSTS = [(one.resource, host) for file in builtin_resources() for one in file.hosts for host in one.found]
_NO_HOSTS = [host for file in builtin_resources() for one in file.hosts for host in one.passes]


@pytest.mark.claim("DET-92")
def test_a_host_is_what_people_do_with_it() -> None:
    assert {host: host_place(host) for _, host in _HOSTS} == {host: resource for resource, host in _HOSTS}
    assert {host: host_place(host) for host in _NO_HOSTS} == dict.fromkeys(_NO_HOSTS)
    addresses = ("http://203.0.113.9/a", "eve@203.0.113.9:/x", "203.0.113.9:4444")
    assert {word: host_place(word) for word in addresses} == dict.fromkeys(addresses, "address")
    near = ("10.0.0.4", "http://127.0.0.1:8080", "http://[::1]/", "eslint@8.10.0", "src/main.py")
    assert {word: host_place(word) for word in near} == dict.fromkeys(near)
    assert host_place("http://169.254.169.254/latest") == "metadata"


@pytest.mark.claim("DET-80")
@pytest.mark.parametrize(
    "setting",
    [one for file in builtin_resources() for one in file.settings],
    ids=lambda one: (one.says or one.drops)[0][:40],
)
def test_a_file_does_what_it_says(setting: FileSetting) -> None:
    def told(file: WrittenFile) -> list[str]:
        place = place_of(file.path)
        resource = None if place is None else place.resource
        written = Written(file.path, FileFlow(file.content), replaces=file.out)
        return [does for does, _ in said(resource, written, commands_in(resource, written)[1])]

    assert all(setting.does in told(file) for file in setting.found)
    assert not setting.does or effect_of(setting.does).words[-1] in names_matched("* *")
    assert not any(setting.does in told(file) for file in setting.passes)


@pytest.mark.claim("DET-80")
@pytest.mark.parametrize(
    "attribute", [one for file in builtin_resources() for one in file.attributes], ids=lambda one: one.says[0][:40]
)
def test_an_object_in_a_file_does_what_its_members_say(attribute: FileAttribute) -> None:
    def told(file: WrittenFile) -> set[str]:
        return {effect.words[0] for effect in declared(Written(file.path, FileFlow(file.content)))}

    assert all(attribute.does in told(file) for file in attribute.found)
    assert not any(attribute.does in told(file) for file in attribute.passes)


@given(st.text(alphabet=st.sampled_from("/\\.~%$*{},:abetcshadow "), max_size=200))
def test_any_text_can_be_looked_up(path: str) -> None:
    place_of(path)


@pytest.mark.claim("DET-80")
def test_patterns_of_rules_stand_for_names() -> None:
    assert names_matched("delete backup all") == {"delete backup all"}
    assert names_matched("delete|encrypt backup|log") >= {"encrypt log one", "delete backup many"}
    assert len(names_matched("* *")) == len(VERBS) * len(RESOURCES) * 3


@pytest.mark.parametrize("pattern", ["delete", "delete backups", "remove backup", "delete backup some", "a b c d"])
def test_an_unknown_word_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        names_matched(pattern)


def test_every_verb_that_changes_something_is_an_effect_of_the_wire() -> None:
    assert set(VERBS) - set(KIND_OF) == {"read", "impersonate"}
    assert ResourceEffect("delete", "backup", "all").words == ("delete backup", "delete backup all")


def test_a_wrong_file_says_what_is_wrong(tmp_path: Path) -> None:
    folder = resource_folder()
    text = (folder / "linux.yaml").read_text(encoding="utf-8")
    other = tmp_path / "wrong.yaml"
    other.write_text(text.replace("resource: boot", "resource: boots"), encoding="utf-8")
    with pytest.raises(ConfigError, match="boots"):
        load_resources(other.parent)


def test_a_call_without_effects_has_none() -> None:
    facts = gather(FactSubject(tool="add", server=None, arguments={"a": "1"}, limits=ReadLimits()))
    assert facts.resource_effects == ()


_TOOLS = builtin_tools()


def test_every_deed_of_a_tool_is_found_in_its_examples_and_nothing_in_those_beside_them() -> None:
    wrong = []
    for deed in (deed for file in _TOOLS for deed in file.deeds):
        for example in deed.found:
            if effect_of(deed.does) not in _bare(example):
                wrong.append((deed.does, example))
        wrong += [(deed.does, example) for example in deed.passes if _bare(example)]
    assert wrong == []


def _bare(example: ToolExample) -> list[ResourceEffect]:
    changes = mutations_of(example.arguments)
    found = [told.effect for told in tool_deeds(example.tool, example.arguments, changes)]
    return [one._replace(values=(), evidence="") for one in found]


def test_every_request_of_the_table_is_found_in_its_examples_and_nothing_in_those_beside_them() -> None:
    wrong = []
    for one in (one for file in _TOOLS for one in file.requests):
        for line in (*one.found, *one.passes):
            method, url = line.split(" ", 1)
            found = {effect.name for effect in requests_of(method, url)}
            if (effect_of(one.does).name in found) if line in one.found else not found:
                continue
            wrong.append((one.does, line, found))
    assert wrong == []


def test_every_statement_of_a_language_is_found_in_its_examples_and_nothing_in_those_beside_them() -> None:
    wrong = []
    for one in (one for file in _TOOLS for one in file.statements):
        for text in (*one.found, *one.passes):
            found = {effect.name for effect in query_effects(text, sql=one.only_sql, steps=one.only_steps)}
            if (effect_of(one.does).name in found) if text in one.found else not found:
                continue
            wrong.append((one.does, text, found))
    assert wrong == []


def test_a_document_that_begins_again_and_again_is_read_in_bounded_steps() -> None:
    plain = "mutation { deleteUser(id: 1) { ok } }\n"
    assert len(list(mutations(plain * 300, {}))) == 300
    assert len(list(mutations("}mutation{a(" * 1_300, {}))) < 50  # each of which goes on to the end of the text


@pytest.mark.parametrize("padding", ["# nothing\n" * 4_000, " \n," * 40_000, "query { " + "a b " * 20_000 + "} "])
def test_a_mutation_is_found_however_much_stands_before_it(padding: str) -> None:
    facts = gather(_call("graphql", {"query": f"{padding}mutation {{ deleteAllUsers {{ ok }} }}"}))
    assert facts.resource_effects
    assert not gather(_call("graphql", {"query": f"{padding}query {{ users {{ id }} }}"})).resource_effects


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("delete_namespace", {"name": "production"}),
        ("update_user", {"id": "7", "role": "admin"}),
        ("k8s_apply", {"manifest": f"# {'x' * 20_000}\napiVersion: v1\nkind: Pod\nspec:\n  hostPID: true\n"}),
        ("k8s_apply", {"manifest": "kind: ConfigMap\n---\n" * 20 + "apiVersion: v1\nspec:\n  privileged: true\n"}),
    ],
)
def test_a_large_call_is_read_by_its_members_as_a_small_one_is(tool: str, arguments: dict[str, str]) -> None:
    assert gather(_call(tool, {**arguments, "note": "all is well " * 2_000})).resource_effects


@pytest.mark.parametrize(
    ("given", "declared", "is_held"),
    [
        ({"dry_run": "server"}, {"type": "string"}, False),
        ({"dry_run": True}, {"type": "boolean"}, False),
        ({"dry_run": "none"}, {"type": "string"}, True),
        ({"dry_run": "server"}, {"type": "boolean"}, True),
        ({"dry_run": "server"}, None, True),  # which the tool need not look at
        ({"body": {"kind": "DeleteOptions", "dryRun": ["All"]}}, {"type": "object"}, False),
        ({"body": {"kind": "DeleteOptions", "dryRun": []}}, {"type": "object"}, True),
        ({"body": {"kind": "DeleteOptions", "dryRun": ["All"]}}, None, True),
    ],
)
def test_what_is_only_tried_is_so_where_the_tool_says_that_it_can(
    given: dict[str, Any], declared: dict[str, str] | None, is_held: bool
) -> None:
    (name,) = given
    schema = {"type": "object", "properties": {"name": {}} if declared is None else {"name": {}, name: declared}}
    call = _call("delete_namespace", {"name": "payments", **given})
    assert bool(gather(replace(call, schema=schema)).resource_effects) is is_held


def _call(tool: str, arguments: dict[str, Any]) -> FactSubject:
    return FactSubject(tool=tool, server=None, arguments=arguments, limits=ReadLimits())
