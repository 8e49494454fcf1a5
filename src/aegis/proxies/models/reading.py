"""What a client brings for the model to read, and the reasoning that comes back with it: judged, and on the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.config.compile_tools import READ_DOCUMENT, READ_TEXT, UNINSPECTED
from aegis.config.models import DocumentsMode, TextsMode
from aegis.core.call import ToolResult
from aegis.core.canonical import canonical, sha256
from aegis.core.names import split_selector
from aegis.core.ports import Document
from aegis.core.reasoning import Reasoning, ReasoningBlock, reasoning_of
from aegis.detect.views import may_have_views
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, log
from aegis.enforce.scope import Session
from aegis.errors import InvalidCall
from aegis.policy.policy import Policy
from aegis.proxies.models.book import Book, BookScope
from aegis.wire.model import Path, SuppliedContent, Wire, put_all
from aegis.wire.reasoning import ReasoningReader, sent_back

# What a client brings for the model to read: judged like a tool's result, once, and on the record.
#
# (1) bringing it is a call of a tool of Aegis's own, which an operator may set like any tool
# (2) its texts are that call's result: what may not be seen is replaced, or only noted, as configured
# (3) what nobody here can read is a call too, without a result: on the record it was passed uninspected, or it is
# refused

_TOOLS: Final[dict[Literal["document", "text"], str]] = {"document": READ_DOCUMENT, "text": READ_TEXT}
_MOST_WORDS: Final = 100
_UNSEEN: Final = "this was withheld: it could not be checked"


class _Asked(Struct, frozen=True, kw_only=True):
    """Something that nobody judged yet under the policy in force."""

    thing: SuppliedContent
    key: tuple[str, str]
    texts: list[str]


class Reading:
    """Judges what requests of one principal bring; `enforcer` decides for it, whatever tools its key is limited to."""

    def __init__(
        self,
        *,
        book: Book,
        enforcer: Enforcer,
        policy: Policy,
        scope: BookScope,
        documents: DocumentsMode,
        texts: TextsMode,
    ) -> None:
        self._book = book
        self._enforcer = enforcer
        self._policy = policy
        self._scope = scope
        self._session = Session(name=scope.session) if scope.session else None
        self._documents: DocumentsMode = documents
        self._texts: TextsMode = texts

    async def judged(self, request: Wire, supplied: Sequence[SuppliedContent]) -> Wire:
        """The request as a model may read it; raises `InvalidCall` (403) for what nobody here can read, where the
        configuration asks for that."""
        await self._passed_uninspected([thing for thing in supplied if thing.unread is not None])
        wanted: list[_Asked] = []
        for thing in supplied:
            if self._is_wanted(thing):
                texts = [passage.text for passage in thing.passages]
                wanted.append(_Asked(thing=thing, key=self._key(thing, texts), texts=texts))
        unseen = {one.key: one for one in wanted if self._book.seen(*one.key) is None}
        answers = await self._judge(list(unseen.values()))
        changes: list[tuple[Path, Any]] = []
        for one in wanted:
            changed, value = answers.get(one.key) or self._book.seen(*one.key) or (True, _UNSEEN)
            if changed and self._mode(one.thing) not in ("observe", "pass"):
                changes += _changes(one.thing, value)
        return put_all(request, changes) if changes else request

    async def _passed_uninspected(self, things: Sequence[SuppliedContent]) -> None:
        """Put on the record what passes without having been read; raises `InvalidCall` (403) where it may not."""
        if self._documents == "pass" or not things:
            return
        if self._documents == "readable":
            raise _unreadable("give it as text; `proxies.documents: judge` lets such documents pass")
        scope = self._scope.key("uninspected", self._policy.digest)
        named = {sha256(canonical(thing.unread)): thing.what for thing in things}
        unknown = {digest: what for digest, what in named.items() if self._book.seen(scope, digest) is None}
        attempts = [
            _attempt(UNINSPECTED, (scope, digest), {"content": digest, "what": what[:_MOST_WORDS], "inspected": False})
            for digest, what in unknown.items()
        ]
        enforced = await self._enforcer.arun(self._enforcer.enforce(attempts, self._session))
        for digest, decided in zip(unknown, enforced, strict=True):
            if decided.allowed:
                self._book.learn(scope, digest, False, None)
            elif self._documents != "observe":
                raise _unreadable(f"the gateway does not let it pass (reason: {decided.decision.reason.value})")

    def _mode(self, thing: SuppliedContent) -> str:
        return self._texts if thing.kind == "text" else self._documents

    def _is_wanted(self, thing: SuppliedContent) -> bool:
        if self._mode(thing) == "pass" or not any(passage.text for passage in thing.passages):
            return False
        return thing.kind == "document" or any(self._is_loud(passage.text) for passage in thing.passages)

    def _is_loud(self, text: str) -> bool:
        """Whether a rule could find something in a user's text, as it stands or read otherwise."""
        return may_have_views(text) or not self._policy.scanner.is_quiet(text, "result")

    def _key(self, thing: SuppliedContent, texts: list[str]) -> tuple[str, str]:
        """By what a judged thing is known again: whose conversation, which policy, which texts."""
        return self._scope.key("brought", thing.kind, self._policy.digest), sha256(canonical(texts))

    async def _judge(self, asked: Sequence[_Asked]) -> dict[tuple[str, str], tuple[bool, Any]]:
        attempts = [self._attempt(one) for one in asked]
        enforced = await self._enforcer.arun(self._enforcer.enforce(attempts, self._session))
        answers: dict[tuple[str, str], tuple[bool, Any]] = {}
        let = [(one, decided) for one, decided in zip(asked, enforced, strict=True) if decided.allowed]
        results = [ToolResult(decision_id=decided.decision.decision_id, result=one.texts) for one, decided in let]
        observed = await self._enforcer.arun(self._enforcer.observe(results))
        for (one, _), seen in zip(let, observed, strict=True):
            answers[one.key] = (seen.changed, seen.value)
            if seen.decision.receipt is not None:  # what could not be recorded is asked again the next time
                self._book.learn(*one.key, seen.changed, seen.value)
        for one, decided in zip(asked, enforced, strict=True):
            answers.setdefault(one.key, (True, _notice(decided)))
        return answers

    def _attempt(self, one: _Asked) -> Attempt:
        _, digest = one.key
        return _attempt(_TOOLS[one.thing.kind], one.key, {"content": digest, "texts": len(one.texts)})


