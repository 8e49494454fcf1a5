"""Secrets by structure: name, place, shape and randomness together, on texts with one and texts that only look so."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from aegis.core.outcome import Outcome
from aegis.detect.rules import builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.checks import issued
from aegis.detect.rules.scanner import Scanner
from aegis.detect.rules.secrets import LONGEST, is_secret, secret_words

TABLE: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("secrets.yaml").read_text(encoding="utf-8"))
LEAST_RIGHT: Final = 0.97
BASE62: Final = string.ascii_letters + string.digits
WORDS: Final = ("orchard", "window", "lantern", "copper", "meadow", "signal", "harbour", "ribbon", "summit", "velvet")


def _of(chance: random.Random, alphabet: str, least: int, most: int) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(least, most)))


def _jwt(chance: random.Random) -> str:
    head, payload = orjson.dumps({"alg": "HS256", "typ": "JWT"}), orjson.dumps({"sub": _of(chance, BASE62, 12, 12)})
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (head, payload, chance.randbytes(32))
    )


def _summed(random_part: str) -> str:
    """A token's random part with the checksum that its issuer puts behind it."""
    rest, digits = zlib.crc32(random_part.encode()), ""
    for _ in range(6):
        rest, place = divmod(rest, 62)
        digits = (string.digits + string.ascii_uppercase + string.ascii_lowercase)[place] + digits
    return random_part + digits


def _typed(chance: random.Random, marks: str) -> str:
    """A word with capital, a number and marks in it, and letters of no word: what careful people type."""
    typed = f"{_of(chance, string.ascii_letters, 5, 7)}{_of(chance, string.digits, 2, 3)}{_of(chance, marks, 1, 2)}"
    return f"{typed}{_of(chance, string.ascii_lowercase, 2, 3)}{chance.choice(string.ascii_uppercase)}"


MADE: Final[dict[str, Callable[[random.Random], str]]] = {
    "base62": lambda chance: _of(chance, BASE62, 20, 48),
    "base64": lambda chance: base64.b64encode(chance.randbytes(chance.choice((24, 33, 48)))).decode(),
    "hex": lambda chance: chance.randbytes(chance.choice((16, 20, 32))).hex(),
    "lower": lambda chance: _of(chance, string.ascii_lowercase + string.digits, 24, 40),
    "chosen": lambda chance: _typed(chance, "-_"),
    "symbols": lambda chance: _typed(chance, "!*^~"),
    "uuid": lambda chance: str(uuid.UUID(bytes=chance.randbytes(16), version=4)),
    "github": lambda chance: "ghp" + "_" + _summed(_of(chance, BASE62, 30, 30)),
    "aws": lambda chance: "AKIA" + _of(chance, string.ascii_uppercase + "234567", 16, 16),
    "jwt": _jwt,
    "slack": lambda chance: "xoxb" + f"-{_of(chance, string.digits, 12, 12)}-{_of(chance, BASE62, 24, 24)}",
    "stripe": lambda chance: "sk" + "_live_" + _of(chance, BASE62, 24, 24),
    "sha1": lambda chance: hashlib.sha1(chance.randbytes(8)).hexdigest(),
    "sha256": lambda chance: hashlib.sha256(chance.randbytes(8)).hexdigest(),
    "md5": lambda chance: hashlib.md5(chance.randbytes(8)).hexdigest(),
    "name": lambda chance: "-".join(chance.sample(WORDS, chance.randint(2, 4))) + f"-{chance.randint(1, 2030)}",
}


def texts(places: str) -> Iterator[str]:
    """Every place of the table, filled with every kind of value that is named for it."""
    chance = random.Random(18)
    for place in TABLE[places]:
        for text in place["text"]:
            for kind in place["kinds"]:
                yield text.replace("{value}", MADE[kind](chance))


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load(builtin_folder()), cache=default_cache_folder())


def secrets_in(scanner: Scanner, text: str) -> list[str]:
    """The rules of secrets that mask something in `text`."""
    hits = scanner.scan(text, "result")
    return [hit.rule.id for hit in hits if hit.rule.category == "secret" and hit.rule.outcome is not Outcome.ALLOW]


@pytest.mark.claim("DET-93")
def test_secrets_are_found_in_the_places_where_they_stand(scanner: Scanner) -> None:
    held = list(texts("places"))
    missed = [text for text in held if not secrets_in(scanner, text)]
    assert len(held) >= 150
    assert len(missed) <= (1 - LEAST_RIGHT) * len(held), "\n".join(missed)


@pytest.mark.claim("DET-93")
def test_what_only_looks_like_a_secret_passes(scanner: Scanner) -> None:
    held = [*TABLE["benign"], *texts("benign_places")]
    alarmed = [f"{found[0]}: {text}" for text in held if (found := secrets_in(scanner, text))]
    assert len(held) >= 250
    assert len(alarmed) <= (1 - LEAST_RIGHT) * len(held), "\n".join(alarmed)


def test_the_words_do_what_their_examples_say() -> None:
    words = secret_words()
    assert all(is_secret(case.name, case.value) for case in words.found)
    assert not any(is_secret(case.name, case.value) for case in words.passes)


def test_a_checksum_tells_an_issued_token_from_one_that_only_has_the_format() -> None:
    prefix, shown = "ghp" + "_", string.ascii_lowercase + "0123"
    assert not issued(prefix + shown + "456789")
    assert issued(prefix + _summed(shown))


@pytest.mark.parametrize("value", ["a" * 1_000_000, "aB3$" * 250_000, "\x00" * 10_000, "é" * 10_000, ""])
def test_any_value_is_answered(value: str) -> None:
    assert is_secret("password", value) in {True, False}
    assert is_secret("password", value[:LONGEST]) in {True, False}
