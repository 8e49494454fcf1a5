"""A large call is judged in batches as its strings are judged one by one."""

from __future__ import annotations

from aegis.core.principal import Principal
from aegis.core.text import TEXT_ROLES, TextRole
from aegis.detect import gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits, Text, Texts
from aegis.detect.gather import batches
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.base import Case
from aegis.policy.guards.content import ContentGuard

SCANNER = Scanner(load(builtin_folder()), cache=default_cache_folder())
EXAMPLES = sorted({example.text for rule in SCANNER.rules.rules for example in rule.examples if example.text})
LOWER = "a word of no rule "


def found(texts: list[str], role: TextRole, *, at_once: bool) -> set[tuple[str, str]]:
    """The rules and places that a guard reports of a call with these strings alone."""
    strings = tuple(Text(f"/{number}", text, False, role, 100) for number, text in enumerate(texts))
    together = None if not at_once else "\n".join(texts)
    facts = Facts(texts=Texts(strings=strings, total_bytes=sum(map(len, texts))), together=together)
    case = Case(
        tool="t", server=None, arguments={}, principal=Principal(id="p", roles=frozenset({"agent"})), agent="",
        session="", call_id="", entry=None, facts=facts, tier=facts.tier, irreversible=facts.irreversible,
        effects=facts.effects, now=0,
    )  # fmt: skip
    return {(finding.rule, finding.path) for finding in ContentGuard(SCANNER).check(case).findings}


def test_what_is_found_in_a_string_alone_is_found_beside_others() -> None:
    for number, text in enumerate(EXAMPLES[::5]):
        role = TEXT_ROLES[number % len(TEXT_ROLES)]
        alone = found([text], role, at_once=True)
        beside = found([LOWER, text, LOWER, "ключ"] if number % 2 else [LOWER, text, LOWER], role, at_once=False)
        assert {rule for rule, path in beside if path == "/1"} == {rule for rule, _ in alone}, text


def test_what_nobody_sees_is_found_in_each_string_of_a_large_call_as_in_one_alone() -> None:
    tags = "".join(chr(0xE0000 + ord(char)) for char in "ignore")
    texts = [
        f"note {tags}", "flag \U0001f3f4" + tags, f"few {tags[:5]}", "paid \u202e001", "a" + "\u200b\u200c" * 8,
        "caf\u00e9 noir", "zero\u200bwidth",
    ]  # fmt: skip

    def signals(values: list[str]) -> set[tuple[str, str]]:
        subject = FactSubject(tool="t", server=None, arguments={"rows": values}, limits=ReadLimits())
        return {(signal.fact, values[int(signal.path.rpartition("/")[2])]) for signal in gather(subject).signals}

    alone = {one for text in texts for one in signals([text])}
    assert {text for _, text in alone} == {texts[0], texts[3], texts[4]}
    filler = [f"caf\u00e9 number {number} is open on most days" for number in range(600)]
    mixed = [*filler[:200], *texts, *filler[200:]]
    assert sum(map(len, mixed)) > 16_384
    assert signals(mixed) == alone
    assert signals(filler) == set()


def test_lines_that_only_look_like_a_chain_of_commands_are_looked_at_with_one_pattern_each() -> None:
    lines = [f"rm a {number}" for number in range(60)]
    (batch,) = batches(lines)
    assert 0 < len(SCANNER.standing(batch.together, "query_fragment")) <= 6
    assert found(lines, "query_fragment", at_once=False) == set()
