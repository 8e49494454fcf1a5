"""How often a rule still finds its own examples in disguise.

    python -m benchmarks.evasion

Each `match` example of each rule goes through the transformations that keep its meaning on its surface
(a shell undoes quotes, a web server percent signs, a model reads look-alikes). Found counts any rule that
blocks or masks: another rule may be the one that sees the disguise.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection

from msgspec import structs

from aegis.core.outcome import Outcome
from aegis.core.text import Surface
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.model import Example, Rule, RuleSet
from aegis.policy.guards.examine import examiner

Transform = Callable[[str], str]
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_TWINS = str.maketrans("aceopxyi", "асеорхуі")
PLAIN: frozenset[Surface] = frozenset({"identifier", "unknown", "query_fragment", "path", "url"})
PROSE: frozenset[Surface] = frozenset({"content", "result", "unknown"})
ALL: frozenset[Surface] = PLAIN | PROSE | {"command", "sql", "code"}


def zero_width(text: str) -> str:
    return "\u200b".join(text)


def between_blanks(text: str) -> str:
    return text.replace(" ", "  \t")


def percent(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def double_percent(text: str) -> str:
    return percent(text).replace("%", "%25")


def entities(text: str) -> str:
    return "".join(f"&#{ord(char)};" if not char.isalnum() else char for char in text)


def unicode_escapes(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char for char in text)


def quoted_words(text: str) -> str:
    words = text.split(" ")
    return " ".join(f"{word[:1]}''{word[1:]}" if word[:2].isalpha() and len(word) > 2 else word for word in words)


def sql_comments(text: str) -> str:
    return text.replace(" ", "/**/")


def swapped_case(text: str) -> str:
    return "".join(char.upper() if at % 2 else char.lower() for at, char in enumerate(text))


TRANSFORMS: dict[str, tuple[frozenset[Surface], Transform]] = {
    "case": (ALL - {"command", "code"}, swapped_case),
    "full-width": (PLAIN | PROSE, lambda text: text.translate(_WIDE)),
    "zero-width": (PLAIN | PROSE, zero_width),
    "look-alikes": (PLAIN | PROSE, lambda text: text.translate(_TWINS)),
    "percent": (PLAIN, percent),
    "double percent": (PLAIN, double_percent),
    "entities": (PLAIN | PROSE, entities),
    "unicode escapes": (PLAIN | PROSE, unicode_escapes),
    "base64": (PROSE | PLAIN, lambda text: base64.b64encode(text.encode()).decode()),
    "nested JSON": (PLAIN | PROSE, lambda text: json.dumps({"inner": text})),
    "SQL comments": (PLAIN | {"sql"}, sql_comments),
    "shell quotes": (frozenset({"command"}), quoted_words),
    "blanks": (ALL, between_blanks),
}
# What a transformation would change the meaning of: a secret in capitals is no secret, and so on.
_CASE_MATTERS = frozenset({"secret", "pii"})
# Neighbours make checksums valid and tokens long by chance, so these are never put together.
_NEVER_JOINED = frozenset({"pii", "secret"})
_SQL_ALONE = frozenset({"sql_injection"})


def measure() -> dict[str, tuple[int, int, list[str]]]:
    """By transformation: found, tried, and the examples that were lost."""
    rules = load(builtin_folder())
    detect = examiner(Scanner(rules, cache=default_cache_folder()))
    counts: dict[str, tuple[int, int, list[str]]] = defaultdict(lambda: (0, 0, []))
    for rule in rules.rules:
        for example in rule.examples:
            text = example.text if example.text is not None else example.result
            if example.kind != "match" or not isinstance(text, str):
                continue
            for name, (surfaces, transform) in TRANSFORMS.items():
                if example.surface not in surfaces or (name == "case" and rule.category in _CASE_MATTERS):
                    continue
                if name == "SQL comments" and rule.category not in _SQL_ALONE:
                    continue
                if name == "blanks" and rule.category in _CASE_MATTERS:
                    continue
                disguised = _with(example, transform(text))
                found, tried, lost = counts[name]
                hit = _hit(rules, rule, detect(disguised))
                counts[name] = (found + hit, tried + 1, lost if hit else [*lost, f"{rule.id}: {disguised.text!r}"])
            found, tried, lost = counts["split in two"]
            if example.surface in PLAIN and len(text) > 3 and rule.category not in _NEVER_JOINED:
                half = len(text) // 2
                pair = structs.replace(example, text=None, arguments={"name": text[:half], "surname": text[half:]})
                hit = _hit(rules, rule, detect(pair))
                counts["split in two"] = (found + hit, tried + 1, lost if hit else [*lost, f"{rule.id}: {text!r}"])
    return dict(counts)


def _hit(rules: RuleSet, rule: Rule, found: Collection[str]) -> bool:
    return rule.id in found or any(rules.by_id[one].outcome > Outcome.ALLOW for one in found)


def _with(example: Example, text: str) -> Example:
    return structs.replace(example, text=text, result=None)


def main() -> int:
    counts = measure()
    found = sum(count[0] for count in counts.values())
    tried = sum(count[1] for count in counts.values())
    for name, (hits, total, lost) in sorted(counts.items()):
        print(f"{name:16s} {hits:4d} / {total:4d}  {hits / total:.3f}")
        if "-v" in sys.argv:
            for line in lost:
                print(f"    {line}")
    print(f"{'all':16s} {found:4d} / {tried:4d}  {found / tried:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
