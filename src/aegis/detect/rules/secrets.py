"""Whether a value is a secret: by the name in front of it, the place, its shape and how random it is, together.

A name is read by whole words (`api_key`, `apiKey`; not `monkey`), a value by what it costs to guess: letters that can
be read count as words of a dictionary, the others, digits and marks each by itself. What shows where a secret would
stand, and values of another kind (hashes, ids, paths, code, public keys), are none, whatever their name. The words are
data (`data/secrets`). Work is linear in a value of at most `LONGEST` characters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import yaml

from aegis.core.json import convert
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

LONGEST: Final = 4_096  # characters of a value that are looked at
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_LEAST_MACHINE: Final = 14  # characters of what a machine made
_LEAST_CHOSEN: Final = 8
# What a machine's value takes to guess, by what its name says: the less that is, the more the value has to say.
_LEAST_BITS: Final = {"token": 52.0, "named-key": 75.0, "key": 100.0}
_CHOSEN_BITS: Final = 24.0
_MOST_WORDED: Final = 0.5  # of a machine's value that can be read
_MOST_WORDED_CHOSEN: Final = 0.8
_LEAST_WORDED_CODE: Final = 0.4  # of names with dots between them
_CHECKSUM: Final = 40  # hex digits of the shortest value that something may be glued to
_UUID_ENTROPY: Final = 2.5
_MOST_LINES: Final = 3  # `_` in a value: more of them divide words
_LEAST_LETTERS: Final = 20  # of a machine's value that has no digit
_SHORTEST_WORD: Final = 4
_LONGEST_NAME: Final = 64


class _Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str


class SecretWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """One file of words; `found` and `pass` are names with values that are a secret and that are none."""

    about: str
    passwords: frozenset[str]
    tokens: frozenset[str]
    keys: frozenset[str]
    qualifiers: frozenset[str]
    others: frozenset[str]
    behind: frozenset[str]
    shown: frozenset[str]
    placeholders: tuple[str, ...]
    usual: frozenset[str]
    starts: tuple[str, ...]
    published: tuple[str, ...]
    found: tuple[_Case, ...]
    passes: tuple[_Case, ...]


def read_words(name: str, text: str) -> SecretWords:
    """One file of words, checked; raises `ConfigError` for members that are unknown, missing or of another type."""
    try:
        return convert(yaml.safe_load(text), SecretWords)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError((Problem(message=f"the words of secrets cannot be read: {error}", file=name),)) from error


@cache
def secret_words() -> SecretWords:
    """The words that ship."""
    folder = shipped_folder("data/secrets")
    files = load_files(folder, "secret-words", Path(__file__), SecretWords, read_words, cache=default_cache_folder())
    if len(files) != 1:
        raise missing("data/secrets")
    return files[0]


# Values.


def entropy(text: str) -> float:
    """Shannon entropy of the characters of `text`, in bits a character."""
    if not text:
        return 0.0
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


# `$NAME`, `<password>`, `{password}`.
_SHOWN: Final = Lazy(r"^\$|<[^<>]*>|\{[^{}]*\}|^[<{]|\{\{|\$\{")


def is_placeholder(text: str) -> bool:
    """Whether a value only shows where a secret would stand."""
    lowered = text[:LONGEST].lower()
    if any(word in lowered for word in secret_words().placeholders) or _SHOWN.search(lowered) is not None:
        return True
    letters = lowered.strip("-_=.")
    return len(set(letters)) <= max(2, len(letters) // 12) or _is_run(letters)


def _is_run(text: str) -> bool:
    """Whether most characters follow their neighbour (`abcdefgh`, `01234567`), or a short piece is repeated."""
    steps = sum(ord(after) - ord(before) in (0, 1) for before, after in pairwise(text))
    return len(text) >= 12 and (steps * 10 > len(text) * 7 or text in (text + text)[1:-1])


_READ_AS: Final = str.maketrans("013457$@!", "oleastsai")


def is_usual(text: str) -> bool:
    """Whether a password is one of those that everybody writes where any would do (`P@ssw0rd123`, `changeme`)."""
    lowered = text[:LONGEST].lower()
    if not lowered.strip("0123456789"):
        return len(lowered) <= _LEAST_CHOSEN
    bare = lowered.rstrip("0123456789!?.#*$@-_")
    usual = secret_words().usual
    return any(word.translate(table) in usual for word in (lowered, bare) for table in ({}, _READ_AS))


_PIECE: Final = Lazy(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")


class Guess(NamedTuple):
    """What it takes to guess a value: bits, and the part of its characters that stand in words."""

    bits: float
    worded: float


def guess(text: str) -> Guess:
    """What it takes to guess `text`; hexadecimal digits count four bits each."""
    value = text[:LONGEST]
    letters = sum(char.isalpha() for char in value)
    if len(value) >= _LEAST_MACHINE and _HEX_DIGITS.issuperset(value) and 0 < letters < len(value):
        return Guess(4.0 * len(value) * min(1.0, len(set(value.lower())) / 8), 0.0)
    bits, worded = 0.0, 0
    for piece in _PIECE.findall(value):
        if piece.isdigit():
            bits += 3.3 * len(set(piece)) if len(piece) < 5 else 3.3 * len(piece) * min(1.0, len(set(piece)) / 4)
        elif not piece.isalpha():
            bits += 1.0 if piece in "_-./:" else 4.5
        elif len(piece) >= _SHORTEST_WORD and reads(piece.lower()):
            bits += min(2.0 * len(piece), 14.0)
            worded += len(piece)
        else:
            bits += 4.7 * len(set(piece)) if len(piece) < 5 else 4.7 * len(piece)
    return Guess(bits, worded / max(1, len(value)))


def reads(letters: str) -> bool:
    """Whether a run of small letters can be read: vowels in it, and seldom two letters that no word has together."""
    if not set("aeiouy") & set(letters):
        return False
    odd = sum(after in _NEVER_BEHIND.get(before, "") for before, after in pairwise(letters))
    return odd * _PAIRS_FOR_ONE_ODD < len(letters)


# Letters that hardly ever stand behind a letter in words, names made of words included.
_NEVER_BEHIND: Final = {
    "b": "cfghkmnpqwxz", "c": "bdfgjmnpqvwxz", "d": "cfhkpqtxz", "f": "bcdghjkmnpqvwxz", "g": "bcdfjkpqtvwxz",
    "h": "bcdfghjkpqsvwxz", "j": "bcdfghjklmnpqrstvwxyz", "k": "bcgjkmpqrvwxz", "l": "hjqrxz", "m": "dfghjkqrtvwxz",
    "n": "rwxz", "p": "bcdfgjkmnqvwxz", "q": "abcdefghijklmnopqrstvwxyz", "r": "hjqxz", "s": "bdgjrvxz",
    "t": "bdgjkpqvx", "v": "bcdfghjklmnpqtuvwxz", "w": "bcfgjmpqtuvwxyz", "x": "bdfgjkmnqrsvwxz", "y": "hjqvxyz",
    "z": "bcdfghjkmnpqrstvwx",
}  # fmt: skip
_PAIRS_FOR_ONE_ODD: Final = 7

_DIVIDERS: Final = Lazy(r"[-_. /:+]+")
_LEAST_WORDS: Final = 2
_UUID: Final = Lazy(r"\{?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\}?")
# `io.jsonwebtoken.jjwt-0.11`, `settings.KEY`: words with dots between them.
_DOTTED: Final = Lazy(r"[A-Za-z_$][A-Za-z_$-]*(?:(?:\.|->|::|\?\.)[A-Za-z_][\w-]*)+(?:[-.]\d+)*")
# `rc0.13.0_2023-SNAPSHOT`, dates, addresses, paths, calls, references.
_OTHER_SHAPES: Final = Lazy(
    r"(?:rc|v)?\d+\.\d+[\w.+-]*"
    r"|\d{4}-\d\d-\d\d[T ]?[\d:.Z+-]*"
    r"|[\d.:/]+"
    r"|[\w.+-]+@[\w-]+\.[\w.-]+"
    r"|(?:[a-zA-Z][a-zA-Z0-9+.-]{1,12}:)?//.*"
    r"|(?:\.{0,2}|~|[A-Za-z]:)[/\\][\w.-]+(?:[/\\].*)?"
    r"|[\w.-]+(?:/[\w.-]+)*\.(?:pem|key|json|ya?ml|txt|py|js|ts|go|rb|java|md|cfg|ini|env|crt|p12|html?|css|png|jks)"
    r"|[A-Za-z_][\w.:>-]{2,}\([^()]*\).*"
    r"|[A-Za-z_][\w.]*\[[^\]]*\].*"
    r"|%[\w()-]+%?"
    r"|[!&*@#^~=<>|/+-]{0,2}\$.*"
    r"|.*(?:\$\{|\$\(|\{\{|#\{|<%|%\(|@@).*"
    r"|[A-Z][A-Z]*(?:_[A-Z0-9]+)+"
)


def is_other(text: str) -> bool:
    """Whether a value is of a kind that opens nothing: a reference, code, a path, a hash that says so, a picture."""
    value = text[:LONGEST]
    words = secret_words()
    if value.startswith(words.starts) or value in words.published or _OTHER_SHAPES.fullmatch(value) is not None:
        return True
    return _DOTTED.fullmatch(value) is not None and guess(value).worded > _LEAST_WORDED_CODE


# Names.

_NAME_WORD: Final = Lazy(r"[A-Z]+[a-z]?[0-9]*$|[A-Z]?[a-z]+[0-9]*|[A-Z]+|[0-9]+")


def read_name(name: str) -> str:
    """What a name says its value is: `password`, a machine's `token`, a `named-key` of a thing, a `key`, or nothing.

    A word behind the one that says secret can make it something else (`password_file`).
    """
    return _read_name(name[-_LONGEST_NAME:])


@lru_cache(maxsize=4_096)
def _read_name(name: str) -> str:
    words = _words(name)
    table = secret_words()
    if not table.others.isdisjoint(words) or not table.shown.isdisjoint(words):
        return ""
    pairs = [before + after for before, after in pairwise(words)]
    last = -1  # the place of the last word that says secret
    kind = ""
    for at, word in enumerate(words):
        if word in table.passwords or (at and pairs[at - 1] in table.passwords):
            last, kind = at, "password"
        elif word in table.tokens or (at and pairs[at - 1] in table.tokens):
            last, kind = at, kind or "token"
        elif word in table.keys:
            last, kind = (
                at,
                kind or ("token" if not table.qualifiers.isdisjoint(words[:at]) else "named-key" if at else "key"),
            )
    return kind if kind and table.behind.isdisjoint(words[last + 1 :]) else ""


def _words(name: str) -> list[str]:
    found = []
    for word in _NAME_WORD.findall(name[-_LONGEST_NAME:]):
        plain = word.lower().rstrip("0123456789") or word
        found.append(plain[:-1] if plain.endswith("s") and not plain.endswith(("ss", "us", "is")) else plain)
    return found


def _is_listed(value: str) -> bool:
    """Whether lines divide a value into words, as names of things are made; those of a random one stand anywhere."""
    return value.count("_") > _MOST_LINES and guess(value).worded > _MOST_WORDED / 2


def is_secret(name: str, value: str, *, quoted: bool = True) -> bool:
    """Whether `value` is a secret where it stands for `name`.

    `quoted` says that it stands there as a text: a bare word can be code.
    """
    kind = read_name(name)
    if not kind or is_other(value) or is_placeholder(value) or is_usual(value):
        return False
    if _UUID.fullmatch(value):
        return kind == "token" and _opens(name) and entropy(value) > _UUID_ENTROPY
    if _is_phrase(value) or _mixed_hex(value) or _runs_on(value) or _is_listed(value):
        return False
    bits, worded = guess(value)
    kinds = sum(any(test(char) for char in value) for test in (str.islower, str.isupper, str.isdigit))
    marks = any(not char.isalnum() and char not in "_-./:" for char in value)
    if kind == "password":
        is_code = worded > _MOST_WORDED and not marks and (not quoted or kinds < 3)
        return (
            len(value) >= _LEAST_CHOSEN
            and kinds + marks >= 2
            and not is_code
            and bits >= _CHOSEN_BITS
            and worded <= _MOST_WORDED_CHOSEN
            and len(set(value.lower())) >= 5
        )
    least = _LEAST_BITS[kind]
    return (
        len(value) >= _LEAST_MACHINE
        and kinds >= 2
        and (any(char.isdigit() for char in value) or (len(value) >= _LEAST_LETTERS and worded <= _MOST_WORDED / 2))
        and bits >= least
        and worded <= _MOST_WORDED
        and len(set(value.lower())) >= 8
    )


# What stands between a name and its value: quotes and brackets, a type, an operator, a scheme of authorization.
_PLACE: Final = Lazy(
    r"(?is)(identified\s+by|[A-Za-z_][\w.\[\]-]*)[?\"'`\\\])}]*(?:\s*:\s*&?(?:string|str|text))?\s*"
    r"(?:=>|:=|\?=|:{1,3}=|={1,3}|!==?|:|\|\|?=?|\?\?|,|\(|\bis\b|\s|>|[,\s]\s*[\"']?value[\"']?\s*[:=])\s*[\"'`\\=>({]*\s*"
    r"(?:(?:bearer|basic|token|api-?token|apikey|key|bot|splunk|sso-key|genie-?key)\s+)?[fbru@]{0,2}[\"'`\\]*$"
)


_CMDLET: Final = Lazy(r"(?:Add|ConvertTo|Get|Import|New|Set)-[A-Z][a-z][A-Za-z0-9]{1,60}")  # what makes the value
_INNER: Final = Lazy(r"([A-Za-z_][\w.-]*)[=:]([^=].*)")
_WITHOUT_LINES: Final = str.maketrans("", "", "_-.")
_QUOTES: Final = ('"', "'", "`")


def assigned(value: str, whole: str) -> bool:
    """Whether what is given to a name is a secret by both; `whole` is what was found, the name included."""
    head = whole[: whole.rfind(value)]
    quoted = head[-1:] in _QUOTES
    letters = value.translate(_WITHOUT_LINES)
    if letters.isalpha() and (not quoted or letters.islower() or letters.isupper()):
        return False  # a word: most of what stands in these places, so it is asked first
    if not quoted and _CMDLET.fullmatch(value):
        return False
    place = _PLACE.search(head)
    if place is None:
        return False
    name = place.group(1)
    if head[: place.start(1)].endswith(("?", "&")) and read_name(name) == "password":
        return False  # of a link: a word that opens one meeting, which is sent with it
    inner = None if quoted else _INNER.fullmatch(value)
    if inner is not None and read_name(inner.group(1)):  # `login: DB_PASSWORD=...`
        name, value = inner.groups()
    return is_secret(name, value, quoted=quoted)


def _mixed_hex(text: str) -> bool:
    """Hex digits in both cases: encoders write one."""
    both = any(char.islower() for char in text) and any(char.isupper() for char in text)
    return both and len(text) >= 16 and _HEX_DIGITS.issuperset(text)


def _runs_on(text: str) -> bool:
    """Whether something is glued to a checksum: what begins with so many hex digits consists of nothing else."""
    return len(text) > _CHECKSUM and _HEX_DIGITS.issuperset(text[:_CHECKSUM]) and not _HEX_DIGITS.issuperset(text)


def _opens(name: str) -> bool:
    """Whether a name says key or secret: a UUID that is called a token names something more often than it opens it."""
    return not {"key", "secret", "apikey", "accesskey", "secretkey", "password"}.isdisjoint(_words(name))


def _is_phrase(text: str) -> bool:
    """Whether a value is words with lines or dots between them, as names of things are (`prod-db-password-2`)."""
    pieces = [piece for piece in _DIVIDERS.split(text) if piece]
    words = sum(piece.isalpha() and (piece.islower() or piece.isupper() or piece.istitle()) for piece in pieces)
    return len(pieces) > _LEAST_WORDS and words * 10 >= len(pieces) * 7


# What a database of one's own machine or of a set of containers is called.
_OWN_HOSTS: Final = frozenset({
    "localhost", "127.0.0.1", "host.docker.internal", "db", "database", "postgres", "postgresql", "mysql", "mariadb",
    "mongo", "mongodb", "redis", "rabbitmq", "cache", "broker",
})  # fmt: skip
_URL_PARTS: Final = Lazy(r"://([^\s:/?#@]{1,80}):([^\s/?#@]{2,120})@([\w.-]{2,100})$")


def urlpass(text: str, whole: str) -> bool:
    """Whether the password of a URL is one that somebody chose, and not a word that stands for one.

    At a host of one's own a user's name stands for his password in every example.
    """
    parts = _URL_PARTS.search(whole)
    if parts is not None and parts.group(1) == parts.group(2) and parts.group(3).lower() in _OWN_HOSTS:
        return False
    return "%" not in text[:1] and not is_usual(text) and not is_placeholder(text)


# What is said of a password, and none itself: how it is kept, what it must look like.
_SAID_OF_IT: Final = Lazy(
    r"(?i)(?:sha-?\d+|md5|base\d\d|pbkdf2|b?s?crypt|argon2\w*|aes-?\d*|utf-?\d+|rot13|hmac\S*)(?:[-_]\S*)?|"
    r"\S*-(?:encrypted|hashed|encoded|protected|based|only|sensitive|generated|free)"
)


def told(text: str) -> bool:
    """Whether what a sentence says behind the word for a password is one."""
    value = text.rstrip(".,;:]*'" if "(" in text else ".,;:)]*'")
    return _SAID_OF_IT.fullmatch(value) is None and is_secret("password", value)


_COMMON: Final = frozenset({
    "the", "and", "your", "for", "are", "from", "into", "where", "when", "which", "have", "has", "been", "will", "must",
    "should", "can", "may", "was", "were",
})  # fmt: skip


def phrase(text: str) -> bool:
    """Whether words in a row restore a wallet: they make no sentence, and hardly one comes twice."""
    words = [word.lower() for word in _LETTERS.findall(text)]
    return _COMMON.isdisjoint(words) and len(words) - len(set(words)) <= 1


_LETTERS: Final = Lazy(r"[A-Za-z]{3,}")
TOLD: Final[Mapping[str, Callable[[str], bool]]] = {"told": told, "phrase": phrase}
