"""What stands behind much of something harmless is looked at like what stands first, or refuses the call."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.content import ContentGuard
from support.cases import read_case

GUARD = ContentGuard(Scanner(load(builtin_folder()), cache=default_cache_folder()))
PRINCIPAL = Principal(id="p", roles=frozenset({"agent"}))
METADATA = "http://169.254.169.254/latest/meta-data/iam/"
FORMAT = "mkfs.ext4 /dev/sda1"


def outcome(tool: str, **arguments: Any) -> Outcome:
    report = GUARD.check(read_case(tool, arguments))
    return Outcome.BLOCK if report.missing else report.outcome


@pytest.mark.claim("DET-17")
def test_a_flood_of_one_finding_hides_no_other() -> None:
    local = [f"http://localhost:8000/{number}" for number in range(300)]
    assert outcome("http_get", urls=local) is Outcome.ALLOW
    assert outcome("http_get", urls=[*local, METADATA]) is Outcome.BLOCK


@pytest.mark.claim("DET-17")
@pytest.mark.parametrize(
    ("harmless", "last"),
    [
        (["chmod +x a.sh; ./a.sh"] * 300, FORMAT),
        (["echo a"] * 1_000, FORMAT),
        (["python3 -c 'print(1)'"] * 5, "python3 -c 'import os; os.system(\"rm -rf /\")'"),
        ([f"bash -c 'echo {number}'" for number in range(12)], f"bash -c '{FORMAT}'"),
        (["A=1"] * 100, "a=r; b='m -rf'; $a${b} /"),
        (["echo HOME=x", "(HOME=x)", "HOME=x true"], 'rm -rf "$HOME"'),
        (["A=1"], f"{'sudo ' * 12}{FORMAT}"),
        ([f"git {'-q ' * 250}"], f"git {'-q ' * 250} -c core.sshCommand='{FORMAT}' fetch"),
    ],
)
def test_the_last_command_is_read_however_many_stand_before_it(harmless: list[str], last: str) -> None:
    assert outcome("bash", command="\n".join(harmless)) is Outcome.ALLOW
    assert outcome("bash", command="\n".join([*harmless, last])) is Outcome.BLOCK


@pytest.mark.claim("DET-17")
@pytest.mark.parametrize(
    "command",
    [
        f"eval eval eval eval eval {FORMAT}",
        f"A={'a' * 400}; echo {'$A' * 1_000}",
        "\n".join(f"bash -c 'echo {number}'" for number in range(100)),
        "\n".join(f"python3 -c 'print({number})'" for number in range(100)),
    ],
)
def test_commands_inside_commands_that_are_too_many_or_too_deep_refuse_the_call(command: str) -> None:
    assert outcome("bash", command=command) is Outcome.BLOCK


@pytest.mark.claim("DET-17")
@pytest.mark.parametrize("url", [f"{METADATA}?{'x1' * 5_000}", f"http://{'x1' * 5_000}@169.254.169.254/x"])
def test_a_long_url_leads_where_a_short_one_does(url: str) -> None:
    assert outcome("http_get", url=url) is Outcome.BLOCK
    assert outcome("http_get", url=url.replace("169.254.169.254", "example.com")) is Outcome.ALLOW


@pytest.mark.claim("DET-17")
def test_the_words_of_a_program_and_its_imports_are_read_to_the_end() -> None:
    words = ", ".join(["'-v'"] * 60)
    assert (
        outcome("run_python", code=f"import subprocess\nsubprocess.run(['rm', {words}, '-rf', '/'])") is Outcome.BLOCK
    )
    imports = "\n".join(f"import module_{number}" for number in range(250))
    program = f"{imports}\nimport subprocess as s\ns.run('rm -rf /', shell=True)"
    assert outcome("run_python", code=program) is Outcome.BLOCK
