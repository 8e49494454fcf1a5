"""Verifying an export of the log offline, trusting nothing but the keys that were given from outside.

(0) what is believed: the log's name and key, and a retained checkpoint if there is one
(1) the checkpoint is parsed strictly
(2) every line by itself: canonical bytes, closed members, this log, its signature
(3) every line in its place: index, chain of hashes, time, a key that may sign it there
(4) rules between receipts
(5) the tree: the root at the checkpoint's size, and at the size of the retained one
(6) the checkpoints' signatures, by keys of the log that were in force
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from msgspec import Struct, structs

from aegis.core.breaks import Break, BreakKind
from aegis.core.canonical import kid_of
from aegis.errors import LogInvalid
from aegis.log.append import check_members
from aegis.log.checkpoint import Note, open_checkpoint, parse_checkpoint
from aegis.log.export import LineChecker, check_lines, locate, read_line
from aegis.log.merkle import Frontier, leaf_hash
from aegis.log.records import RecordRule, Records
from aegis.log.trust import Trust, public_of, read_keys

# Which key may sign which receipt: followed through the log's `key` receipts, from the log's key on.

_PURPOSES: Final = frozenset({"log", "receipt", "permit", "mission", "attestation"})
_MEMBERS: Final = frozenset({"kid", "purpose", "public"})


@dataclass(kw_only=True, slots=True, eq=False)
class _Key:
    """A key that is vouched for; it signs leaves with `first <= index <= until`."""

    purpose: str
    agent: str
    public: bytes
    first: int
    until: int | None
    announced: bool


class KeyHistory:
    """The keys of a log, as far as it was read."""

    def __init__(self, trust: Trust):
        self._keys: dict[str, _Key] = {}
        self._in_force: dict[tuple[str, str], list[_Key]] = {("log", ""): []}
        for key in trust.keys:
            known = _Key(purpose="log", agent="", public=key.public, first=key.first, until=key.until, announced=False)
            self._keys[key.kid] = known
            if key.until is None:
                self._in_force[("log", "")].append(known)

    def public(self, kid: str) -> bytes | None:
        """The public half of a key that is vouched for."""
        key = self._keys.get(kid)
        return None if key is None else key.public

    def log_keys(self, size: int) -> list[bytes]:
        """The keys that may sign a checkpoint of `size` leaves."""
        return [
            key.public
            for key in self._keys.values()
            if key.purpose == "log" and key.first <= size and (key.until is None or size <= key.until)
        ]

    def check(self, receipt: dict[str, Any]) -> None:
        """Guarantee that the key that `receipt` names may sign it, where it stands; raises `LogInvalid`."""
        key = self._keys.get(receipt["sig"]["kid"])
        if receipt["kind"] == "key":
            if key is None or key.purpose != "log":
                raise _key_history_invalid("key_not_endorsed")
        elif key is None:
            raise _key_history_invalid("unknown_key")
        elif key.purpose != "receipt":
            raise _key_history_invalid("key_not_valid", "its purpose is another one")
        elif key.agent and key.agent != receipt.get("agent"):
            raise _key_history_invalid("key_not_valid", "it belongs to another agent")
        index = receipt["index"]
        if index < key.first or (key.until is not None and index > key.until):
            raise _key_history_invalid("key_not_valid", "it was not in force")

    def announce(self, receipt: dict[str, Any]) -> None:
        """Follow a `key` receipt whose signature was checked; raises `LogInvalid`."""
        index, action = receipt["index"], receipt.get("action")
        kid, purpose, agent, public = _described(receipt.get("key"))
        known = self._keys.get(kid)
        in_force = self._in_force.setdefault((purpose, agent), [])
        if action == "retire":
            if known is None or known not in in_force:
                raise _malformed("`key` is not in force")
            known.until = index
            in_force.remove(known)
            return
        if action not in {"add", "rotate"}:
            raise _malformed("`action`")
        # The key that the verifier was given may stand in the log too, once and as what it is.
        if known is not None and (known.announced or (known.purpose, known.agent) != (purpose, agent)):
            raise _malformed("`key` was announced before")
        if action == "rotate":
            for replaced in in_force:
                if replaced is not known:
                    replaced.until = index
            in_force[:] = [known] if known in in_force else []
        if known is None:
            known = _Key(purpose=purpose, agent=agent, public=public, first=index + 1, until=None, announced=True)
            self._keys[kid] = known
            in_force.append(known)
        else:
            known.announced = True


def _described(key: Any) -> tuple[str, str, str, bytes]:
    if type(key) is not dict or not _MEMBERS <= key.keys() <= _MEMBERS | {"agent"}:
        raise _malformed("`key`")
    public, purpose, agent = public_of(key["public"]), key["purpose"], key.get("agent", "")
    if public is None or key["kid"] != kid_of(public):
        raise _malformed("`key.kid`")
    if type(purpose) is not str or purpose not in _PURPOSES or type(agent) is not str:
        raise _malformed("`key.purpose`")
    if "agent" in key and (not agent or purpose != "receipt"):
        raise _malformed("`key.agent`")
    return kid_of(public), purpose, agent, public


def _malformed(detail: str) -> LogInvalid:
    return _key_history_invalid("malformed_member", detail)


def _key_history_invalid(kind: BreakKind, detail: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=detail))


# After a gap: whether the missing receipt comes later (reordered) or not at all (deleted).


def name_gap(index: int, rest: Iterable[Sequence[bytes]]) -> BreakKind:
    """`reordered` where a line of `rest` has the index that is missing, else `deleted`."""
    for lines in rest:
        for line in lines:
            try:
                if read_line(line).get("index") == index:
                    return "reordered"
            except LogInvalid:
                continue  # the gap is the first defect; what is wrong further on is not asked here
    return "deleted"


# Blocks of a file into batches of lines, in bounded memory.

MAX_LINE_BYTES: Final = 1_048_576  # a line is held in memory whole
BATCH_LINES: Final = 1_000


def batches(blocks: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Batches of lines without their newlines, each with the number of its first line, from 1.

    Raises `LogInvalid` for a line that is too long, and for a last line without its newline.
    """
    first, lines, rest = 1, list[bytes](), b""
    for block in blocks:
        head, *more = block.split(b"\n")
        rest += head
        if more:
            lines.append(rest)
            lines.extend(more[:-1])
            rest = more[-1]
        if len(rest) > MAX_LINE_BYTES:
            raise _split_invalid("it is too long", first + len(lines))
        while len(lines) >= BATCH_LINES:
            yield first, lines[:BATCH_LINES]
            first, lines = first + BATCH_LINES, lines[BATCH_LINES:]
    if rest:
        raise _split_invalid("it does not end", first + len(lines))
    if lines:
        yield first, lines


