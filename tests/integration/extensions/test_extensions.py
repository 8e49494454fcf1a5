"""Guards, judges and stores of installed packages: named in the configuration, loaded then, and never in our place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from aegis.bootstrap import open_deployment
from aegis.config.compile import compile_policy
from aegis.config.config import parse_config
from aegis.core.call import ToolCall
from aegis.core.finding import Report
from aegis.detect.rules.cache import default_cache_folder
from aegis.errors import ConfigError
from aegis.store import MemoryStore, open_store
from aegis.testing.guards import check_guard
from aegis.testing.judges import check_judge
from support.deployments import deployment
from support.judging import receipts
from support.packages import install

GUARD: Final = """
from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict

class Words:
    aegis_protocol = 1

    def __init__(self, options):
        if "word" not in options:
            raise ValueError("`word` is missing")
        self.word, self.name = options["word"], "words"

    def check(self, case):
        if self.word not in str(case.arguments):
            return Report(guard=self.name)
        found = Finding(guard="words", rule="word", category="policy", severity=Risk.HIGH, outcome=Outcome.BLOCK,
                        message="the call says what it must not")
        return Report(guard="words", outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, reason=Reason.POLICY_DENIED,
                      findings=(found,))
"""
JUDGE: Final = """
class Strict:
    aegis_protocol = 1

    def __init__(self, options):
        self.options = options

    def judge(self, payload):
        said = str(payload["proposed_tool_call"]["arguments"])
        if "break" in said:
            raise RuntimeError(said)
        if "mumble" in said:
            return {"score": 2}
        score = 0.0 if "secret" in said else 1.0
        return {"score": score, "confidence": 1.0, "reasoning": "read", "signals": [], "metadata": {}}
"""
STORE: Final = """
from aegis.store import MemoryStore

def opened(url, *, home, durability, busy_s):
    return MemoryStore(busy_s=busy_s)

