"""Everything that one call's arguments tell by themselves: roles, readings, and what would be done."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from aegis.core.outcome import Effect
from aegis.core.text import TextRole
from aegis.detect import slots
from aegis.detect.analyse import (
    EXECUTED,
    Gathering,
    analyse,
    analyse_files,
    analyse_reading,
    analyse_restated,
    analyse_run,
    analyse_written,
    deletes_by_name,
)
from aegis.detect.assembled import HINTS, LONGEST_NAME, SURE, Assembled, Whole, assembled, hints, plain_name
from aegis.detect.conditions import looks_like_sql
from aegis.detect.endpoints import only_tried
from aegis.detect.extract import Raw, walk, well_formed
from aegis.detect.facts import Effort, Facts, FactSubject, RanCommand, Text, Texts, TextView, Vector
from aegis.detect.files import Files, Written
from aegis.detect.fold import has_reordering, hidden_text, may_be_unseen
from aegis.detect.likely import shipped
from aegis.detect.operands import below
from aegis.detect.restated import MODULES, Restated, guards_by_name, of_task, only_says, restated
from aegis.detect.roles import (
    argument_of,
    drives_library,
    executes,
    is_trial,
    named_role,
    role_of,
    runs_code,
    words_of,
    writes_by_name,
    writes_file,
)
from aegis.detect.self_running import is_read_when_written
from aegis.detect.structured import deed_of, pod_commands, structured_effects
from aegis.detect.tool_files import PATCHES, added_by, objects_by, plays, puts_by_name, run_by, runs_by_name, written_by
from aegis.detect.tool_words import acts, asks
from aegis.detect.views import MAX_VIEWS, MOST_DECODED, may_have_views, views_of

# Many short strings looked at in one go: what most of them have nothing of is asked once a batch, not once each.
_SIZE: Final = 16_384  # characters of one batch; a longer string is a batch of its own


class TextBatch(NamedTuple):
    """The strings from `first` up to `last`, the latter excluded, and all of them as lines of one text."""

    first: int
    last: int
    together: str


def batches(values: Sequence[str]) -> Iterator[TextBatch]:
    """The strings of `values` in their order, cut into batches."""
    first = size = 0
    for index, value in enumerate(values):
        if index > first and size + len(value) > _SIZE:
            yield TextBatch(first, index, "\n".join(values[first:index]))
            first, size = index, 0
        size += len(value)
    if values:
        yield TextBatch(first, len(values), "\n".join(values[first:]))


# Effect classes of a call: from what its strings do first, then from the verbs in the tool's name.

_VERBS: Final[dict[Effect, frozenset[str]]] = {
    "external_send": frozenset({
        "send", "email", "mail", "post", "publish", "tweet", "share", "upload", "notify", "reply", "forward",
        "message", "webhook", "submit", "transfer", "pay", "invite", "broadcast", "sms", "push",
    }),
    "write": frozenset({
        "write", "create", "update", "delete", "remove", "insert", "add", "edit", "set", "save", "put", "modify",
        "move", "rename", "append", "cancel", "book", "order", "schedule", "replace", "drop", "patch", "purchase",
    }),
    "exec": frozenset({"run", "execute", "exec", "eval", "bash", "shell", "terminal", "python", "command",
        "invoke", "launch"}),
    "network": frozenset({"fetch", "download", "http", "browse", "crawl", "request", "scrape", "url", "web",
        "curl", "ping"}),
    "read": frozenset({
        "read", "get", "list", "search", "find", "lookup", "query", "show", "view", "check", "describe", "count",
        "load", "select", "retrieve", "calculate", "open", "fetch",
    }),
}  # fmt: skip


_OF_PLACE: Final = frozenset({  # where, and not what
    "shell.persists", "write hook one", "write library one", "write startup one", "write trust one",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def named_effects(tool: str) -> frozenset[Effect]:
    """The effects that the verbs of a tool's name speak of; empty where there is none."""
    words = set(words_of(tool))
    return frozenset(effect for effect, verbs in _VERBS.items() if words & verbs)


# Values that only together make an attack: neighbours read in one, as the tool will put them together.

_MOST_PARTS: Final = 12
_LONGEST_PART: Final = 511
_MOST_CHARS: Final = 4_096
_LEAST_CHARS: Final = 4
DECLARED: Final = 100  # how sure a role is that was declared
JOINED: Final = "joined"
SEAM: Final = "\x1e"  # between the two ways of joining: a match across it is none


