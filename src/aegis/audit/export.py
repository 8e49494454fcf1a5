"""Exporting the log: its receipts, the checkpoint that commits to them, and the keys as the log knows them.

Nothing in an export has to be trusted; `keys.json` lies beside the rest for whoever compares it with
the copy that they got another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.audit.checkpoint import Checkpoint, NoteSigner, checkpoint_of, sign_checkpoint
from aegis.audit.merkle import Frontier, leaf_hash
from aegis.core.ports import Reader
from aegis.errors import StoreCorrupt

RECEIPTS: Final = "receipts.jsonl"
CHECKPOINT: Final = "checkpoint"
KEYS: Final = "keys.json"
_BLOCK_LINES: Final = 500

WriteFile = Callable[[str, Iterable[bytes]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
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
