"""`rules` in `aegis.yaml`: an operator's own rules decide like the built-in ones, and nobody else may write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import load_config, parse_config
from aegis.config.reload import Change, FileWatch, PolicyHolder
from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.detect.rules.cache import default_cache_folder
from aegis.errors import ConfigError, Problem
from aegis.policy.model import Incoming
from aegis.policy.policy import Policy

RULE = (
    "id: own-word\ntitle: a word\ncategory: policy\nseverity: high\noutcome: block\nroles: [any]\n"
    "message: a word is there\npatterns: ['{pattern}']\n"
    "examples: {{match: [the plugh1 file, the plugh2 file], pass: [a, b]}}\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A configuration with one folder of rules beside it."""
    family = tmp_path / "mine" / "own"
    family.mkdir(parents=True)
    (family / "own-word.yaml").write_text(RULE.format(pattern="plugh[0-9]"))
    (tmp_path / "aegis.yaml").write_text("version: 1\nrules: [mine]\n")
    for path in (tmp_path, tmp_path / "mine", family, family / "own-word.yaml", tmp_path / "aegis.yaml"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path


def outcome(policy: Policy, text: str, *, name: str = "text") -> Outcome:
    incoming = Incoming(
        tool="note",
        server=None,
        arguments={name: text},
        principal=Principal(id="bot", roles=frozenset({"agent"}), agent="bot"),
        agent="bot",
        session="",
        call_id="c",
        now=1,
    )
    return policy.evaluate(incoming).combined.outcome


def refused(text: str, *, file: str = "aegis.yaml") -> Problem:
    with pytest.raises(ConfigError) as caught:
        compile_policy(parse_config(text, file=file), cache=default_cache_folder())
    (problem,) = caught.value.problems
    return problem


def test_an_operators_rule_decides_beside_the_built_in_ones(place: Path) -> None:
    policy = compile_policy(load_config(place / "aegis.yaml"), cache=default_cache_folder())
    assert outcome(policy, "go to plugh1") is Outcome.BLOCK
    assert outcome(policy, "go to plugh") is Outcome.ALLOW
    plain = compile_policy(load_config(), cache=default_cache_folder())
    assert outcome(plain, "go to plugh1") is Outcome.ALLOW
    assert set(plain.scanner.rules.by_id) < set(policy.scanner.rules.by_id)
    assert policy.digest != plain.digest


def test_where_the_rules_lie_makes_no_difference(place: Path) -> None:
    beside = compile_policy(load_config(place / "aegis.yaml"), cache=default_cache_folder())
    elsewhere = compile_policy(parse_config(f"version: 1\nrules: ['{place / 'mine'}']"), cache=default_cache_folder())
    assert elsewhere.digest == beside.digest


def test_a_rule_that_does_not_compile_is_an_error_with_file_and_line(place: Path) -> None:
    file = place / "mine" / "own" / "own-word.yaml"
    file.write_text(RULE.format(pattern="(?=look)ahead"))
    with pytest.raises(ConfigError) as caught:
        compile_policy(load_config(place / "aegis.yaml"), cache=default_cache_folder())
    assert {(problem.file, problem.line > 0) for problem in caught.value.problems} == {(str(file), True)}


def test_a_rule_may_not_take_the_place_of_a_built_in_one(place: Path) -> None:
    taken = next(iter(compile_policy(load_config(), cache=default_cache_folder()).scanner.rules.by_id))
    family = place / "mine" / taken.partition("-")[0]
    family.mkdir()
    text = RULE.format(pattern="plugh[0-9]").replace("id: own-word", f"id: {taken}")
    (family / f"{taken}.yaml").write_text(text)
    for path in (family, family / f"{taken}.yaml"):
        path.chmod(0o700)
    with pytest.raises(ConfigError, match="already taken"):
        compile_policy(load_config(place / "aegis.yaml"), cache=default_cache_folder())


@pytest.mark.parametrize("part", ["mine", "mine/own", "mine/own/own-word.yaml"])
def test_rules_that_others_can_write_are_refused(place: Path, part: str) -> None:
    (place / part).chmod(0o777)
    file = str(place / "aegis.yaml")
    problem = refused("version: 1\nrules:\n  - mine\n", file=file)
    assert (problem.file, problem.line, problem.pointer) == (file, 3, "/rules/0")
    assert problem.message == f"others can write `{place / part}`"


def test_folders_that_cannot_be_meant_are_refused(place: Path) -> None:
    assert "there is no folder" in refused("version: 1\nrules: [/nowhere/at/all]").message
    assert "relative" in refused("version: 1\nrules: [mine]", file="not a file").message
    twice = refused("version: 1\nrules: [mine, mine]", file=str(place / "aegis.yaml"))
    assert "twice" in twice.message


def test_a_changed_rule_is_noticed_recorded_and_in_force(place: Path) -> None:
    changes: list[Change] = []
    path = place / "aegis.yaml"
    holder = PolicyHolder(load_config(path), path=path, record=changes.append)

    def changed() -> None:
        holder.reload("file")

    watch = FileWatch(path, changed, drawn_in=holder.drawn_in)
    file = place / "mine" / "own" / "own-word.yaml"
    assert not watch.look()
    file.write_text(RULE.format(pattern="plugh[0-9]|xyzzy").replace("pass: [a, b]", "pass: [a, b, c]"))
    assert not watch.look()
    assert watch.look()
    assert outcome(holder.current, "say xyzzy") is Outcome.BLOCK
    file.write_text("no rule")
    with pytest.raises(ConfigError):
        holder.reload("file")
    assert outcome(holder.current, "say xyzzy") is Outcome.BLOCK
    file.unlink()
    assert not watch.look()
    assert watch.look()
    assert outcome(holder.current, "say xyzzy") is Outcome.ALLOW
    assert len(changes) == 2


def test_the_folders_are_protected(place: Path) -> None:
    policy = compile_policy(load_config(place / "aegis.yaml"), cache=default_cache_folder())
    assert outcome(policy, f"cp a {place}/mine/own/own-word.yaml", name="command") is Outcome.BLOCK