def joined_view(texts: list[Text], values: list[int]) -> TextView | None:
    """One reading of all short values of a call together, where there are two to twelve of them.

    `values` says which of `texts` are values. The reading counts as a view of the last short one, and has the
    kind `joined`. What is declared to be a document is put together with nothing.
    """
    last = 0
    parts: list[str] = []
    for index in values:
        value = texts[index].value
        if len(value) <= _LONGEST_PART and (texts[index].role != "document" or texts[index].confidence != DECLARED):
            if len(parts) == _MOST_PARTS:
                return None
            parts.append(value)
            last = index
    together = "".join(parts)
    if len(parts) < 2 or not _LEAST_CHARS <= len(together) <= _MOST_CHARS:
        return None
    # What is put together without blanks comes second: a line that begins with it seldom begins with a command.
    return TextView(last, f"{' '.join(parts)}\n{SEAM}\n{together}", (JOINED,))


ASSEMBLED: Final = "assembled"
_NOTHING: Final = Assembled()
_JOINED: Final[frozenset[TextRole]] = frozenset({"command", "sql", "query_fragment", "code", "path", "url"})
_PLAIN: Final = 12  # letters and digits up to this length read the same everywhere
_RUNS: Final[frozenset[TextRole]] = frozenset({"command", "sql", "code"})  # say it themselves
_MOST_STARTED: Final = 16  # commands of containers that are read
_MOST_WEIGHED: Final = 8_192  # characters of a call that says what it does by its members
_DATA: Final[frozenset[TextRole]] = frozenset({"content", "document"})  # roles that nothing executes
_EXECUTED: Final[frozenset[TextRole]] = frozenset({"command", "sql", "path", "url", "query_fragment", "code"})
_MOST_TOGETHER: Final = 16_384  # bytes of a call that is small: looking at a larger one twice costs
_VALUE: Final = itemgetter(1)  # of a raw string
_text: Final = tuple.__new__  # makes a `Text` in half the time; a call can hold thousands


class _Strings(NamedTuple):
    """The strings of a call, each with its role, and the name of the argument that it is in or of (of keys nothing).

    `values` say where those stand that are no keys, `told` where those that say more than a name or a small number;
    `parts` are strings in lists, of which something may be put together, and `hinted` that a key says so; `to_files`
    that the call writes files. `runner` is the tool by which texts are read, and `runners` those of single ones.
    """

    texts: list[Text]
    arguments: list[str]
    values: list[int]
    told: list[int]
    parts: dict[str, TextRole]
    hinted: bool
    to_files: bool
    runner: str
    runners: dict[str, str]


def _strings(subject: FactSubject, raw: Sequence[Raw]) -> _Strings:
    tool, declared = subject.tool, subject.roles
    runs = runs_code(tool) or executes(tool) or drives_library(tool)
    chosen, runner = slots.spoken(subject.arguments) if runs else ("", "")
    may_hold = not runner and (bool(runs) or not slots.LANGUAGES.isdisjoint(subject.arguments))
    named, meant = slots.program_in(tool, subject.arguments, runs=bool(runs)) if may_hold else ("", "")
    runners = {f"/{named}": meant} if named else {}  # of this argument alone: others are what they were
    tool = runner or tool
    texts: list[Text] = []
    arguments: list[str] = []
    values: list[int] = []
    told: list[int] = []
    parts: dict[str, TextRole] = {}
    above = named = ""  # the list that the last string stood in, and the name of that: most follow each other
    hinted = False
    to_files = writes_by_name(subject.tool)
    to_file = to_files and writes_file(subject.tool, raw)
    untold = runs and (not to_files or runs_code(tool)) and not slots.names_program(tool, raw)
    for path, value, is_key in raw:
        if is_key:
            hinted = hinted or (hints(value) if len(value) <= LONGEST_NAME else plain_name(value) in HINTS)
            texts.append(
                _text(Text, (path, value, True, "identifier" if value[:1] != "$" else slots.key_role(path, value), 0))
            )
            arguments.append("")
            continue
        cut = path.rfind("/")
        argument = path[cut + 1 :]
        if not argument or argument.isdigit():
            if path[:cut] != above:
                above, named = path[:cut], argument_of(path)
            argument = named
        argument = "code" if path in runners else argument
        arguments.append(argument)
        if path == f"/{chosen}":  # what says in which language the rest is read is no part of it
            texts.append(_text(Text, (path, value, False, "identifier", 50)))
            continue
        may_tell = argument.lower() in slots.PLACES or "." in argument or "/scripts/" in path
        placed = slots.role_at(tool, path, argument, value) if may_tell and not declared else None
        role, confidence = placed or role_of(
            runners.get(path, tool), path, argument, value, declared, to_file=to_file and path not in runners
        )
        if "(" in value and is_trial(tool, role, value, raw):
            role, confidence = "document", 50
        program = slots.may_run(tool, argument) if untold and not to_file and confidence < DECLARED else None
        if program is not None and (looks_like_sql(value) if program == "sql" else acts(tool)):
            role, confidence = program, EXECUTED
        if role in _JOINED and path[-1].isdigit():
            parts[path] = role
        if placed is None or role != "identifier":
            values.append(len(texts))
        if len(value) > _PLAIN or role == "command" or not value.isalnum() or not value.isascii():
            told.append(len(texts))
        texts.append(_text(Text, (path, value, False, role, confidence)))
        to_files = to_files or (role == "document" and value.startswith(PATCHES))
    return _Strings(texts, arguments, values, told, parts, hinted, to_files, tool, runners)


