"""The fallback engine and quick looks answer within their memory: giving up would let things through."""

from __future__ import annotations

import pytest

from aegis.detect.quick import one_of
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.engine import EnginePattern, make_engine

SCANNER = Scanner(load(builtin_folder()), engine="re2")
# Texts that visit as many states of an automaton as they can.
HOSTILE = [
    "".join(chr(33 + (number * number * 7 + number * 13) % 94) for number in range(200_000)),
    "".join("ab1_- .:/'\"(=<>"[(number * number + number // 7) % 15] for number in range(200_000)),
    "ignore the the ignore all select from or 1 = " * 4_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=["dense", "signs", "words"])
def test_a_hostile_text_does_not_hide_what_stands_at_its_end(text: str) -> None:
    secret = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY2zA4"
    found = {hit.rule.id for hit in SCANNER.scan(f"{text} {secret}", "content")}
    assert "secret-github" in found
    assert not SCANNER.is_quiet(f"{text}\n{secret}")


@pytest.mark.parametrize("text", HOSTILE, ids=["dense", "signs", "words"])
def test_every_pattern_of_a_set_is_still_found_behind_it(text: str) -> None:
    patterns = [EnginePattern(f"needle{number}[a-z]{{0,30}}end", False) for number in range(200)]
    engine = make_engine(patterns, cache=None, prefer="re2")
    data = (text + " ".join(f"needle{number}xend" for number in range(200))).encode()
    assert {index for index, _ in engine.hits(data)} == set(range(200))


@pytest.mark.parametrize("text", HOSTILE, ids=["dense", "signs", "words"])
def test_a_quick_look_finds_what_stands_at_the_end(text: str) -> None:
    look = one_of(r"(?:needle|[a-z]{3}x){1,40}end", r"\bhay\d{12}\b")
    assert look(f"{text} needleend hay123456789012") == [0, 1]
