"""`aegis config`: problems have file and line, and what is shown is what is in force."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml

from support.shell import aegis, gateway, read_json


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "aegis.yaml"
    file.write_text("version: 1\nprofile: strict\ntools:\n  read_file: {risk: low, effects: [read]}\n")
    file.chmod(0o600)
    tmp_path.chmod(0o700)
    return file


def test_a_good_configuration_is_compiled_and_named_by_its_digest(config: Path) -> None:
    ended = "{rule: sql-union, tool: search, reason: names of unions, expires: 2020-01-01}"
    config.write_text(f"{config.read_text()}guards:\n  content:\n    exceptions:\n    - {ended}\n")
    finished = aegis("config", "check", config, "--json")
    assert "`sql-union` on `search` has expired" in finished.stderr
    checked = read_json(finished)
    assert checked["profile"] == "strict"
    assert checked["policy_digest"].startswith("sha-256:")
    assert read_json(aegis("config", "check", "--config", config, "--json")) == checked
    assert read_json(aegis("config", "check", "--json"))["policy_digest"] != checked["policy_digest"]


def test_every_problem_is_named_with_its_line(config: Path) -> None:
    config.write_text("version: 1\nprofil: strict\ntools:\n  a: {risk: hgh}\n")
    finished = aegis("config", "check", config)
    assert finished.returncode == 2
    assert f"{config}:2: " in finished.stderr
    assert f"{config}:4: " in finished.stderr
    assert "did you mean `high`" in finished.stderr
    problems = orjson.loads(aegis("config", "check", config, "--json").stderr)["error"]["problems"]
    assert [problem["line"] for problem in problems] == [2, 4]


RUNS = """version: 1
runs:
  models:
    m: {provider: nobody, model: x}
  routes:
    default:
      models: [m, other]
      ingress: [clasify, unmask]
      servers: [files]
      graph: spiral
  options:
    classify: {wrong: 1}
    outptu: {}
tools:
  a: {schema: {requierd: [b]}}
"""


@pytest.mark.claim("CFG-08")
def test_runs_are_compiled_with_everything_else_and_nothing_is_started(config: Path) -> None:
    config.write_text(RUNS)
    finished = aegis("config", "check", config)
    assert finished.returncode == 2
    for line, part in {
        4: "there is no provider `nobody`",
        7: "there is no model `other`",
        8: "there is no guard `clasify`",
        9: "there is no server `files`",
        10: "there is no graph `spiral`",
        12: "the guard `classify`: contains unknown field `wrong`",
        13: "there is nothing of the name `outptu`",
        15: "`requierd` is no keyword of JSON Schema",
    }.items():
        assert f"{config}:{line}: {part}" in finished.stderr
    assert f"{config}:8: the guard `unmask` serves egress, not ingress" in finished.stderr
    for meant in ("classify", "output", "required"):
        assert f"did you mean `{meant}`?" in finished.stderr
    assert finished.stderr.count("contains unknown field") == 1


@pytest.mark.claim("CFG-08")
def test_runs_that_hold_together_pass_and_their_servers_are_not_started(config: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    config.write_text(
        "version: 1\nruns:\n  models: {m: {provider: p, model: x}}\n"
        f"  servers: {{files: {{command: [touch, {started}]}}}}\n"
        "  routes: {default: {models: [m], servers: [files]}}\n"
        "proxies:\n  providers:\n    p: {dialect: openai, url: 'https://models.example/v1', key: '${env:NO_KEY}'}\n"
    )
    finished = aegis("config", "check", config)
    assert finished.returncode == 0, finished.stderr
    assert not started.exists()


def test_a_configuration_that_others_can_write_is_refused(config: Path) -> None:
    config.chmod(0o666)
    finished = aegis("config", "check", config)
    assert finished.returncode == 2
    assert "others can write" in finished.stderr
    assert "hint: chmod go-w" in finished.stderr


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    finished = aegis("config", "check", tmp_path / "none.yaml")
    assert finished.returncode == 2
    assert "none.yaml" in finished.stderr


def test_the_resolved_configuration_can_be_used_as_one(config: Path, tmp_path: Path) -> None:
    shown = aegis("config", "show", config).stdout
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(shown)
    resolved.chmod(0o600)
    digest = "policy_digest"
    assert (
        read_json(aegis("config", "check", resolved, "--json"))[digest]
        == (read_json(aegis("config", "check", config, "--json"))[digest])
    )
    assert read_json(aegis("config", "show", config, "--json")) == yaml.safe_load(shown)


def test_every_value_knows_where_it_was_written(config: Path) -> None:
    items = read_json(aegis("config", "show", config, "--origins", "--json"))["items"]
    by_pointer = {item["pointer"]: item for item in items}
    assert by_pointer["/tools/read_file/risk"]["from"] == f"{config}:4"
    assert by_pointer["/registry/allow_unregistered"]["from"].startswith("profile strict:")


def test_a_candidate_is_replayed_over_recorded_calls_and_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = aegis("keys", "create", "--role", "admin", "--name", "ada", "--home", home).stdout.strip()
    call = '{"tool": "read_file", "arguments": {"path": "a"}}'
    assert aegis("decide", "-", "--home", home, stdin=call).returncode == 0
    candidate = tmp_path / "candidate.yaml"
    candidate.write_text("version: 1\nregistry: {allow_unregistered: block}\n")
    arguments = ["config", "replay", str(candidate), "--home", str(home), "--json"]
    for env in ({"AEGIS_API_KEY": key}, {"AEGIS_API_KEY": key}):
        value = read_json(aegis(*arguments, env=env))
        (changed,) = value["changed"]
        assert (changed["before"]["decision"], changed["after"]["reason"]) == ("allow", "unregistered_tool")
    assert aegis(*arguments).returncode == 2
    with gateway(home) as running:
        remote = aegis("config", "replay", candidate, "--json", env={"AEGIS_API_KEY": key, "AEGIS_URL": running.url})
        assert len(read_json(remote)["changed"]) == 1
    candidate.write_text("version: 1\nprofil: x\n")
    assert aegis(*arguments, env={"AEGIS_API_KEY": key}).returncode == 2


@pytest.mark.claim("COK-19")
def test_a_replay_says_how_far_back_it_looked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = aegis("keys", "create", "--role", "admin", "--name", "ada", "--home", home).stdout.strip()
    for number in range(3):
        call = f'{{"tool": "read_file", "arguments": {{"path": "{number}"}}}}'
        assert aegis("decide", "-", "--home", home, stdin=call).returncode == 0
    candidate = tmp_path / "candidate.yaml"
    candidate.write_text("version: 1\nregistry: {allow_unregistered: block}\n")
    whole = aegis("config", "replay", candidate, "--home", home, env={"AEGIS_API_KEY": key})
    assert "these are all calls of the last 7 days" in whole.stderr
    assert "read_file" in whole.stdout
    assert whole.stdout.rstrip().endswith("3")
    part = aegis("config", "replay", candidate, "--limit", "2", "--home", home, env={"AEGIS_API_KEY": key})
    assert "only the newest were looked at" in part.stderr
    found = read_json(aegis("config", "replay", candidate, "--json", "--home", home, env={"AEGIS_API_KEY": key}))
    assert (found["summary"][0]["calls"], found["span"]["complete"], len(found["changed"])) == (3, True, 3)