def _brief(raw: Sequence[tuple[str, str, bool]], filed: bool) -> Iterator[str]:
    """The strings of a large call that say what it does: of what is only written to a file, the short ones."""
    return (one[1] for one in raw if not filed or len(one[1]) <= _PLAIN_TEXT)


_PLAIN_TEXT: Final = 4_096  # characters of a string that can name, select or switch something


def gather(subject: FactSubject) -> Facts:
    """The facts of one call; bounded by `subject.limits`, and never raising on any JSON value."""
    raw, total, limits = walk(subject.arguments, subject.limits)
    tool = subject.tool
    texts, arguments, values, told, parts, hinted, to_files, runner, runners = _strings(subject, raw)
    views: list[TextView] = []
    found = Gathering(None if subject.files is None else subject.files.copy())
    together = "\n".join(map(_VALUE, raw)) if total <= _MOST_TOGETHER else None
    # Half of a character stands in the texts as a question mark.
    is_plain = together is not None and together.isascii() and "?" not in together
    given = subject.arguments if is_plain or limits else well_formed(subject.arguments)
    made = assembled(tool, given, parts) if (parts or hinted) and not limits else _NOTHING
    if made.words:
        _lay_out(texts, made.words)
    # Asked of all texts at once, or in a large call of batches: which can have another reading, and which of these
    # can hold what nobody sees.
    differing: Container[int]
    unseen: Container[int] = ()
    if together is None:
        differing, unseen = _differing(texts, told)
        told.sort(key=lambda index: texts[index].role in _DATA)  # what may be executed is decoded first
    else:
        every = range(len(texts))
        differing = every if may_have_views(together) else ()
        if differing and may_be_unseen(together):
            unseen = every
    decoding = Effort(MOST_DECODED)
    batch: list[Text] = []
    for index in told:
        if found.limits:  # the call is refused, whatever else it holds
            break
        text = texts[index]
        if index in differing:
            value = text.value
            if decoding.left >= 0:
                for reading, kinds in views_of(value, decoding):
                    views.append(TextView(index, reading, kinds))
                    analyse_reading(text, reading, found)
                    _unseen(reading, text, found)
            if decoding.left < 0 and not found.is_told(text) and may_have_views(value):
                found.undecoded(text)
            if index in unseen:
                _unseen(value, text, found)
        kind = slots.slot_type(arguments[index])
        odd = "" if kind is None else slots.misfit(kind, text.value)
        if odd:
            found.signal(f"slot.{odd}", text, text.value)
        analyse(text, found, runners.get(text.path, runner))
        if text.role == "sql" and text.path[-1:].isdigit():
            batch.append(text)
        if text.role == "command" and slots.runs_language(runner):  # a line of a shell, or of the language
            analyse(text._replace(role="code", confidence=EXECUTED), found, runner)
            views.append(TextView(index, text.value, (ASSEMBLED,), "code"))
    if len(batch) > 1:  # statements one after another, of one session
        analyse(batch[0]._replace(value=";\n".join(one.value for one in batch)), found, runner)
    for whole in made.wholes:
        _whole(whole, texts, views, found, decoding, tool)
    own = written_by(tool, texts, to_files=to_files) if to_files or "." in "".join(arguments) else []
    if together is None or "hosts:" in together or "apiVersion:" in together:
        own = plays(tool, texts) or own
    if not limits and (added := added_by(tool)):
        own += objects_by(added, given, texts)
    found.written.extend(own)
    may_try = together is None or "dry" in together or "Dry" in together
    if not limits and not (may_try and only_tried(given, subject.schema)):
        deed = deed_of(tool, given)
        commands = restated(tool, given, deed)
        for said in commands if MODULES.isdisjoint(given) else [*commands, *of_task(given)]:
            analyse_restated(said, found)
        filed = to_files and any(text.role == "path" for text in texts)
        if together is not None and "ontainers" in together and not filed:
            for command in islice(pod_commands(given), _MOST_STARTED):
                analyse_restated(Restated(command, "command"), found)
        strings = together if together is not None else "\n".join(_brief(raw, filed))
        for member in structured_effects(tool, given, strings, to_files=filed, deed=deed):
            found.effect(member.effect, Text(member.pointer, member.effect.evidence))
        roles = {text.role for text in texts}
        is_text = filed or not _RUNS.isdisjoint(roles)
        is_brief = not is_text and total <= _MOST_WEIGHED and "document" not in roles and acts(deed)
        if is_brief or (is_text and not asks(deed)):
            likely = shipped().likely(tool, given)
            if likely is not None and not only_says(given):
                found.signal("call.likely", Text(likely.pointer, likely.shown), likely.shown)
    if found.written:
        indexes = {text.path: index for index, text in enumerate(texts)}
        for path, role, running in analyse_written(found, texts)[:MAX_VIEWS]:
            if path in indexes:
                views.append(TextView(indexes[path], running, ("file",), role))
        known = {one.value for one in texts}  # which were read as they stand
        for put in islice(dict.fromkeys(one.flow.text for one in found.written), _MOST_STARTED):
            for member in (
                () if put in known else structured_effects("write_file", {"content": put}, put, to_files=True)
            ):
                found.effect(member.effect, Text("", member.effect.evidence))
    files = found.written or deletes_by_name(tool) or puts_by_name(tool) or guards_by_name(tool)
    unread = analyse_files(tool, texts, found, {one.path for one in own}) if files else ()
    if found.written:
        read = {one.path for one in found.written if is_read_when_written(one)}
        # What will run of them was read: that a file is one of these says nothing more.
        found.signals = [one for one in found.signals if one.fact not in _OF_PLACE or one.evidence not in read]
    if runs_by_name(tool):
        for program in run_by(tool, texts):
            analyse_run(program, found)
    if found.read:
        views.extend(_programs(texts, found.read))
    if len(values) > 1 and not made.wholes:  # a command in words is read as one already
        joined = joined_view(texts, values)
        if joined is not None:
            views.append(joined)
    if views and together is not None:
        together = "\n".join([together, *[view.value for view in views]])
    vectors = tuple([Vector(whole.path, whole.words) for whole in made.wholes if whole.words]) if made.wholes else ()
    if not found.touched:
        return Facts(
            texts=Texts(strings=tuple(texts), total_bytes=total, limits=limits, unresolved=subject.unresolved),
            effects=named_effects(tool),
            views=tuple(views),
            together=together,
            vectors=vectors,
            written=tuple(found.written),
            unread=unread,
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
        ran=tuple([one._replace(folder=_folder(one, made)) for one in found.ran] if made.folders else found.ran),
        vectors=vectors,
        runs=tuple(dict.fromkeys(found.runs)),
        written=tuple(found.written),
        resource_effects=tuple(found.resource_effects),
        unread=unread,
    )