opened.aegis_protocol = 1
"""
HEAD: Final = "version: 1\nlimits: {rate: unlimited}\n"
OUTSIDE: Final = HEAD + "guards: {outside: {words: {options: {word: tulip}}}}\n"
POINTS: Final = "[aegis.guards]\nwords = acme_guards:Words\n"


def problems(text: str) -> list[str]:
    """What is wrong with a configuration, each with its line."""
    with pytest.raises(ConfigError) as raised:
        compile_policy(parse_config(text), cache=default_cache_folder())
    return [f"{one.line}: {one.message}" for one in raised.value.problems]


def test_a_guard_of_a_package_decides_and_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path / "site", GUARD, points=POINTS)
    running = deployment(tmp_path / "home", OUTSIDE)
    try:
        assert running.gate.decide(ToolCall(tool="note", arguments={"text": "rose"})).outcome.word == "allow"
        refused = running.gate.decide(ToolCall(tool="note", arguments={"text": "tulip"}))
        assert refused.outcome.word == "block"
        assert "words" in [one["guard"] for one in receipts(running, "decision")[-1]["guards"]]
    finally:
        running.close()


def test_the_version_and_the_options_of_a_package_are_part_of_what_a_policy_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = compile_policy(parse_config(HEAD), cache=default_cache_folder()).digest
    digests = {plain}
    for version in ("1.2", "1.3"):
        with monkeypatch.context() as patched:
            install(patched, tmp_path / version, GUARD, points=POINTS, version=version)
            digests.add(compile_policy(parse_config(OUTSIDE), cache=default_cache_folder()).digest)
            digests.add(
                compile_policy(parse_config(OUTSIDE.replace("tulip", "rose")), cache=default_cache_folder()).digest
            )
    assert len(digests) == 5
    assert compile_policy(parse_config(HEAD + "guards: {outside: {}}\n"), cache=default_cache_folder()).digest == plain


def test_a_guard_that_is_only_observed_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path / "site", GUARD, points=POINTS)
    running = deployment(tmp_path / "home", OUTSIDE.replace("words: {", "words: {mode: observe, "))
    try:
        assert running.gate.decide(ToolCall(tool="note", arguments={"text": "tulip"})).outcome.word == "allow"
    finally:
        running.close()


@pytest.mark.parametrize("name", ["protected", "evidence", "content", "rate", "mission", "judge", "stream"])
def test_no_package_takes_the_place_of_a_guard_of_our_own(name: str) -> None:
    assert problems(f"{HEAD}guards: {{outside: {{{name}: {{}}}}}}\n") == [f"3: the guard `{name}` comes with Aegis"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('x')", "the guard `words` of the package `acme-guards` cannot be loaded: ImportError"),
        ("Other = 1", "the guard `words` of the package `acme-guards` cannot be loaded: AttributeError"),
        ("def Words(options): return 1", "does not say which protocol it speaks"),
        (GUARD.replace("aegis_protocol = 1", "aegis_protocol = 2"), "of the package `acme-guards` speaks protocol 2"),
        (GUARD.replace('"words"\n', '"other"\n'), "of the package `acme-guards` calls itself `other`"),
        (GUARD.replace("def check(", "def look("), "of the package `acme-guards` has no method `check`"),
        (GUARD.replace('"word" not', '"word"'), "of the package `acme-guards` cannot be made: `word` is missing"),
        (GUARD.replace("if", "1 / 0\n        if", 1), "cannot be made: ZeroDivisionError"),
    ],
)
def test_a_package_that_cannot_be_used_is_an_error_with_its_name(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "site", code, points=POINTS)
    found = problems(OUTSIDE)
    assert len(found) == 1
    assert found[0].startswith("3: ")
    assert said in found[0]


def test_a_name_that_nobody_or_more_than_one_brings_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(OUTSIDE) == ["3: no installed package brings the guard `words`"]
    install(monkeypatch, tmp_path / "one", GUARD, points=POINTS)
    install(monkeypatch, tmp_path / "two", GUARD, points=POINTS, name="bolt-guards")
    assert problems(OUTSIDE) == ["3: several packages bring the guard `words`: `acme-guards`, `bolt-guards`"]


JUDGED: Final = HEAD + "judges: [{name: look, extension: strict, criteria: serve the task}]\n"
JUDGE_POINTS: Final = "[aegis.judges]\nstrict = acme_guards:Strict\n"


@pytest.mark.parametrize(
    ("text", "outcome", "cause"),
    [
        ("rose", "allow", "passed"),
        ("secret", "block", "score"),
        ("mumble", "block", "malformed"),
        ("break", "block", "failed"),
    ],
)
def test_a_judge_of_a_package_is_asked_and_what_breaks_rejects(
    text: str, outcome: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "site", JUDGE, points=JUDGE_POINTS)
    running = deployment(tmp_path / "home", JUDGED)
    try:
        assert running.gate.decide(ToolCall(tool="note", arguments={"text": text})).outcome.word == outcome
        assert receipts(running)[-1]["judge"]["cause"] == cause
    finally:
        running.close()


def test_a_judge_that_cannot_be_used_is_an_error_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(JUDGED) == ["3: no installed package brings the judge `strict`"]
    install(monkeypatch, tmp_path / "site", "raise RuntimeError", points=JUDGE_POINTS)
    assert "the judge `strict` of the package `acme-guards` cannot be loaded" in problems(JUDGED)[0]


def test_a_store_of_a_package_keeps_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path / "site", STORE, points="[aegis.stores]\nacme = acme_guards:opened\n")
    assert isinstance(open_store("acme://log", home=tmp_path), MemoryStore)
    running = deployment(tmp_path / "home", HEAD + "store: acme://log\n")
    try:
        assert running.gate.decide(ToolCall(tool="note", arguments={})).outcome.word == "allow"
    finally:
        running.close()


def test_a_store_that_cannot_be_used_is_an_error_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "site", "opened = 1", points="[aegis.stores]\nacme = acme_guards:opened\n")
    assert problems(HEAD + "store: acme://log\n") == [
        "3: the store `acme` of the package `acme-guards` does not say which protocol it speaks: "
        "this version takes `aegis_protocol = 1`"
    ]
    assert "a password does not belong here" in problems(HEAD + "store: acme://ann:word@host/log\n")[0]
    with pytest.raises(ConfigError, match="acme-guards"):
        open_store("acme://log", home=tmp_path)


def test_the_contract_suites_pass_what_keeps_them_and_fail_what_does_not() -> None:
    made: dict[str, Any] = {}
    exec(GUARD + JUDGE, made)
    check_guard(lambda: made["Words"]({"word": "tulip"}))
    judge = made["Strict"]({})
    with pytest.raises(AssertionError, match="own name"):
        check_guard(lambda: _Renamed())
    check_judge(lambda: judge)


class _Renamed:
    name = "renamed"

    def check(self, case: Any) -> Any:
        return Report(guard="other")


def test_a_deployment_does_not_start_with_a_guard_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "aegis.yaml"
    file.write_text(OUTSIDE)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="no installed package brings"):
        open_deployment(file, tmp_path / "home")


def test_what_a_store_says_of_its_address_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = STORE.replace("return MemoryStore(busy_s=busy_s)", "raise ValueError(f'cannot reach {url}')")
    install(monkeypatch, tmp_path / "site", wrong, points="[aegis.stores]\nacme = acme_guards:opened\n")
    monkeypatch.setenv("ACME_STORE", "acme://ann:hunter2@host/log")
    with pytest.raises(ConfigError) as raised:
        open_store("${env:ACME_STORE}", home=tmp_path)
    assert "of the package `acme-guards` cannot be made: ValueError" in str(raised.value)
    assert "hunter2" not in str(raised.value)
