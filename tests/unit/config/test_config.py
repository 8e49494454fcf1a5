from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.config.config import load_config, parse_config
from aegis.config.document import MAX_BYTES, MAX_DEPTH
from aegis.errors import ConfigError, Problem


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, file="aegis.yaml")
    return caught.value.problems


def only(text: str) -> Problem:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def test_without_a_file_the_packaged_standard_profile_is_in_force() -> None:
    settings = load_config().settings
    assert settings.profile == "standard"
    assert settings.insufficient_evidence == "fail-closed"
    assert settings.registry.allow_unregistered == "scan"
    assert settings.limits.rate is not None
    assert (settings.limits.rate.limit, settings.limits.rate.seconds) == (100, 60)


@pytest.mark.parametrize("name", ["strict", "standard", "observe"])
def test_every_profile_is_complete_and_names_itself(name: str) -> None:
    assert parse_config(f"profile: {name}").settings.profile == name


def test_the_contract_example_parses_as_far_as_its_guards_exist() -> None:
    config = parse_config(
        """
version: 1
profile: standard
store: sqlite:///aegis.db
insufficient_evidence: fail-closed
tools:
  read_file:  {risk: low,  effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send], dryrun_supported: false,
               schema: {type: object},
               approvals: {approvers: [role:approver], timeout: 5m, on_timeout: block, quorum: 1}, skip_judge: false}
  "mcp:mail/*": {risk: medium}
registry: {allow_unregistered: scan, max_allowed_tier: high, allow_critical: false, escalation_threshold: high}
limits: {rate: 100/minute, max_depth: 32, max_strings: 10000, max_bytes: 1MiB}
guards: {content: {mode: enforce}, cedar: {mode: observe}}
pipeline: {call: [rate, registry, schema, content, cedar], result: [content]}
policies: [{name: no-ddl, select: {tool: "run_*"}, schema: {type: object}}]
judges: []
approvals: {timeout: 5m, on_timeout: block, approvers: [role:approver], notify: []}
"""
    )
    approvals = config.settings.tools["send_email"].approvals
    assert approvals is not None
    assert approvals.timeout == 300
    assert config.settings.guards.mode("cedar") == "observe"
    assert config.settings.limits.max_bytes == 1_048_576


def test_mappings_merge_with_the_profile_and_everything_else_replaces() -> None:
    config = parse_config("limits: {max_depth: 8}\npipeline: {call: [rate, content]}")
    assert config.settings.limits.max_depth == 8
    assert config.settings.limits.max_strings == 10_000
    assert config.settings.pipeline.call == ["rate", "content"]
    assert config.origins["/limits/max_depth"].file == "aegis.yaml"
    assert config.origins["/limits/max_strings"].file == "profile standard"


@pytest.mark.parametrize(
    ("text", "pointer", "hint"),
    [
        ("limit: {}", "/limit", "did you mean `limits`?"),
        ("limits: {max_dept: 3}", "/limits/max_dept", "did you mean `max_depth`?"),
        ("tools: {a: {rsik: low}}", "/tools/a/rsik", "did you mean `risk`?"),
        ("tools: {a: {approvals: {tmeout: 5m}}}", "/tools/a/approvals/tmeout", "did you mean `timeout`?"),
        ("guards: {contnt: {mode: observe}}", "/guards/contnt", "did you mean `content`?"),
        ("policies: [{name: a, slect: {}}]", "/policies/0/slect", "did you mean `select`?"),
    ],
)
def test_unknown_keys_are_refused_everywhere_with_the_probable_meaning(text: str, pointer: str, hint: str) -> None:
    problem = only(text)
    assert "unknown key" in problem.message
    assert (problem.pointer, problem.hint, problem.line) == (pointer, hint, 1)


