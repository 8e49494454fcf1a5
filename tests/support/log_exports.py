"""Exports made by hand, well-formed or not: every receipt can be given any members, key, place and chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from aegis.core.breaks import Break
from aegis.core.canonical import canonical_record
from aegis.core.times import rfc3339
from aegis.errors import LogInvalid
from aegis.keys.keyring import Ed25519Signer
from aegis.log.append import sign_group, signing_input
from aegis.log.checkpoint import Checkpoint, sign_checkpoint
from aegis.log.merkle import Frontier, leaf_hash
from aegis.log.records import RecordRule
from aegis.log.verify import Verified, verify_export

LOG = "aegis/log/1"
START = 1_800_000_000_000_000

LOG_KEY = Ed25519Signer(b"l" * 32, "log")
NEXT_LOG_KEY = Ed25519Signer(b"m" * 32, "log")
GATE_KEY = Ed25519Signer(b"g" * 32, "receipt")
PERMIT_KEY = Ed25519Signer(b"p" * 32, "permit")
BOT_KEY = Ed25519Signer(b"b" * 32, "receipt", "bot")
NEXT_BOT_KEY = Ed25519Signer(b"c" * 32, "receipt", "bot")
THIRD_BOT_KEY = Ed25519Signer(b"d" * 32, "receipt", "bot")
LAST_LOG_KEY = Ed25519Signer(b"n" * 32, "log")
OTHER_KEY = Ed25519Signer(b"o" * 32, "receipt", "other")
STRANGER = Ed25519Signer(b"s" * 32, "receipt")

Body = dict[str, Any]
Signed = tuple[Body, Ed25519Signer]
Seen = Callable[[int], None]


def receipt(number: int, kind: str, /, **members: Any) -> Body:
    """A receipt's members, without place, chain and signature."""
    return {
        "v": 1,
        "log": LOG,
        "time": rfc3339(START + number * 1_000_000),
        "kind": kind,
        "receipt_id": f"r{number}",
        "principal": "p",
        **members,
    }


def announce(number: int, key: Ed25519Signer, action: str = "add", /, **members: Any) -> Signed:
    """A key receipt, endorsed by the log's key."""
    return receipt(number, "key", action=action, key=key.describe(), **members), LOG_KEY


def decision(number: int, key: Ed25519Signer = BOT_KEY, /, **members: Any) -> Signed:
    """A decision about a call of `bot`."""
    values = {"agent": "bot", "call_id": f"c{number}", "tool": "t", "decision": "allow", "reason": "none", **members}
    return receipt(number, "decision", **values), key


def result(number: int, parent: str, **members: Any) -> Signed:
    """The result of a decided call."""
    return receipt(number, "result", agent="bot", parent=parent, decision="allow", **members), BOT_KEY


def approval(number: int, action: str, *, of: str = "a1", **members: Any) -> Signed:
    """An approval that came to `action`."""
    return receipt(number, "approval", approval_id=of, action=action, **members), GATE_KEY


def redemption(number: int, **members: Any) -> Signed:
    """Something redeemed."""
    return receipt(number, "redemption", action="redeemed", **members), GATE_KEY


HEAD: tuple[Signed, ...] = (announce(0, LOG_KEY), announce(1, GATE_KEY), announce(2, BOT_KEY), announce(3, PERMIT_KEY))


@dataclass(frozen=True)
class Export:
    """An export in memory, and the keys that its verifier has."""

    lines: tuple[bytes, ...]
    checkpoint: bytes
    keys: bytes

    def verify(
        self,
        *,
        since: bytes | None = None,
        rules: Sequence[RecordRule] = (),
        executor: Executor | None = None,
        progress: Seen | None = None,
        block: int = 1 << 16,
    ) -> Verified:
        """Verify it, handed in by blocks of that many bytes."""
        return verify_export(
            blocks(self.data, block),
            checkpoint=self.checkpoint,
            keys=self.keys,
            since=since,
            rules=rules,
            executor=executor,
            progress=progress,
        )

    def broken(self, **options: Any) -> Break:
        """The break that verifying it raises."""
        try:
            self.verify(**options)
        except LogInvalid as error:
            return error.broken
        raise AssertionError("the export verified")

    @property
    def data(self) -> bytes:
        """`receipts.jsonl`."""
        return b"".join(line + b"\n" for line in self.lines)

    def with_lines(self, lines: Iterable[bytes]) -> Export:
        """The same export with other lines, and nothing else made to fit."""
        return replace(self, lines=tuple(lines))

    def with_line(self, at: int, line: bytes) -> Export:
        """The same export with one line replaced."""
        return self.with_lines([*self.lines[:at], line, *self.lines[at + 1 :]])

    def checkpoint_at(self, size: int, key: Ed25519Signer = LOG_KEY) -> bytes:
        """A checkpoint of the first `size` lines."""
        return note(self.lines[:size], key)


def blocks(data: bytes, size: int) -> Iterable[bytes]:
    """`data` in blocks."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def note(lines: Sequence[bytes], key: Ed25519Signer = LOG_KEY, origin: str = LOG) -> bytes:
    """A checkpoint over `lines`."""
    frontier, _ = Frontier.empty().extend([leaf_hash(line) for line in lines])
    return sign_checkpoint(Checkpoint(origin=origin, size=len(lines), root=frontier.root()), key)


def keys_file(*keys: Ed25519Signer, log: str = LOG, **members: Any) -> bytes:
    """A `keys.json`."""
    return orjson.dumps({"v": 1, "log": log, "keys": [key.describe() for key in keys or (LOG_KEY,)], **members})


@dataclass
class Sealer:
    """Chains and signs receipts in order, whatever they say."""

    lines: list[bytes] = field(default_factory=list)

    def add(self, signed: Sequence[Signed]) -> None:
        """Append receipts as one group: those of one key share a signature, unless it is only one."""
        bodies: list[Body] = []
        for offset, (body, _) in enumerate(signed):
            bodies.append({"index": len(self.lines) + offset, **body})
        for key in {key.kid: key for _, key in signed}.values():
            own = [body for body, (_, signer) in zip(bodies, signed, strict=True) if signer.kid == key.kid]
            for body, sig in zip(own, sign_group([signing_input(body) for body in own], key), strict=True):
                body.setdefault("sig", sig)
        for body in bodies:
            body.setdefault("prev", leaf_hash(self.lines[-1]).hex() if self.lines else "")
            self.lines.append(canonical_record(body))


def export(*groups: Sequence[Signed], keys: bytes | None = None, head: Sequence[Signed] = HEAD) -> Export:
    """An export of `head`, each alone, and then `groups`."""
    sealer = Sealer()
    for signed in head:
        sealer.add([signed])
    for group in groups:
        sealer.add(group)
    return Export(lines=tuple(sealer.lines), checkpoint=note(sealer.lines), keys=keys or keys_file())


def decisions(count: int, *, start: int = 4) -> list[Signed]:
    """Decisions with numbers from `start`."""
    return [decision(number) for number in range(start, start + count)]
