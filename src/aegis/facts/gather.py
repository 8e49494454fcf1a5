"""Everything that one call's arguments tell by themselves: roles, readings, and what would be done."""

from __future__ import annotations

from typing import Final

from aegis.core.outcome import Effect
from aegis.facts.analyse import Gathering, analyse, analyse_reading
from aegis.facts.effects import named_effects
from aegis.facts.extract import walk
from aegis.facts.fold import hidden_text
from aegis.facts.model import Facts, Subject, Text, Texts, View
from aegis.facts.roles import argument_of, role_of, writes_file
from aegis.facts.split import joined_views
from aegis.facts.views import may_have_views, views_of

_PLAIN: Final = 12  # letters and digits up to this length read the same everywhere
_MOST_VIEWED: Final = 400  # strings of one call whose other readings are made, the longest apart
_MOST_VIEW_CHARS: Final = 524_288
_MOST_TOGETHER: Final = 16_384  # bytes of a call that is small: looking at a larger one twice costs
_NONE: Final[frozenset[Effect]] = frozenset()


def gather(subject: Subject) -> Facts:
    """The facts of one call; bounded by `subject.limits`, and never raising on any JSON value."""
    raw, total, limits = walk(subject.arguments, subject.limits)
    tool, declared = subject.tool, subject.roles
    texts: list[Text] = []
    views: list[View] = []
    told: list[int] = []  # where the strings stand that say more than a name or a small number does
    to_file = writes_file(tool, raw)
    for path, value, is_key in raw:
        if is_key:
            texts.append(Text(path, value, True, "identifier", 0))
            continue
        role, confidence = role_of(tool, path, argument_of(path), value, declared, to_file=to_file)
        if len(value) > _PLAIN or role == "command" or not value.isalnum() or not value.isascii():
            told.append(len(texts))
        texts.append(Text(path, value, False, role, confidence))
    found = Gathering()
    viewed = view_chars = 0
    together = "\n".join([value for _, value, _ in raw]) if total <= _MOST_TOGETHER else None
    differ = together is None or may_have_views([texts[index].value for index in told], together)
    for index in told:
        if differ and viewed < _MOST_VIEWED and view_chars < _MOST_VIEW_CHARS:
            value = texts[index].value
            for reading, kinds in views_of(value):
                viewed += 1
                view_chars += len(reading)
                views.append(View(index, reading, kinds))
                analyse_reading(texts[index], reading, found)
            if not value.isascii():
                hidden = hidden_text(value)
                if hidden:
                    found.signal("text.hidden", texts[index], hidden)
        analyse(texts[index], found, tool)
    joined = joined_views(texts)
    if joined:
        views.extend(joined)
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
        texts=Texts(strings=tuple(texts), total_bytes=total, limits=limits, unresolved=subject.unresolved),
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
