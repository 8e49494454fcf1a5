"""The log for those who audit it: checkpoints, proofs, consistency, export, and the public keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from aegis.audit.checkpoint import checkpoint_of, sign_checkpoint
from aegis.audit.merkle import consistency_proof, inclusion_proof, root_at
from aegis.core.ports import Head, Store
from aegis.errors import InvalidCall
from aegis.keys.public import jwks as key_set
from aegis.keys.public import public_keys
from aegis.server.answers import answer
from aegis.server.endpoint import Asked

PAGE: Final = 512  # receipts read for one chunk of an export: bounds what it holds


async def proof(asked: Asked) -> Response:
    """Proof that a leaf is in the tree of `size` leaves (RFC 9162, 2.1.3.1)."""
    return answer(await asyncio.to_thread(_proof, asked.services.store, asked.query))


async def consistency(asked: Asked) -> Response:
    """Proof that the tree of `second` leaves begins with the tree of `first` (RFC 9162, 2.1.4.1)."""
    return answer(await asyncio.to_thread(_consistency, asked.services.store, asked.query))


async def export(asked: Asked) -> Response:
    """The receipts as canonical lines, in order, streamed; `size` of them, or all there are."""
    store = asked.services.store
    head = await asyncio.to_thread(_head, store)
    size = asked.query.get("size", head.size)
    start = asked.query.get("start", 0)
    if not start <= size <= head.size:
        raise InvalidCall("`start` to `size` is not inside the log", code="out_of_range", hint="see the checkpoint")
    return StreamingResponse(
        _lines(store, start, size),
        media_type="application/x-ndjson",
        headers={
            "content-disposition": 'attachment; filename="receipts.jsonl"',
            "aegis-log-size": str(size),
        },
    )


async def jwks(asked: Asked) -> Response:
    """The public keys of the deployment (RFC 7517)."""
    document = await asyncio.to_thread(_keys, asked.services.store)
    # Which agents there are stays with the auditors.
    keys = [{name: value for name, value in key.items() if name != "agent"} for key in key_set(document)["keys"]]
    return answer({"keys": keys})


async def keys(asked: Asked) -> Response:
    """The `keys.json` of an offline verification; a verifier gets it another way than the receipts."""
    return answer(await asyncio.to_thread(_keys, asked.services.store))


async def checkpoint(asked: Asked) -> Response:
    """The end of the log in a signed note (C2SP tlog-checkpoint)."""
    services = asked.services
    head = await asyncio.to_thread(_head, services.store)
    note = sign_checkpoint(checkpoint_of(head, services.log), services.log_signer())
    return Response(note, media_type="text/plain")


def _lines(store: Store, start: int, stop: int) -> Iterator[bytes]:
    for at in range(start, stop, PAGE):
        with store.reader() as reader:
            yield b"".join(entry.body + b"\n" for entry in reader.entries(at, min(at + PAGE, stop)))


def _proof(store: Store, query: Any) -> dict[str, Any]:
    if "index" not in query:
        raise InvalidCall("`index` is needed", code="missing_parameter")
    with store.reader() as reader:
        index, size = query["index"], query.get("size", reader.head().size)
        path = inclusion_proof(index, size, reader)
        leaf = reader.leaf_hashes(index, index + 1)[0]
        root = root_at(size, reader)
    return {
        "index": index,
        "size": size,
        "leaf_hash": leaf.hex(),
        "root": root.hex(),
        "path": [node.hex() for node in path],
    }


def _consistency(store: Store, query: Any) -> dict[str, Any]:
    if "first" not in query:
        raise InvalidCall("`first` is needed", code="missing_parameter")
    with store.reader() as reader:
        first, second = query["first"], query.get("second", reader.head().size)
        path = consistency_proof(first, second, reader)
        roots = root_at(first, reader).hex(), root_at(second, reader).hex()
    return {
        "first": first,
        "second": second,
        "first_root": roots[0],
        "second_root": roots[1],
        "path": [node.hex() for node in path],
    }


def _keys(store: Store) -> dict[str, Any]:
    with store.reader() as reader:
        return public_keys(reader)


def _head(store: Store) -> Head:
    with store.reader() as reader:
        return reader.head()