def _lay_out(texts: list[Text], words: Collection[str]) -> None:
    """Read the strings that are words of a command as what they are: the command is read as a whole."""
    for index, text in enumerate(texts):
        if not text.is_key and (text.path in words or text.path.rpartition("/")[0] in words):
            texts[index] = _text(Text, (text.path, text.value, False, "document", SURE))


def _whole(
    whole: Whole, texts: list[Text], views: list[TextView], found: Gathering, decoding: Effort, tool: str
) -> None:
    """Read a text that was put together like any other, in every encoding."""
    # Its words, or keys; a name with half of a character stands elsewhere.
    source = next((index for index, text in enumerate(texts) if text.path.startswith(whole.path)), 0)
    told = texts[source]
    text = Text(whole.path, whole.value, False, whole.role, told.confidence if told.role == whole.role else SURE)
    if not decoding.take(len(whole.value)):
        found.undecoded(text)
        return
    views.append(TextView(source, whole.value, (ASSEMBLED,), whole.role))
    if may_have_views(whole.value):
        readings = [(reading, kinds) for reading, kinds in views_of(whole.value, decoding)]
        if decoding.left < 0:
            found.undecoded(text)
        views.extend(TextView(source, reading, (ASSEMBLED, *kinds), whole.role) for reading, kinds in readings)
        for reading, _ in readings:
            analyse_reading(text, reading, found)
    analyse(text, found, tool)