def _attempt(selector: str, key: tuple[str, str], arguments: dict[str, Any]) -> Attempt:
    server, tool = split_selector(selector)
    call_id = f"brought.{sha256(''.join(key).encode())}"
    return Attempt(tool=tool, server=server, arguments=arguments, call_id=call_id)


def _unreadable(hint: str) -> InvalidCall:
    return InvalidCall(
        "the request holds a document that cannot be read here", code="unreadable_document", hint=hint, status=403
    )


def _changes(thing: SuppliedContent, value: Any) -> list[tuple[Path, Any]]:
    """What stands in the places of a thing's texts: each text as changed, or the notice in place of all of them."""
    given = value if isinstance(value, list) and len(value) == len(thing.passages) else [value] * len(thing.passages)
    return [
        (passage.path, passage.written(text if isinstance(text, str) else _UNSEEN))
        for passage, text in zip(thing.passages, given, strict=True)
    ]


def _notice(enforced: Enforced) -> str:
    return f"this was withheld: {enforced.decision.message} (reason: {enforced.decision.reason.value})"


# The reasoning of one conversation: what the model gave is remembered, and what comes back is held against it.
#
# Of each signed block the book keeps a digest under that of its signature. A block that comes back with the same
# signature and another text was changed; one that was never given here is strange where the conversation was seen from
# its first signed block on.

_BEGUN = "begun"


class ReasoningWatch:
    """What one request and its answer bring of reasoning."""

    def __init__(self, book: Book, scope: BookScope) -> None:
        self._book = book
        self._scope = scope
        self._reader = ReasoningReader()
        self._noted = 0
        self._changed = 0
        self._begins = False

    def heard(self, request: Wire) -> None:
        """Hold what comes back in a request against what was given."""
        signed = {block.digest: block for block in map(_named, sent_back(request)) if block.signature}
        self._begins = bool(self._scope.session) and not signed
        if not signed:
            return
        is_known = bool(self._scope.session) and self._book.signed(self._scope, _BEGUN) is not None
        for digest, block in signed.items():
            given = self._book.signed(self._scope, sha256(canonical(block.signature)))
            if given is None and not is_known:
                continue
            if given != digest:
                self._changed += 1
        if self._changed:
            log.warning("signed reasoning came back other than the model gave it: %d blocks", self._changed)

    def whole(self, answer: Wire) -> None:
        """Take a whole answer."""
        self._reader.whole(answer)

    def take(self, value: Any) -> bool:
        """Take an event of a streamed answer; whether it brought reasoning."""
        return self._reader.take(value)

    def reasoning(self) -> Reasoning | None:
        """What the calls of the answer are made for, as far as it is known now."""
        return reasoning_of(self._reader.finished(), changed=self._changed)

    def documents(self) -> Sequence[Document]:
        """What has to be durable of the blocks that came since the last time."""
        fresh = [block for block in map(_named, self._reader.blocks[self._noted :]) if block.signature]
        self._noted = len(self._reader.blocks)
        found = [
            self._book.learn_signed(self._scope, sha256(canonical(block.signature)), block.digest) for block in fresh
        ]
        if found and self._begins:
            self._begins = False
            found.append(self._book.learn_signed(self._scope, _BEGUN, _BEGUN))
        return found


def _named(block: ReasoningBlock) -> ReasoningBlock:
    """A block that can be digested, whatever it holds."""
    kept = reasoning_of([block])
    return block if kept is None else ReasoningBlock(text=kept.blocks[0].text, signature=kept.blocks[0].signature)
