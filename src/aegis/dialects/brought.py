"""What a client's request brings along for the model to read: documents, and what its user wrote.

A document is named by its texts: its content, its title and what is said about it. Files are read where they stand in
the request and are text; PDF files, pictures, and files that are only named cannot be read here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from aegis.dialects.model import Path, Wire, list_of, text_of

_TEXT_TYPES: Final = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_BASE64: Final = ";base64,"


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """One text of a request. `head` is set where it stands there in base64, behind this head (it may be empty)."""

    path: Path
    text: str
    head: str | None = None

    def written(self, text: str) -> str:
        """Another text as it stands in this place."""
        return text if self.head is None else self.head + base64.b64encode(text.encode()).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Brought:
    """One document, or one text of the user; `readable` says whether `passages` are all that a model would read."""

    kind: Literal["document", "text"]
    path: Path
    passages: tuple[Passage, ...]
    readable: bool = True


def brought_to_messages(request: Wire) -> list[Brought]:
    """Of a request to Anthropic's messages: blocks `document` and `search_result`, and the user's text."""
    found: list[Brought] = []
    for path, message in _items(request, "messages"):
        content = message.get("content")
        for place, block in _parts(content, (*path, "content")):
            if block.get("type") == "document":
                found.append(_document_block(block, place))
            elif block.get("type") == "search_result":
                passages = [*_named(block, place, ("title", "source")), *_texts(block.get("content"), place)]
                found.append(Brought(kind="document", path=place, passages=tuple(passages)))
        if message.get("role") == "user":
            found += _said(content, (*path, "content"), "text")
    return found


def brought_to_chat(request: Wire) -> list[Brought]:
    """Of a request for a chat completion: parts `file`, and the user's text."""
    found: list[Brought] = []
    for path, message in _items(request, "messages"):
        content = message.get("content")
        for place, part in _parts(content, (*path, "content")):
            if part.get("type") == "file":
                file = part.get("file")
                found.append(_file(file if isinstance(file, dict) else {}, (*place, "file")))
        if message.get("role") == "user":
            found += _said(content, (*path, "content"), "text")
    return found


def brought_to_responses(request: Wire) -> list[Brought]:
    """Of a request for a response: parts `input_file`, and the user's text."""
    if isinstance(request.get("input"), str):
        return _said(request["input"], ("input",), "input_text")
    found: list[Brought] = []
    for path, item in _items(request, "input"):
        content = item.get("content")
        for place, part in _parts(content, (*path, "content")):
            if part.get("type") == "input_file":
                found.append(_file(part, place))
        if item.get("role") == "user":
            found += _said(content, (*path, "content"), "input_text")
    return found


def _document_block(block: Wire, path: Path) -> Brought:
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    passages, place, kind = list(_named(block, path, ("title", "context"))), (*path, "source"), source.get("type")
    data = source.get("data")
    if kind == "text" and isinstance(data, str):
        passages.append(Passage(path=(*place, "data"), text=data))
    elif kind == "content":
        content = source.get("content")
        passages += _texts(content, place)
        pictures = any(part.get("type") != "text" for _, part in _parts(content, ()))
        return Brought(kind="document", path=path, passages=tuple(passages), readable=not pictures)
    else:
        decoded = _decoded(text_of(source.get("media_type")), text_of(data)) if kind == "base64" else None
        if decoded is None:
            return Brought(kind="document", path=path, passages=tuple(passages), readable=False)
        passages.append(Passage(path=(*place, "data"), text=decoded, head=""))
    return Brought(kind="document", path=path, passages=tuple(passages))


def _file(file: Wire, path: Path) -> Brought:
    """A file of OpenAI's APIs; its content is a `data:` URL."""
    passages = list(_named(file, path, ("filename",)))
    head, found, data = text_of(file.get("file_data")).partition(_BASE64)
    decoded = _decoded(head.removeprefix("data:"), data) if found and head.startswith("data:") else None
    if decoded is not None:
        passages.append(Passage(path=(*path, "file_data"), text=decoded, head=head + _BASE64))
    return Brought(kind="document", path=path, passages=tuple(passages), readable=decoded is not None)


def _said(content: Any, path: Path, kind: str) -> list[Brought]:
    if isinstance(content, str):
        return [Brought(kind="text", path=path, passages=(Passage(path=path, text=content),))]
    return [
        Brought(kind="text", path=place, passages=(Passage(path=(*place, "text"), text=part["text"]),))
        for place, part in _parts(content, path)
        if part.get("type") == kind and isinstance(part.get("text"), str)
    ]


def _named(wire: Wire, path: Path, names: Iterable[str]) -> Iterator[Passage]:
    for name in names:
        if isinstance(wire.get(name), str):
            yield Passage(path=(*path, name), text=wire[name])


def _texts(content: Any, path: Path) -> Iterator[Passage]:
    """The texts of a `content` below `path`."""
    if isinstance(content, str):
        yield Passage(path=(*path, "content"), text=content)
    for place, part in _parts(content, (*path, "content")):
        if isinstance(part.get("text"), str):
            yield Passage(path=(*place, "text"), text=part["text"])


def _items(request: Wire, name: str) -> Iterator[tuple[Path, Wire]]:
    yield from _parts(request.get(name), (name,))


def _parts(content: Any, path: Path) -> Iterator[tuple[Path, Wire]]:
    for index, part in enumerate(list_of(content)):
        if isinstance(part, dict):
            yield (*path, index), part


def _decoded(media: str, data: str) -> str | None:
    """The text that stands in base64; `None` for what is no text."""
    kind = media.partition(";")[0].strip().lower()
    if not kind.startswith("text/") and not kind.endswith(("+json", "+xml")) and kind not in _TEXT_TYPES:
        return None
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
