"""What decides a call: first what its content does, then the registered entry, and the tool's name not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import load_config
from aegis.core.outcome import Outcome, Reason, Risk
from aegis.core.principal import Principal
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.model import Incoming

_TOOLS = """\
version: 1
tools:
  read_note: {risk: low, effects: [read]}
  run_job: {risk: low, effects: [exec]}
  wire_money: {risk: high, irreversible: true, effects: [external_send]}
  reboot_world: {risk: critical, effects: [exec]}
"""
_SENDER = Principal(id="p", roles=frozenset({"agent"}), agent="a")


@pytest.fixture(scope="module")
def decide(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("order") / "aegis.yaml"
    path.write_text(_TOOLS, encoding="utf-8")
    path.chmod(0o600)
    policy = compile_policy(load_config(path), cache=default_cache_folder())

    def answer(tool: str, **arguments: Any) -> Any:
        return policy.evaluate(
            Incoming(
                tool=tool, server=None, arguments=arguments, principal=_SENDER, agent="a", session="", call_id="c",
                now=0, charge=False,
            )
        ).combined  # fmt: skip

    return answer


@pytest.mark.parametrize("tool", ["read_note", "wire_money", "get_weather", "drop_all_tables"])
def test_content_decides_first_whatever_is_registered_or_called_how(decide: Any, tool: str) -> None:
    combined = decide(tool, name="x' UNION SELECT password FROM users--")
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.ATTACK_DETECTED)


@pytest.mark.parametrize(
    ("tool", "outcome", "reason"),
    [
        ("read_note", Outcome.ALLOW, Reason.NONE),
        ("wire_money", Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE),
        ("reboot_world", Outcome.BLOCK, Reason.RISK_CEILING),
    ],
)
def test_then_the_registered_entry(decide: Any, tool: str, outcome: Outcome, reason: Reason) -> None:
    combined = decide(tool, note="for Ada")
    assert (combined.outcome, combined.reason) == (outcome, reason)


@pytest.mark.parametrize("tool", ["delete_everything", "drop_database", "wipe_disk", "transfer_all_funds", "sudo_exec"])
def test_a_name_alone_never_holds_an_unregistered_call(decide: Any, tool: str) -> None:
    assert decide(tool, note="for Ada").outcome is Outcome.ALLOW


def test_facts_raise_the_tier_of_a_tool_that_is_registered_as_harmless_and_never_lower_one(decide: Any) -> None:
    assert decide("run_job", command="ls docs").risk is Risk.LOW
    assert decide("run_job", command="terraform destroy -auto-approve").outcome > Outcome.ALLOW
    assert decide("run_job", command="terraform destroy -auto-approve").risk >= Risk.HIGH
    assert decide("wire_money", command="ls docs").risk is Risk.HIGH
