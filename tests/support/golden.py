"""Golden records: what a gateway answers and writes down, equal in every run but for what must differ.

Identifiers, times, salts, commitments, signatures, hashes of leaves and keys differ. Each is replaced by a name in the
order of first appearance (`<id 3>`), everywhere it stands, so that what belongs together still does.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "golden"

# Members whose value is of one run alone, by what they hold.
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("salt",), "salt"),
    **dict.fromkeys(("call_commitment", "payload_commitment"), "commitment"),
    **dict.fromkeys(("prev", "leaf_hash", "root", "log"), "hash"),
    **dict.fromkeys(("permit", "proof", "nonce", "challenge", "checkpoint", "attestation", "projection"), "token"),
    "kid": "key",
    "policy_digest": "policy",  # of rules and ports as well
    "public": "public key",
    "request_id": "request",
}
_TIMES: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_TOKENS: Final = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+")  # compact JWS
_IDS: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_HASHES: Final = re.compile(r"(?<![0-9a-f:])[0-9a-f]{64}(?![0-9a-f])")  # a digest names its algorithm, and stays
_TIME_MEMBERS: Final = frozenset({"time", "created_at", "expires_at", "exp", "iat", "nbf", "created", "updated_at"})
_COUNTERS: Final = frozenset({"us", "seconds", "duration_ms", "elapsed", "ms"})


class Normaliser:
    """Replaces what differs from run to run; one of them sees a whole family, in order."""

    def __init__(self, secrets: Iterable[tuple[str, str]] = ()):
        self._names: dict[tuple[str, str], str] = {}
        self._secrets = sorted(secrets, key=lambda one: -len(one[0]))

    def __call__(self, value: Any, member: str = "") -> Any:
        """`value` as it is in every run; `member` is the name that it stands under."""
        if member == "preview":  # it is made beside the approval, and may be there or on its way
            return "<preview>"
        if isinstance(value, dict):
            return {self._text(name): self(one, name) for name, one in value.items() if name != "sig"}
        if isinstance(value, list):
            return [self(one, member) for one in value]
        if member in _COUNTERS:
            return "<measured>"
        if member in _TIME_MEMBERS and isinstance(value, int | float) and not isinstance(value, bool):
            return "<time>"
        if not isinstance(value, str):
            return value
        kind = "version" if member == "version" and value.startswith("sha-256:") else _KINDS.get(member)
        if kind and value:
            return self._name(kind, value)
        return self._text(value)

    def _text(self, text: str) -> str:
        for secret, name in self._secrets:
            text = text.replace(secret, name)
        text = _TIMES.sub("<time>", text)
        text = _TOKENS.sub(lambda found: self._name("token", found[0]), text)
        text = _HASHES.sub(lambda found: self._name("hash", found[0]), text)
        return _IDS.sub(lambda found: self._name("id", found[0]), text)

    def _name(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._names:
            self._names[key] = f"<{kind} {sum(1 for known, _ in self._names if known == kind) + 1}>"
        return self._names[key]


def lines_of(records: Iterable[Any]) -> str:
    """Records as text, one a line, members in order."""
    return "".join(json.dumps(one, sort_keys=True, ensure_ascii=False) + "\n" for one in records)


def compare(name: str, text: str, *, write: bool) -> None:
    """Compare `text` with the golden file of that name, or write it; a difference fails with the lines that differ."""
    file = FOLDER / name
    if write:
        file.write_text(text)
        return
    wanted = file.read_text() if file.exists() else ""
    if wanted == text:
        return
    differences = difflib.unified_diff(
        wanted.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=0
    )
    shown = "\n".join(line[:2_000] for _, line in zip(range(40), differences, strict=False))
    raise AssertionError(f"{shown}\nwhere this is meant: `make golden ARGS=--write`, and say why in the commit")
