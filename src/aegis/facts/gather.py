"""Everything that one call's arguments tell by themselves: roles, readings, and what would be done."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from aegis.core.text import TextRole
from aegis.facts.analyse import Gathering, analyse, analyse_reading
from aegis.facts.batch import batches
from aegis.facts.effects import named_effects
from aegis.facts.effort import Effort
from aegis.facts.extract import walk
from aegis.facts.fold import has_reordering, hidden_text, may_be_unseen
from aegis.facts.lexicon import named_role
from aegis.facts.model import Facts, Subject, Text, Texts, View
from aegis.facts.roles import argument_of, role_of, writes_file
from aegis.facts.split import joined_view
from aegis.facts.views import MOST_DECODED, may_have_views, views_of

_PLAIN: Final = 12  # letters and digits up to this length read the same everywhere
_DATA: Final[frozenset[TextRole]] = frozenset({"content", "document"})  # roles that nothing executes
_EXECUTED: Final[frozenset[TextRole]] = frozenset({"command", "sql", "path", "url", "query_fragment", "code"})
_MOST_TOGETHER: Final = 16_384  # bytes of a call that is small: looking at a larger one twice costs
_text: Final = tuple.__new__  # makes a `Text` in half the time; a call can hold thousands


def gather(subject: Subject) -> Facts:
    """The facts of one call; bounded by `subject.limits`, and never raising on any JSON value."""
    raw, total, limits = walk(subject.arguments, subject.limits)
    tool, declared = subject.tool, subject.roles
    texts: list[Text] = []
    views: list[View] = []
    values: list[int] = []  # where the strings stand that are no keys
    told: list[int] = []  # and those that say more than a name or a small number does
    to_file = writes_file(tool, raw)
    for path, value, is_key in raw:
        if is_key:
            texts.append(_text(Text, (path, value, True, "identifier", 0)))
            continue
        role, confidence = role_of(tool, path, argument_of(path), value, declared, to_file=to_file)
        values.append(len(texts))
        if len(value) > _PLAIN or role == "command" or not value.isalnum() or not value.isascii():
            told.append(len(texts))
        texts.append(_text(Text, (path, value, False, role, confidence)))
    found = Gathering()
    together = "\n".join([value for _, value, _ in raw]) if total <= _MOST_TOGETHER else None
    differing, unseen = _differing(texts, told, together)
    if together is None:  # what may be executed is decoded first
        told.sort(key=lambda index: texts[index].role in _DATA)
    decoding = Effort(MOST_DECODED)
    for index in told:
        if found.limits:  # the call is refused, whatever else it holds
            break
        text = texts[index]
        if index in differing:
            value = text.value
            if decoding.left >= 0:
                for reading, kinds in views_of(value, decoding):
                    views.append(View(index, reading, kinds))
                    analyse_reading(text, reading, found)
                    _unseen(reading, text, found)
            if decoding.left < 0 and not found.is_told(text) and may_have_views(value):
                found.undecoded(text)
            if index in unseen:
                _unseen(value, text, found)
        analyse(text, found, tool)
    joined = joined_view(texts, values)
    if joined is not None:
        views.append(joined)
    if views and together is not None:
        together = "\n".join([together, *[view.value for view in views]])
    if not found.touched:
        return Facts(
            texts=Texts(strings=tuple(texts), total_bytes=total, limits=limits, unresolved=subject.unresolved),
            effects=named_effects(tool),
            views=tuple(views),
            together=together,
        )
    return Facts(
        texts=Texts(
            strings=tuple(texts),
            total_bytes=total,
            limits=(*limits, *found.limits),
            unresolved=subject.unresolved,
        ),
        effects=named_effects(tool) | found.effects,
        shown=found.effects,
        irreversible=found.irreversible,
        tier=found.tier,
        findings=tuple(found.notes),
        unparsed=tuple(found.unparsed),
        signals=tuple(found.signals),
        views=tuple(views),
        together=together,
    )


def executed_places(subject: Subject) -> frozenset[str]:
    """Where the strings stand that are run, opened or reached, by their role or by the name of their argument alone."""
    raw, _, _ = walk(subject.arguments, subject.limits)
    to_file = writes_file(subject.tool, raw)
    return frozenset(
        path
        for path, value, is_key in raw
        if not is_key and not _EXECUTED.isdisjoint(_roles_of(subject, path, value, to_file=to_file))
    )


def _roles_of(subject: Subject, path: str, value: str, *, to_file: bool) -> tuple[TextRole, TextRole]:
    argument = argument_of(path)
    role, _ = role_of(subject.tool, path, argument, value, subject.roles, to_file=to_file)
    return role, named_role("", argument)[0]


def _unseen(value: str, text: Text, found: Gathering) -> None:
    """Add what a text, or another reading of it, holds that nobody sees."""
    if not found.takes("text.hidden", "text.reordered") or not may_be_unseen(value):
        return
    hidden = hidden_text(value)
    if hidden:
        found.signal("text.hidden", text, hidden)
    if has_reordering(value):
        found.signal("text.reordered", text, value)


def _differing(
    texts: Sequence[Text], told: Sequence[int], together: str | None
) -> tuple[Container[int], Container[int]]:
    """Which of the `told` texts can have another reading, and which of these can hold what nobody sees.

    Asked of all at once, or of batches in a large call.
    """
    if together is not None:
        every = range(len(texts)) if may_have_views(together) else range(0)
        return every, every if may_be_unseen(together) else ()
    differing: set[int] = set()
    unseen: set[int] = set()
    for batch in batches([texts[index].value for index in told]):
        if may_have_views(batch.together):
            differing.update(told[batch.first : batch.last])
            if may_be_unseen(batch.together):
                unseen.update(told[batch.first : batch.last])
    return differing, unseen