def _split_invalid(detail: str, line: int) -> LogInvalid:
    return LogInvalid(Break(kind="not_canonical", detail=detail, line=line))


MAX_WARNINGS: Final = 100  # kept for the report; all are counted
_IN_FLIGHT: Final = 8  # batches handed to the executor and not answered: bounds memory

NOT_COVERED_PAYLOADS: Final = "payloads: the log commits to them and does not hold them"
NOT_COVERED: Final = (
    "receipts after the checkpoint",
    "whether a tool ran or what it did: receipts record decisions",
    NOT_COVERED_PAYLOADS,
)
NOT_COVERED_WITHOUT_SINCE: Final = "another history shown to somebody else: give a checkpoint that was kept before"


class Verified(Struct, frozen=True, kw_only=True):
    """A log that verified: what it is, what was odd, and what nobody should conclude from it."""

    log: str
    size: int
    root: bytes
    first_time: str
    last_time: str
    kinds: dict[str, int]
    since: int | None
    warnings: tuple[Break, ...]
    warning_count: int
    not_covered: tuple[str, ...]


def verify_export(
    receipts: Iterable[bytes],
    *,
    checkpoint: bytes,
    keys: bytes,
    since: bytes | None = None,
    rules: Sequence[RecordRule] = (),
    executor: Executor | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verified:
    """Guarantee that `receipts` are the log that `checkpoint` commits to, from its first leaf on.

    `receipts` are blocks of `receipts.jsonl` in order, of any size; `keys` is a `keys.json` that came
    another way. `since` is a checkpoint that the verifier kept: the log must have grown from it.
    `rules` see every receipt after the rules of the log itself. An `executor` of processes checks
    signatures beside; `progress` is told how many receipts were read.

    Raises `LogInvalid` with the first defect, by position.
    """
    # (0)
    trust = read_keys(keys)
    # (1)
    note = _parse(checkpoint, trust)
    kept = None if since is None else _parse(since, trust)
    if kept is not None and kept.unverified.size > note.unverified.size:
        raise _invalid("tail_cut", "the checkpoint is older than the one that was kept")
    # (2), (3), (4)
    walk = _Walk(trust, note, kept, rules)
    _walk_all(walk, _numbered(receipts), executor, progress)
    # (5)
    if walk.size < note.unverified.size:
        raise _invalid("tail_cut", f"{note.unverified.size - walk.size} receipts are missing")
    if walk.frontier.root() != note.unverified.root:
        raise _invalid("fork", "the root is not the one of the checkpoint")
    # (6)
    open_checkpoint(note, walk.keys.log_keys(note.unverified.size))
    if kept is not None:
        open_checkpoint(kept, walk.keys.log_keys(kept.unverified.size))
    return walk.verified()


class _Walk:
    """The state between one line and the next."""

    def __init__(self, trust: Trust, note: Note, kept: Note | None, rules: Sequence[RecordRule]):
        self.log = trust.log
        self.keys = KeyHistory(trust)
        self.size = 0
        self.frontier = Frontier.empty()
        self._limit = note.unverified.size
        self._kept = None if kept is None else kept.unverified
        self._records = Records()
        self._rules = (self._records, *rules)
        self._previous = ""
        self._first_time = ""
        self._time = ""
        self._kinds: Counter[str] = Counter()
        self._warnings: list[Break] = []
        self._warning_count = 0
        self._check_kept()

    def see(
        self, lines: Sequence[bytes], first: int, candidates: dict[str, bytes], checker: LineChecker | None
    ) -> Break | None:
        """Take up `lines` until one breaks; collects the keys that they name into `candidates`.

        With a `checker` lines are checked by themselves here, otherwise only their members are.
        """
        leaves: list[bytes] = []
        broken: Break | None = None
        for offset, line in enumerate(lines):
            receipt: dict[str, Any] = {}
            try:
                receipt = read_line(line)
                if checker is None:
                    check_members(receipt)
                self._collect(receipt, candidates)
                if checker is not None:
                    checker.check(receipt, line, candidates)
                leaf = leaf_hash(line)
                self._place(receipt, leaf, first + offset)
                leaves.append(leaf)
                if self._kept is not None and self.size == self._kept.size:
                    self._extend(leaves)
                    self._check_kept()
            except LogInvalid as error:
                broken = locate(error.broken, first + offset, receipt)
                break
        self._extend(leaves)
        return broken

    def verified(self) -> Verified:
        covered = NOT_COVERED if self._kept is not None else (*NOT_COVERED, NOT_COVERED_WITHOUT_SINCE)
        return Verified(
            log=self.log,
            size=self.size,
            root=self.frontier.root(),
            first_time=self._first_time,
            last_time=self._time,
            kinds=dict(sorted(self._kinds.items())),
            since=None if self._kept is None else self._kept.size,
            warnings=tuple(self._warnings),
            warning_count=self._warning_count,
            not_covered=covered,
        )

    def _collect(self, receipt: dict[str, Any], candidates: dict[str, bytes]) -> None:
        """Add the key that signed, where it is vouched for by now; nothing here is checked yet."""
        sig = receipt.get("sig")
        kid = sig.get("kid") if type(sig) is dict else None
        if type(kid) is str and kid not in candidates:
            public = self.keys.public(kid)
            if public is not None:
                candidates[kid] = public

    def _place(self, receipt: dict[str, Any], leaf: bytes, line: int) -> None:
        index, time = receipt["index"], receipt["time"]
        # (3) Its place, its predecessor, its key.
        if index != self.size:
            raise _invalid(self._misplaced(index, receipt["receipt_id"]))
        if index >= self._limit:
            raise _invalid("uncovered")
        if receipt["prev"] != self._previous:
            raise _invalid("chain_broken")
        self.keys.check(receipt)
        if receipt["kind"] == "key":
            self.keys.announce(receipt)
        # (4)
        for rule in self._rules:
            rule.see(receipt)
        if time < self._time:
            self._warn(locate(Break(kind="clock_went_back"), line, receipt))
        self._previous = leaf.hex()
        self._first_time = self._first_time or time
        self._time = max(time, self._time)
        self._kinds[receipt["kind"]] += 1
        self.size += 1

    def _misplaced(self, index: int, receipt_id: str) -> BreakKind:
        if index > self.size:
            return "deleted"
        return "duplicated" if receipt_id in self._records.ids else "fork"

    def _extend(self, leaves: list[bytes]) -> None:
        self.frontier, _ = self.frontier.extend(leaves)
        leaves.clear()

    def _check_kept(self) -> None:
        # (5) for the retained checkpoint, when the log has its size.
        kept = self._kept
        if kept is not None and kept.size == self.size and kept.root != self.frontier.root():
            raise _invalid("fork", "the root is not the one of the checkpoint that was kept")

    def _warn(self, broken: Break) -> None:
        self._warning_count += 1
        if len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(broken)


_Batch = tuple[int, list[bytes]]
_Numbered = Iterator[_Batch | Break]


def _walk_all(
    walk: _Walk, numbered: _Numbered, executor: Executor | None, progress: Callable[[int], None] | None
) -> None:
    """Take up every batch in order, and have its lines checked by themselves, here or beside.

    Of two defects the one that stands first is raised; on the same line, the one of the line itself.
    """
    pending: deque[Future[Break | None]] = deque()
    checker = LineChecker(walk.log) if executor is None else None
    for item in numbered:
        if isinstance(item, Break):
            _settle(pending, keep=0)
            raise LogInvalid(item)
        first, lines = item
        candidates: dict[str, bytes] = {}
        broken = walk.see(lines, first, candidates, checker)
        if executor is not None:
            whole = len(lines) if broken is None else broken.line - first
            pending.append(executor.submit(check_lines, lines[: whole + 1], first, walk.log, candidates, whole))
        if broken is not None:
            _settle(pending, keep=0)
            if broken.kind == "deleted":
                rest = (batch[1] for batch in numbered if not isinstance(batch, Break))
                broken = structs.replace(broken, kind=name_gap(walk.size, chain([lines], rest)))
            raise LogInvalid(broken)
        _settle(pending, keep=_IN_FLIGHT)
        if progress is not None:
            progress(walk.size)
    _settle(pending, keep=0)


def _settle(pending: deque[Future[Break | None]], *, keep: int) -> None:
    """Wait for the oldest answers; raises the first defect among them."""
    while len(pending) > keep:
        broken = pending.popleft().result()
        if broken is not None:
            for future in pending:
                future.cancel()
            raise LogInvalid(broken)


def _numbered(receipts: Iterable[bytes]) -> _Numbered:
    """Batches of lines, and at the end the break of a file that does not end well."""
    try:
        yield from batches(receipts)
    except LogInvalid as error:
        yield error.broken


def _parse(data: bytes, trust: Trust) -> Note:
    note = parse_checkpoint(data)
    if note.unverified.origin != trust.log:
        raise _invalid("wrong_log", "a checkpoint")
    return note


def _invalid(kind: BreakKind, detail: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=detail))