@pytest.mark.parametrize(
    ("text", "pointer", "part"),
    [
        ("tools: {a: {risk: hihg}}", "/tools/a/risk", "`risk` cannot be `hihg`"),
        ("tools: {a: {effects: [raed]}}", "/tools/a/effects/0", "cannot be `raed`"),
        ("registry: {allow_critical: yes}", "/registry/allow_critical", "must be `true` or `false`"),
        ("limits: {rate: 100}", "/limits/rate", "a rate is"),
        ("limits: {rate: 0/minute}", "/limits/rate", "a rate is between"),
        ("limits: {rate: 5/week}", "/limits/rate", "a rate is"),
        ("limits: {max_bytes: 1GiB}", "/limits/max_bytes", "a size is"),
        ("limits: {max_bytes: 64MiB}", "/limits/max_bytes", "between"),
        ("limits: {max_depth: 1000}", "/limits/max_depth", "must be at most 128"),
        ("limits: {max_depth: 32.0}", "/limits/max_depth", "must be a whole number"),
        ("approvals: {timeout: 5x}", "/approvals/timeout", "a duration is"),
        ("approvals: {timeout: 30d}", "/approvals/timeout", "a timeout is between"),
        ("approvals: {approvers: [alice]}", "/approvals/approvers/0", "an approver is"),
        ("approvals: {approvers: ['role:boss']}", "/approvals/approvers/0", "there is no role `boss`"),
        ("approvals: {approvers: ['role:agent']}", "/approvals/approvers/0", "cannot approve"),
        ("approvals: {approvers: []}", "/approvals/approvers", "must not be empty"),
        ("approvals: {quorum: 0}", "/approvals/quorum", "must be at least 1"),
        ("approvals: {approvers: ['user:a'], quorum: 2}", "/approvals/quorum", "cannot be reached"),
        ("approvals: {on_timeout: next}", "/approvals/on_timeout", "`next` needs a second approver"),
        ("approvals: {on_timeout: allow}", "/approvals/on_timeout", "cannot be `allow`"),
        ("version: 2", "/version", "must be one of `1`"),
        ("profile: strickt", "/profile", "there is no profile `strickt`"),
        ("profile: [strict]", "/profile", "must name a profile"),
        ("store: mysql://x", "/store", "a store is"),
        ("tools: null", "/tools", "must be a mapping"),
        ("policies: {}", "/policies", "must be a list"),
        ("registry: {allow_critical: true}", "/registry/allow_critical", "has no effect"),
        ("tools: {a: {effects: [none, read]}}", "/tools/a/effects", "`none` stands beside"),
        ("tools: {a: {effects: [none], irreversible: true}}", "/tools/a/irreversible", "cannot be irreversible"),
        ("tools: {a: {}, A: {}}", "/tools/A", "is never reached"),
        ("tools: {'x**': {}, 'x*': {}}", "/tools/x*", "is never reached"),
        ("tools: {'mail/': {}}", "/tools/mail~1", "names no tool"),
        ("pipeline: {call: [rate, rate]}", "/pipeline/call/1", "is there twice"),
        ("pipeline: {call: []}", "/pipeline/call", "must not be empty"),
        ("pipeline: {call: [registri]}", "/pipeline/call/0", "there is no guard `registri`"),
        ("pipeline: {result: [rate]}", "/pipeline/result/0", "there is no guard `rate` here"),
        ("policies: [{name: a}]", "/policies/0", "exactly one of"),
        ("policies: [{name: a, schema: {}, deny: {}}]", "/policies/0", "exactly one of"),
        ("policies: [{name: a, select: {}, schema: {}}]", "/policies/0/select", "selects nothing"),
        ("policies: [{name: a, select: {category: x}, schema: {}}]", "/policies/0/select/category", "no tool is of"),
        ("policies: [{schema: {}}]", "/policies/0/name", "is missing"),
        ("guards: {content: {exceptions: [{rule: x, reason: y}]}}", "/guards/content/exceptions/0/tool", "is missing"),
        (
            "guards: {content: {exceptions: [{rule: x, tool: a}]}}",
            "/guards/content/exceptions/0/reason",
            "is missing",
        ),
        (
            "guards: {content: {exceptions: [{rule: x, tool: a, reason: ''}]}}",
            "/guards/content/exceptions/0/reason",
            "must not be empty",
        ),
        (
            "guards: {content: {exceptions: [{rule: x, tool: a, reason: y, expires: soon}]}}",
            "/guards/content/exceptions/0/expires",
            "a date is written",
        ),
    ],
)
def test_what_cannot_be_enforced_is_named_with_its_place(text: str, pointer: str, part: str) -> None:
    problem = only(text)
    assert part in problem.message
    assert problem.pointer == pointer
    assert (problem.file, problem.line) == ("aegis.yaml", 1)


@pytest.mark.claim("CFG-09")
@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("tools: {a: {effects: [read, read]}}", "/tools/a/effects/1"),
        ("approvals: {approvers: ['user:a', 'user:b', 'user:a']}", "/approvals/approvers/2"),
        ("approvals: {groups: {g: [a, a]}}", "/approvals/groups/g/1"),
        ("tools: {a: {approvals: {approvers: ['user:a', 'user:a']}}}", "/tools/a/approvals/approvers/1"),
        ("policies: [{name: p, select: {tool: [x, x]}, schema: {}}]", "/policies/0/select/tool/1"),
        ("guards: {content: {inside_hosts: [h.example, h.example]}}", "/guards/content/inside_hosts/1"),
        ("pipeline: {result: [content, content]}", "/pipeline/result/1"),
        ("runs: {routes: {r: {models: [m], egress: [output, unmask, output]}}}", "/runs/routes/r/egress/2"),
    ],
)
def test_an_entry_that_is_there_twice_is_refused_in_every_section(text: str, pointer: str) -> None:
    problem = only(text)
    assert "is there twice" in problem.message
    assert problem.pointer == pointer