def _folder(one: RanCommand, made: Assembled) -> str:
    """The folder that a command runs in: what its text says, below what stands beside the text."""
    path = one.path
    beside = made.folders.get(path) or made.folders.get(path.rpartition("/")[0], "")
    return below(beside, one.folder) if one.folder else beside


def _programs(texts: Sequence[Text], read: Sequence[tuple[str, str]]) -> Iterator[TextView]:
    """The programs that a call runs which none of its texts shows as they are, for whoever reads texts."""
    places: dict[str, int] = {}
    for place, text in enumerate(texts):
        if not text.is_key:
            places.setdefault(text.path.rpartition("/")[0], place)  # a command that was put together from a list
            places[text.path] = place
    seen: set[tuple[str, str]] = set()
    for path, program in read:
        index = places.get(path)
        if index is not None and (path, program) not in seen and program.strip() not in texts[index].value:
            seen.add((path, program))
            if len(seen) <= MAX_VIEWS:
                yield TextView(index, program, ("file",))


def writes(subject: FactSubject, files: Files, effort: Effort) -> tuple[Written, ...]:
    """The files that a call writes, and what it writes to them, upon what `files` held before; as far as `effort` goes.

    The same as `gather` says of the call, for a fraction of its cost.
    """
    raw, _, _ = walk(subject.arguments, subject.limits)
    texts, _, _, _, parts, hinted, to_files, runner, runners = _strings(subject, raw)
    found = Gathering(files.copy(), effort)
    made = assembled(subject.tool, subject.arguments, parts) if parts or hinted else _NOTHING
    _lay_out(texts, made.words)
    wholes = [Text(whole.path, whole.value, False, whole.role, SURE) for whole in made.wholes]
    for text in (*texts, *wholes):
        if text.role == "command":
            analyse(text, found, runners.get(text.path, runner))
    if to_files:
        found.written.extend(written_by(subject.tool, texts, to_files=True))
    return tuple(found.written)


def executed_places(subject: FactSubject) -> frozenset[str]:
    """Where the strings stand that are run, opened or reached, by their role or by the name of their argument alone."""
    raw, _, _ = walk(subject.arguments, subject.limits)
    texts, arguments, *_ = _strings(subject, raw)
    return frozenset(
        text.path
        for text, argument in zip(texts, arguments, strict=True)
        if not text.is_key and not _EXECUTED.isdisjoint({text.role, named_role("", argument)[0]})
    )


def _unseen(value: str, text: Text, found: Gathering) -> None:
    """Add what a text, or another reading of it, holds that nobody sees."""
    if not found.takes("text.hidden", "text.reordered") or not may_be_unseen(value):
        return
    hidden = hidden_text(value)
    if hidden:
        found.signal("text.hidden", text, hidden)
    if has_reordering(value):
        found.signal("text.reordered", text, value)


def _differing(texts: Sequence[Text], told: Sequence[int]) -> tuple[Container[int], Container[int]]:
    """Which of the `told` texts can have another reading, and which of these can hold what nobody sees."""
    differing: set[int] = set()
    unseen: set[int] = set()
    for batch in batches([texts[index].value for index in told]):
        if may_have_views(batch.together):
            differing.update(told[batch.first : batch.last])
            if may_be_unseen(batch.together):
                unseen.update(told[batch.first : batch.last])
    return differing, unseen
