"""Scripts and styles: served from memory under a name that changes with their content."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from aegis.errors import InvalidCall
from aegis.server.cockpit.page import Visit

FOLDER: Final = Path(__file__).with_name("static")
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def files() -> dict[str, bytes]:
    """Every asset by its name."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in _MEDIA}


@cache
def version() -> str:
    """A word that changes whenever an asset does."""
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(name.encode() + b"\0" + data + b"\0")
    return digest.hexdigest()[:16]


def url(name: str) -> str:
    """Where the asset is; raises `KeyError` for one that does not exist."""
    files()[name]
    return f"/assets/{version()}/{name}"


async def asset(visit: Visit) -> Response:
    """One asset; a page of an older version gets the current one, which is not kept."""
    name = visit.names["name"]
    data = files().get(name)
    if data is None:
        raise InvalidCall("there is no such file", code="not_found", status=404)
    current = visit.names["version"] == version()
    return Response(
        data,
        media_type=_MEDIA[Path(name).suffix],
        headers={"cache-control": "public, max-age=31536000, immutable" if current else "no-store"},
    )