def test_words_of_command_lines_may_come_again_and_so_may_those_of_schemas() -> None:
    parse_config("runs: {servers: {s: {command: [env, A=1, A=1]}}}")
    parse_config("tools: {a: {schema: {properties: {b: {enum: [1, 1]}}}}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipeline: {call: [rate, anomaly]}", "there is no guard `anomaly` here"),
        ("pipeline: {result: [content, stream]}", "there is no guard `stream` here"),
        ("guards: {anomaly: {mode: enforce}}", "unknown key `anomaly`"),
        ("pipeline: {call: [rate, content, dataflow]}", "`guards.dataflow.mode` says whether it is asked"),
    ],
)
def test_a_guard_that_is_not_there_or_not_listed_is_refused_and_not_ignored(text: str, said: str) -> None:
    assert said in only(text).message


def test_a_check_that_no_guard_would_make_is_refused() -> None:
    text = "pipeline: {call: [rate, registry]}\npolicies: [{name: a, select: {tool: x}, schema: {}}]"
    assert "would never run" in only(text).message
    assert parse_config(text + "\nguards: {schema: {mode: off}}").settings.policies


def test_a_policy_for_a_tool_that_can_never_run_is_refused() -> None:
    text = "profile: strict\ntools: {send_email: {}}\npolicies: [{name: a, select: {tool: %s}, schema: {}}]"
    problem = only(text % "send_mail")
    assert "no registered tool matches" in problem.message
    assert problem.hint == "did you mean `send_email`?"
    assert parse_config(text % "send_*").settings.policies


def test_all_guards_off_is_refused() -> None:
    modes = "{rate: {mode: off}, registry: {mode: off}, schema: {mode: off}, content: {mode: off}, cedar: {mode: off}}"
    found = problems(f"guards: {modes}")
    assert [problem.pointer for problem in found] == ["/pipeline/call", "/pipeline/result"]


def test_problems_carry_the_line_of_their_value() -> None:
    found = problems("version: 1\n\ntools:\n  a:\n    risk: x\n  b:\n    foo: 1\n")
    assert [(problem.line, problem.pointer) for problem in found] == [(5, "/tools/a/risk"), (7, "/tools/b/foo")]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n", "must hold a mapping"),
        ("a: [", "not YAML"),
        ("limits: {}\nlimits: {}", "the key `limits` is there twice"),
        ("tools: {a: {risk: low, risk: high}}", "the key `risk` is there twice"),
        ("tools: &a {}\njudges: []", "the anchor `&a` is not allowed"),
        ("tools: !!python/object/apply:os.system [x]", "the tag `tag:yaml.org,2002:python/object/apply:os.system`"),
        ("--- {}\n--- {}", "more than one document"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: \ud800", "not Unicode text"),
        ("a: " + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested deeper"),
        ("#" * (MAX_BYTES + 1), "larger than"),
    ],
)
def test_text_that_is_not_plain_yaml_is_refused(text: str, part: str) -> None:
    assert any(part in problem.message for problem in problems(text))


@pytest.mark.parametrize(
    ("text", "line"), [("version: 1\ntools: {\n", 3), ("# \u00e9\u00e9\u00e9\nprofile: \x01\n", 2)]
)
def test_text_that_is_not_yaml_is_refused_with_its_line_and_a_hint(text: str, line: int) -> None:
    found = only(text)
    assert (found.line, bool(found.hint)) == (line, True)


def test_an_entry_of_a_list_is_named_by_its_list() -> None:
    assert only("tools: {a: {effects: [fly]}}").message == "an entry of `effects` cannot be `fly`"


def test_an_alias_bomb_is_refused_without_being_unfolded() -> None:
    text = "a: &a [x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    assert any("alias" in problem.message for problem in problems(text))


def test_words_like_off_and_no_stay_words() -> None:
    assert parse_config("guards: {cedar: {mode: off}}").settings.guards.mode("cedar") == "off"


def test_a_problem_shows_nothing_invisible() -> None:
    assert "text with invisible characters" in only("tools: {a: {risk: 'lo\u202ew'}}").message


def test_a_byte_order_mark_and_windows_lines_are_no_problem() -> None:
    assert parse_config("\ufeffversion: 1\r\nlimits:\r\n  max_depth: 9\r\n").settings.limits.max_depth == 9


def test_a_policy_without_select_is_about_every_call() -> None:
    assert parse_config("policies: [{name: a, schema: {}}]").settings.policies[0].select is None


def test_a_missing_or_unreadable_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "bad.yaml")


def test_a_secret_in_the_file_is_refused() -> None:
    text = "approvals: {notify: [{kind: slack, url: x, secret: hunter2}]}"
    assert all("hunter2" not in str(problem) for problem in problems(text))


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_configuration_error(text: str) -> None:
    try:
        parse_config(text)
    except ConfigError as error:
        assert error.problems
