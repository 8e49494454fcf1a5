"""What every wire format is translated into: calls that a model proposes, and what became of them."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct, field

from aegis.core.canonical import canonical, sha256
from aegis.core.json import parse
from aegis.errors import ForeignAnswer, InvalidCall

# A model's arguments: text that should spell a JSON object, read strictly.


def read_arguments(tool: str, text: object) -> tuple[dict[str, Any] | None, str]:
    """The object that `text` spells, or `None` and a sentence that tells the model what to mend.

    Blank text is the empty object: models spell a call without arguments so. Objects are taken as
    they are. The sentence quotes nothing of the text but the tool's name.
    """
    if isinstance(text, dict):
        return text, ""
    if not isinstance(text, str):
        return None, f"the arguments of `{tool}` are missing; call it again with a JSON object"
    if not text.strip():
        return {}, ""
    try:
        value = parse(text.encode())
    except InvalidCall as error:
        where = f" ({error.hint})" if error.hint else ""
        return None, f"the arguments of `{tool}` cannot be read: {error.message}{where}; call it again with valid JSON"
    except UnicodeEncodeError:
        return None, f"the arguments of `{tool}` hold half a character; call it again with valid JSON"
    if not isinstance(value, dict):
        return None, f"the arguments of `{tool}` are JSON but not an object; call it again with a JSON object"
    return value, ""


Wire = dict[str, Any]
Path = tuple[str | int, ...]
Values = Mapping[str, Any]

MAX_HELD_BYTES: Final = 33_554_432  # calls of one answer held back while they are decided: bounds the memory
_MARK: Final = "[aegis "
_REF_CHARS: Final = 16


class Proposed(Struct, frozen=True, kw_only=True):
    """One tool call as it stands in an answer.

    `key` is its place and unique in the answer; `call_id` is the provider's id and may be empty.
    `arguments` is `None` where they cannot be read, and `problem` then says why, for the model. `derived` says that
    the id was made of tool and arguments (`call_identities`), since the provider gives none. `unnamed` is that one for
    a call of a conversation that has an id: some clients make ids up for calls that came without.
    """

    key: str
    call_id: str
    tool: str
    arguments: dict[str, Any] | None
    server: str | None = None
    problem: str = ""
    derived: bool = False
    unnamed: str = ""


class Ruling(Struct, frozen=True, kw_only=True):
    """What becomes of one proposed call: it runs, runs with `arguments`, or is refused with `message`."""

    allowed: bool
    arguments: dict[str, Any] | None = None
    message: str = ""


class Refused(Struct, frozen=True, kw_only=True):
    """A call that was taken out of an answer: its wire form, its place among the parts, and the refusal."""

    call: Wire
    call_id: str
    index: int
    message: str


class Removal(Struct, frozen=True, kw_only=True):
    """All that was taken out of one answer (of one choice, where a format has several).

    It is found again by the keys of the calls that stayed (`call_key`), by `ref`, which the text
    carries where no call stayed, or by the anchors of the answer, where the provider keeps the
    conversation.
    """

    refused: tuple[Refused, ...]
    kept: tuple[str, ...]
    ref: str = ""
    text: str = ""


class WireSettled(Struct, frozen=True, kw_only=True):
    """An answer after its calls were ruled on."""

    answer: Wire
    removals: tuple[Removal, ...] = ()


class ToolOutput(Struct, frozen=True, kw_only=True):
    """One tool result in a request, and the pointer tokens that lead to its value.

    `shell` says that the value is a list of what commands printed, and cannot be text; `parts` that it is an
    object or a list of parts, and cannot be text either.
    """

    call_id: str
    value: Any
    path: tuple[str | int, ...]
    shell: bool = False
    parts: bool = False


class WireEvent(Struct, frozen=True, kw_only=True):
    """One server-sent event; `data` is its text. `id` and `retry` are as they came, empty where they did not."""

    data: str
    event: str = ""
    id: str = ""
    retry: str = ""


class Step(Struct, kw_only=True):
    """What an event of a stream leads to: events to pass on now, and calls to rule on before going on."""

    events: list[WireEvent] = field(default_factory=list)
    calls: list[Proposed] = field(default_factory=list)


class Alike(Struct, frozen=True, kw_only=True):
    """What a filter says of an event that it let pass: where a later one may differ, and what that one changes.

    `passed` gets the values at `gaps` by their last name. It does to the filter what reading the event would do, or
    does nothing and answers that the event has to be read.
    """

    gaps: tuple[Path, ...]
    passed: Callable[[Values], bool]


class Recall(Protocol):
    """Finds a removal again: by a kept call's key, by the reference in a text, or by an answer's anchor."""

    def by_call(self, key: str) -> Removal | None: ...

    def by_ref(self, ref: str) -> Removal | None: ...

    def by_anchor(self, anchor: str) -> Removal | None: ...


class StreamFilter(Protocol):
    """The events of one streamed answer: text passes at once, calls are held back until they are ruled on.

    `feed` and `settle` raise `ForeignAnswer` for events that are not of the format. `value` is the JSON that the
    event's data spells, where the caller has read it already.

    After a step with calls, `settle` gives the events that may go on. Calls that are still held back
    when the stream breaks off are never passed on.
    """

    @property
    def anchors(self) -> tuple[str, ...]: ...

    @property
    def removals(self) -> Sequence[Removal]: ...

    def feed(self, event: WireEvent, value: Any = None) -> Step: ...

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]: ...

    def alike(self, value: Wire) -> Alike | None:
        """What may pass after the event that spells `value`, and that just passed unchanged, without being read.

        `None` also says that the event may have changed what was alike before.
        """
        ...


class WholeDialect(Protocol):
    """One wire format, both ways. Pure: no clock, no I/O; inputs are never changed in place."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The names under which the provider keeps an answer: first its own id (it may be empty), then others."""
        ...

    def calls(self, answer: Wire) -> list[Proposed]:
        """The calls that the agent's side would execute, in order."""
        ...

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The answer without its refused calls and with changed arguments in place.

        A call without a ruling counts as refused. `structured` says that text is going to be parsed
        as data, so that the message must not stand where data is expected.
        """
        ...

    def structured(self, request: Wire) -> bool:
        """Whether the request asks for text that is going to be parsed as data."""
        ...

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The tool results that a request carries."""
        ...

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request with the refused calls of earlier answers, and their refusals, where they belong."""
        ...


class Dialect(WholeDialect, Protocol):
    """A wire format whose answers may come as server-sent events."""

    def stream(self, *, structured: bool) -> StreamFilter:
        """A filter for one streamed answer."""
        ...


class ProxyDialect(Dialect, Protocol):
    """A dialect that can also say what a request claims to have happened before."""

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls that the conversation of a request holds."""
        ...

    def answered(self, request: Wire) -> list[str]:
        """The ids of every call that a request gives a result of; `outputs` holds those with a readable value."""
        ...

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The documents and the user's texts that a request brings."""
        ...

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A wire call with other arguments."""
        ...


NO_RULING: Final = Ruling(allowed=False, message="the call was refused")


def text_of(value: object) -> str:
    """The value if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def list_of(value: object) -> list[Any]:
    """The value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


NO_NAME: Final = "the call names no tool; name the tool that is to be called"


def event_object(event: WireEvent, value: Any) -> Wire:
    """Read the object that an event spells, unless `value` is it; raises `ForeignAnswer` for anything else."""
    try:
        wire = json.loads(event.data) if value is None else value
    except ValueError as error:
        raise ForeignAnswer("an event of the stream is not JSON") from error
    if not isinstance(wire, dict):
        raise ForeignAnswer("an event of the stream is not an object")
    return wire


class HeldBytes:
    """How much of one answer is held back until its calls are ruled on."""

    def __init__(self) -> None:
        self._size = 0

    def grow(self, size: int) -> None:
        """Hold back so many more; raises `ForeignAnswer` where that is too much."""
        self._size += size
        if self._size > MAX_HELD_BYTES:
            raise ForeignAnswer("the calls of the stream are too large")


class RuledBlocks(Struct, kw_only=True):
    """The blocks of one answer after its calls were ruled on: what goes on, which calls stay, which were refused.

    `place` is where the first refused call stood among the blocks that go on.
    """

    content: list[Any] = field(default_factory=list)
    kept: list[Wire] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    place: int = 0


def ruled_blocks(
    blocks: Iterable[Any],
    rulings: Mapping[str, Ruling],
    is_call: Callable[[object], bool],
    rule: Callable[[Wire, int, Ruling], Wire | Refused],
) -> RuledBlocks:
    """Rule on the calls among the blocks of an answer, whose keys are their places."""
    ruled = RuledBlocks()
    for index, block in enumerate(blocks):
        if not is_call(block):
            ruled.content.append(block)
            continue
        one = rule(block, index, rulings.get(str(index), NO_RULING))
        if isinstance(one, Refused):
            ruled.place = ruled.place if ruled.refused else len(ruled.content)
            ruled.refused.append(one)
        else:
            ruled.kept.append(one)
            ruled.content.append(one)
    return ruled


def ended(refused: Sequence[Refused], *, text: str = "") -> tuple[str, Removal]:
    """Give what an answer says in place of its calls, none of which is left, and what was taken out of it.

    `text` is what the answer had said before.
    """
    ref = new_ref()
    said = marked("\n".join(one.message for one in refused), ref)
    return said, Removal(refused=tuple(refused), kept=(), ref=ref, text=text)


def new_ref() -> str:
    """A reference that nobody can guess: another conversation must not be able to name it."""
    return secrets.token_hex(_REF_CHARS // 2)


def marked(message: str, ref: str) -> str:
    """The text of a refusal that stands in an answer, with the reference by which it is known again."""
    return f"{message} {_MARK}{ref}]"


def said_in(recall: Recall, texts: Iterable[object]) -> Removal | None:
    """The removal that one of the texts refers to."""
    for text in texts:
        at = text.find(_MARK) if isinstance(text, str) else -1
        while isinstance(text, str) and at >= 0:
            end = at + len(_MARK) + _REF_CHARS
            found = recall.by_ref(text[at + len(_MARK) : end]) if text[end : end + 1] == "]" else None
            if found is not None:
                return found
            at = text.find(_MARK, at + len(_MARK))
    return None


class WireOnce:
    """A recall that gives each removal once: a model that repeats a reference does not repeat the call."""

    def __init__(self, recall: Recall):
        self._recall = recall
        self._given: set[int] = set()

    def by_call(self, key: str) -> Removal | None:
        return self._first(self._recall.by_call(key)) if key else None

    def by_ref(self, ref: str) -> Removal | None:
        return self._first(self._recall.by_ref(ref))

    def by_anchor(self, anchor: str) -> Removal | None:
        return self._first(self._recall.by_anchor(anchor)) if anchor else None

    def _first(self, found: Removal | None) -> Removal | None:
        if found is None or id(found) in self._given:
            return None
        self._given.add(id(found))
        return found


def call_key(call: Proposed) -> str:
    """By what a call that stayed is known again: its id, tool and arguments; empty for a call without id.

    Ids alone are not enough: some servers count them anew in every conversation.
    """
    if not call.call_id or call.arguments is None:
        return ""
    try:
        arguments = canonical(call.arguments)
    except InvalidCall:
        return ""
    return sha256(f"{call.call_id}\0{call.server}\0{call.tool}\0".encode() + arguments)


def call_identities(calls: Iterable[tuple[object, object]]) -> list[str]:
    """By what calls without ids are known in their message: tool, arguments and how many like it stand before.

    Longer than any id that a server counts; empty where the arguments cannot be digested.
    """
    found: list[str] = []
    seen: dict[str, int] = {}
    for tool, arguments in calls:
        try:
            digest = sha256(canonical([tool, arguments or {}]))
        except InvalidCall:
            found.append("")
            continue
        seen[digest] = seen.get(digest, 0) + 1
        found.append(f"{digest}.{seen[digest]}")
    return found


def framed(output: ToolOutput, value: Any) -> Any:
    """The value in the shape that the place of `output` takes."""
    if output.shell and not isinstance(value, list):
        return printed(value if isinstance(value, str) else json.dumps(value))
    if output.parts and isinstance(output.value, dict):
        return value if isinstance(value, dict) else {"result": value}
    if output.parts and isinstance(output.value, list):
        return value if isinstance(value, list) else [{"text": value if isinstance(value, str) else json.dumps(value)}]
    if isinstance(output.value, str) and not isinstance(value, str):
        return json.dumps(value)
    return value


def printed(notice: str) -> list[Any]:
    """A notice as what a command printed."""
    return [{"stdout": "", "stderr": notice, "outcome": {"type": "exit", "exit_code": 1}}]


def put_all(root: Wire, changes: Iterable[tuple[Sequence[str | int], Any]]) -> Wire:
    """A copy of `root` with a value at each path; containers off the paths are shared, each other copied once."""
    copies: dict[int, Any] = {}

    def own(container: Any) -> Any:
        copied = copies.get(id(container))
        if copied is None:
            copied = container.copy()
            copies[id(container)] = copies[id(copied)] = copied
        return copied

    changed: Wire = own(root)
    for path, value in changes:
        place: Any = changed
        for token in path[:-1]:
            place[token] = own(place[token])
            place = place[token]
        place[path[-1]] = value
    return changed


class Passage(Struct, frozen=True, kw_only=True):
    """One text of a request. `head` is set where it stands there in base64, behind this head (it may be empty)."""

    path: Path
    text: str
    head: str | None = None

    def written(self, text: str) -> str:
        """Another text as it stands in this place."""
        return text if self.head is None else self.head + base64.b64encode(text.encode()).decode()


class SuppliedContent(Struct, frozen=True, kw_only=True):
    """One document, or one text of the user. Where a model would read more than `passages`, `unread` is that part as it
    stands in the request, and `what` a word for it."""

    kind: Literal["document", "text"]
    path: Path
    passages: tuple[Passage, ...]
    unread: Any = None
    what: str = ""
