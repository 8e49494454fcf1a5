"""Exporting the log: its receipts, the checkpoint that commits to them, the keys as the log knows them, and payloads.

Nothing in an export has to be trusted; `keys.json` lies beside the rest for whoever compares it with
the copy that they got another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct, structs

from aegis.core.breaks import Break, BreakKind
from aegis.core.canonical import canonical_record, payload_commitment
from aegis.core.json import parse
from aegis.core.ports import Reader
from aegis.errors import InvalidCall, LogInvalid, StoreCorrupt
from aegis.log.append import Signed, check_members, read_signature, signing_input, verify_signed
from aegis.log.checkpoint import Checkpoint, NoteSigner, checkpoint_of, sign_checkpoint
from aegis.log.merkle import Frontier, leaf_hash

# Payloads beside an export: written for a verifier that is to see arguments, and read in step with the receipts.

PAYLOADS: Final = "payloads.jsonl"
MAX_LINE: Final = 67_108_864  # one payload, escaped at worst: bounds memory
Open = Callable[[bytes, bytes], bytes]


def payload_lines(reader: Reader, size: int, open_payload: Open) -> Iterator[bytes]:
    """Every payload that is still stored below leaf `size`, decrypted, as lines of JSON."""
    for index in range(size):
        stored = reader.payload(index)
        if stored is not None:
            text = open_payload(stored.key, stored.body).decode()
            yield orjson.dumps({"index": index, "salt": stored.salt.hex(), "payload": text}) + b"\n"


class GivenPayload(Struct, frozen=True, kw_only=True):
    """One payload as somebody handed it over: nothing of it is believed before it was compared."""

    index: int
    salt: bytes
    text: bytes


class Payloads:
    """The payloads of a file, taken in the order of the log."""

    def __init__(self, given: Iterable[GivenPayload]):
        self._given = iter(given)
        self._next = next(self._given, None)

    def of(self, receipt: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        """The payload of a receipt and its salt, compared with what the receipt commits to.

        `None` where there is none; raises `LogInvalid` where it is another one.
        """
        index = receipt["index"]
        while self._next is not None and self._next.index < index:
            self._next = next(self._given, None)
        if self._next is None or self._next.index != index:
            return None
        given = self._next
        if receipt.get("payload_commitment") != payload_commitment(given.salt, given.text):
            raise _changed("`payload_commitment`")
        payload: dict[str, Any] = parse(given.text)
        return payload, given.salt


def read_payloads(path: Path) -> Iterator[GivenPayload]:
    """The payloads of a file, line by line, in growing order; raises `LogInvalid` for anything else."""
    last = -1
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE):
            try:
                value = parse(line)
                given = GivenPayload(
                    index=value["index"], salt=bytes.fromhex(value["salt"]), text=value["payload"].encode()
                )
            except (InvalidCall, KeyError, TypeError, ValueError, AttributeError) as error:
                raise _changed("a line is malformed") from error
            if type(given.index) is not int or given.index <= last:
                raise _changed("a line stands in the wrong place")
            last = given.index
            yield given


def _changed(detail: str) -> LogInvalid:
    return LogInvalid(Break(kind="payload_changed", detail=detail))


# What can be said about one line of an export by itself; many lines can be checked at once, anywhere.
#
# (1) it is canonical JSON
# (2) it has the members of its version
# (3) it belongs to the log
# (4) its signature holds

_REMEMBERED: Final = 1_000  # signatures of groups that are still under way; more would only cost memory


def check_lines(lines: Sequence[bytes], first: int, log: str, keys: Mapping[str, bytes], whole: int) -> Break | None:
    """The first defect of `lines`, the first of which is line `first`; `None` where there is none.

    `keys` are the public keys that the lines may name. Of the first `whole` lines the caller has checked the
    members (2) in the same bytes; that is the longest part of a check but for the signature.
    """
    checker = LineChecker(log)
    for offset, line in enumerate(lines):
        receipt: dict[str, Any] = {}
        try:
            receipt = read_line(line)
            checker.check(receipt, line, keys, whole=offset < whole)
        except LogInvalid as error:
            return locate(error.broken, first + offset, receipt)
    return None


class LineChecker:
    """Checks receipts by themselves; a signature that several share is verified once."""

    def __init__(self, log: str):
        self._log = log
        self._verified: set[Signed] = set()

    def check(self, receipt: dict[str, Any], line: bytes, keys: Mapping[str, bytes], *, whole: bool = False) -> None:
        """Steps (1) to (4) for `receipt`, which `line` was read as, (2) unless it is known; raises `LogInvalid`."""
        # (1) Bytes that the serialiser gives back hide no second key and no second spelling. It equals
        # RFC 8785 on ASCII keys without floats, which (2) guarantees.
        try:
            if canonical_record(receipt) != line:
                raise _invalid("not_canonical")
        except orjson.JSONEncodeError as error:
            raise _invalid("not_canonical") from error
        # (2)
        if not whole:
            check_members(receipt)
        # (3)
        if receipt["log"] != self._log:
            raise _invalid("wrong_log")
        # (4)
        signed = read_signature(receipt, signing_input(receipt))
        if signed in self._verified:
            return
        public = keys.get(signed.kid)
        if public is None:
            raise _invalid("key_not_endorsed" if receipt["kind"] == "key" else "unknown_key")
        verify_signed(signed, public)
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified.add(signed)


def read_line(line: bytes) -> dict[str, Any]:
    """The object that a line holds; raises `LogInvalid` where it is not JSON."""
    try:
        receipt = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _invalid("not_canonical", "it is not JSON") from error
    if type(receipt) is not dict:
        raise _invalid("not_canonical", "it is not an object")
    return receipt


def locate(broken: Break, line: int, receipt: dict[str, Any]) -> Break:
    """The break with the position of the receipt that it was found in."""
    index, receipt_id = receipt.get("index"), receipt.get("receipt_id")
    return structs.replace(
        broken,
        line=line,
        index=index if type(index) is int else -1,
        receipt_id=receipt_id if type(receipt_id) is str else "",
    )


def _invalid(kind: BreakKind, detail: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=detail))


RECEIPTS: Final = "receipts.jsonl"
CHECKPOINT: Final = "checkpoint"
KEYS: Final = "keys.json"
_BLOCK_LINES: Final = 500

WriteFile = Callable[[str, Iterable[bytes]], None]


class Exported(Struct, frozen=True, kw_only=True):
    """What was written: the checkpoint, and as the signed note that a verifier should keep for later."""

    checkpoint: Checkpoint
    note: bytes


def export_log(
    reader: Reader,
    *,
    origin: str,
    signer: NoteSigner,
    keys: dict[str, Any],
    write: WriteFile,
    progress: Callable[[int], None] | None = None,
) -> Exported:
    """Write the whole log as one consistent view has it; `write` takes a file's name and its bytes in blocks.

    The checkpoint is written last and only if the leaves lead to the root that the store keeps:
    raises `StoreCorrupt` otherwise, and an export without a checkpoint is none.
    """
    head = reader.head()
    checkpoint = checkpoint_of(head, origin)
    if checkpoint.size != head.size:
        raise StoreCorrupt("the frontier of the log does not stand at its end")
    write(KEYS, [orjson.dumps(keys, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)])
    tree = _Tree()
    write(RECEIPTS, _lines(reader, head.size, tree, progress))
    if (tree.frontier.size, tree.frontier.root()) != (checkpoint.size, checkpoint.root):
        raise StoreCorrupt("the leaves of the log do not lead to its root")
    note = sign_checkpoint(checkpoint, signer)
    write(CHECKPOINT, [note])
    return Exported(checkpoint=checkpoint, note=note)


class _Tree:
    """The tree over what was written."""

    def __init__(self) -> None:
        self.frontier = Frontier.empty()


def _lines(reader: Reader, size: int, tree: _Tree, progress: Callable[[int], None] | None) -> Iterator[bytes]:
    block: list[bytes] = []
    for entry in reader.entries(0, size):
        block.append(entry.body)
        if len(block) == _BLOCK_LINES or entry.index == size - 1:
            tree.frontier, _ = tree.frontier.extend([leaf_hash(body) for body in block])
            yield b"\n".join(block) + b"\n"
            block.clear()
            if progress is not None:
                progress(tree.frontier.size)
