"""What a client's request supplies for the model to read: documents, and what its user wrote.

A document is named by its texts: its content, its title and what is said about it. Files are read where they stand in
the request and are text; PDF files, pictures, sound, and files that are only named cannot be read here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Final

from aegis.wire.model import Passage, Path, SuppliedContent, Wire, list_of, text_of

_TEXT_TYPES: Final = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_BASE64: Final = ";base64,"
# Parts of messages that hold no text: pictures, sound, and files that lie at the provider.
_UNREAD_PARTS: Final = frozenset(
    {"image", "container_upload", "image_url", "input_audio", "input_image", "computer_screenshot"}
)


def supplied_to_messages(request: Wire) -> list[SuppliedContent]:
    """Of a request to Anthropic's messages: documents, search results, pictures and files, also those in results of
    tools, and the user's text."""
    found: list[SuppliedContent] = []
    for path, message in _items(request, "messages"):
        content = message.get("content")
        for place, block in _parts(content, (*path, "content")):
            found += _block(block, place)
            if block.get("type") == "tool_result":
                for inner, part in _parts(block.get("content"), (*place, "content")):
                    found += _block(part, inner)
        if message.get("role") == "user":
            found += _said(content, (*path, "content"), "text")
    return found


def supplied_to_chat(request: Wire) -> list[SuppliedContent]:
    """Of a request for a chat completion: files, pictures and sound, and the user's text."""
    found: list[SuppliedContent] = []
    for path, message in _items(request, "messages"):
        content = message.get("content")
        for place, part in _parts(content, (*path, "content")):
            if part.get("type") == "file":
                file = part.get("file")
                found.append(_file(file if isinstance(file, dict) else {}, (*place, "file")))
            elif part.get("type") in _UNREAD_PARTS:
                found.append(_unread(part, place))
        if message.get("role") == "user":
            found += _said(content, (*path, "content"), "text")
    return found


def supplied_to_responses(request: Wire) -> list[SuppliedContent]:
    """Of a request for a response: files and pictures, also those in results of tools and in the variables of a stored
    prompt, and the user's text."""
    found: list[SuppliedContent] = []
    prompt = request.get("prompt")
    variables = prompt.get("variables") if isinstance(prompt, dict) else None
    for name, value in (variables if isinstance(variables, dict) else {}).items():
        place: Path = ("prompt", "variables", str(name))
        if isinstance(value, str):
            found.append(_text(value, place, place))
        elif isinstance(value, dict):
            found += _part(value, place)
            if value.get("type") == "input_text" and isinstance(value.get("text"), str):
                found.append(_text(value["text"], (*place, "text"), place))
    if isinstance(request.get("input"), str):
        return found + _said(request["input"], ("input",), "input_text")
    for path, item in _items(request, "input"):
        for member in ("content", "output"):
            given = item.get(member)
            if isinstance(given, dict):  # the picture of a screen
                found += _part(given, (*path, member))
            for inner, part in _parts(given, (*path, member)):
                found += _part(part, inner)
        if item.get("role") == "user":
            found += _said(item.get("content"), (*path, "content"), "input_text")
    return found


def _block(block: Wire, path: Path) -> Iterator[SuppliedContent]:
    """What one block of Anthropic's API brings."""
    if block.get("type") == "document":
        yield _document_block(block, path)
    elif block.get("type") == "search_result":
        passages = [*_named(block, path, ("title", "source")), *_texts(block.get("content"), path)]
        yield SuppliedContent(kind="document", path=path, passages=tuple(passages))
    elif block.get("type") in _UNREAD_PARTS:
        yield _unread(block, path)


def _part(part: Wire, path: Path) -> Iterator[SuppliedContent]:
    """What one part of the responses API brings."""
    if part.get("type") == "input_file":
        yield _file(part, path)
    elif part.get("type") in _UNREAD_PARTS:
        yield _unread(part, path)


def _unread(part: Wire, path: Path) -> SuppliedContent:
    """A part that no text can be read from."""
    return SuppliedContent(kind="document", path=path, passages=(), unread=part, what=text_of(part.get("type")))


def _document_block(block: Wire, path: Path) -> SuppliedContent:
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    passages, place, kind = list(_named(block, path, ("title", "context"))), (*path, "source"), source.get("type")
    data = source.get("data")
    unread: Any = None
    if kind == "text" and isinstance(data, str):
        passages.append(Passage(path=(*place, "data"), text=data))
    elif kind == "content":
        content = source.get("content")
        passages += _texts(content, place)
        unread = [part for _, part in _parts(content, ()) if part.get("type") != "text"] or None
    else:
        decoded = _decoded(text_of(source.get("media_type")), text_of(data)) if kind == "base64" else None
        if decoded is None:
            unread = source
        else:
            passages.append(Passage(path=(*place, "data"), text=decoded, head=""))
    what = "" if unread is None else text_of(source.get("media_type")) or f"{text_of(kind)} of a document"
    return SuppliedContent(kind="document", path=path, passages=tuple(passages), unread=unread, what=what)


def _file(file: Wire, path: Path) -> SuppliedContent:
    """A file of OpenAI's APIs; its content is a `data:` URL."""
    passages = list(_named(file, path, ("filename",)))
    head, found, data = text_of(file.get("file_data")).partition(_BASE64)
    media = head.removeprefix("data:") if found and head.startswith("data:") else ""
    decoded = _decoded(media, data)
    if decoded is None:
        return SuppliedContent(kind="document", path=path, passages=tuple(passages), unread=file, what=media or "file")
    passages.append(Passage(path=(*path, "file_data"), text=decoded, head=head + _BASE64))
    return SuppliedContent(kind="document", path=path, passages=tuple(passages))


def supplied_text(text: str, place: Path, path: Path) -> SuppliedContent:
    """A text of the user at `place`, in the part at `path`."""
    return _text(text, place, path)


def supplied_file(media: str, data: str, place: Path, path: Path, part: Any) -> SuppliedContent:
    """A file in base64 at `place`; what is no text cannot be read here."""
    decoded = _decoded(media, data)
    if decoded is None:
        return unread_part(part, path, media or "file")
    passage = Passage(path=place, text=decoded, head="")
    return SuppliedContent(kind="document", path=path, passages=(passage,))


def unread_part(part: Any, path: Path, what: str) -> SuppliedContent:
    """A part that no text can be read from, with a word for it."""
    return SuppliedContent(kind="document", path=path, passages=(), unread=part, what=what)


def _said(content: Any, path: Path, kind: str) -> list[SuppliedContent]:
    if isinstance(content, str):
        return [_text(content, path, path)]
    return [
        _text(part["text"], (*place, "text"), place)
        for place, part in _parts(content, path)
        if part.get("type") == kind and isinstance(part.get("text"), str)
    ]


def _text(text: str, place: Path, path: Path) -> SuppliedContent:
    return SuppliedContent(kind="text", path=path, passages=(Passage(path=place, text=text),))


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
