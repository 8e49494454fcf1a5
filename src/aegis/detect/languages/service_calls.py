"""What a program asks of services: requests to their interfaces, and calls of their libraries with named arguments.

A call such as `drive.permissions().create(body={"type": "anyone"})` says what a tool of that name and with these
arguments would say.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from tree_sitter import Node

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import NAMED_RESTS, called_name, defaults, rest_of
from aegis.detect.languages.followed import HOLE, MAX_CHARS, UNKNOWN, FollowedValue, object_of, plain, written_out
from aegis.detect.languages.made import NAMED, named_arguments, started
from aegis.detect.languages.sweeps import ends_something, swept_by_request
from aegis.detect.languages.syntax import Called, called, member_parts, text_of, unwrapped
from aegis.detect.languages.values import NameScope
from aegis.detect.quick import remembered
from aegis.detect.resources import host_place
from aegis.detect.structured import asked, may_tell, structured_effects
from aegis.detect.tool_deeds import speaks


class ServiceRequest(NamedTuple):
    """One request: its method in capitals, its address, and what is sent as JSON or as it stands; empty for nothing."""

    method: str
    url: str
    body: str = ""


REQUESTING: Final = frozenset({
    "get", "post", "put", "patch", "delete", "request", "fetch", "axios", "got", "ajax", "send_request", "newrequest",
    "newrequestwithcontext", "deleteasync", "postasync", "putasync", "patchasync", "postasjsonasync", "putasjsonasync",
    "patchasjsonasync", "httprequestmessage", "method", "exchange", "getforobject", "postforobject", "del",
    "setrequestmethod", "urlopen", "stream", "new",
})  # fmt: skip
_METHODS: Final = ("DELETE", "PATCH", "POST", "PUT", "GET")
_BOTH: Final = Lazy(r"^(DELETE|PATCH|POST|PUT|GET) (/[^\s]{1,600})$")  # in one text: `DELETE /repos/{owner}/{repo}`
_METHOD: Final = Lazy(r"(?i)^(?:http\.?method\.?)?(delete|patch|post|put|get)$")
_ADDRESS: Final = Lazy(r"^(?:\w+://|/[\w.{$-]|VALUE/)")
_BODIES: Final = ("json", "body", "data", "payload", "content", "form_params", "form")
_SAID: Final = ("method", "type")
_PLACES: Final = ("url", "uri", "endpoint", "path")
_CLIENTS: Final = Lazy(r"(?i)http|client|session|\bapi|axios|rest|request|agent|\bgot\b|conn|octokit|guzzle")
_OFTEN: Final = frozenset({"get", "new", "request", "method", "stream", "del"})  # called for much else
_SHOWS_ADDRESS: Final = Lazy(
    r"(?i)://|url|uri|endpoint|\bbase|\bapi|/v\d|[\"'`](?:DELETE|PATCH|POST|PUT) /|`\$\{\w+\} /"
)
_LONGEST: Final = 600  # characters of an address
_BUILT: Final = Lazy(r"(?i)newBuilder\s*\(|\.uri\s*\(|HttpRequest|Request\.Builder|\.url\s*\(")
_MOST_ABOVE: Final = 6  # calls of a chain that builds one request


def made_request(parts: Called, node: Node, scope: Callable[[], NameScope]) -> ServiceRequest | None:
    """The request that a call makes; `None` where it makes none, or where its address is not known."""
    name = parts.name.lower()
    method = next((one for one in _METHODS if name.startswith(one.lower())), "DELETE" if name == "del" else "")
    url, body = "", UNKNOWN
    owner = "" if parts.receiver is None else text_of(parts.receiver)
    base = _base(owner, scope()) if owner else ""
    bare = bool(base) or _CLIENTS.search(owner[-_LONGEST_OWNER:]) is not None
    given = [(one, scope().value(one)) for one in parts.arguments[:6] if one.type not in NAMED]
    for one, value in given:
        word = _METHOD.search(value.known[0] if value.known else text_of(one)[:24])
        both = _BOTH.search(value.known[0]) if value.known and not url else None
        if word is not None and not url:
            method = word.group(1).upper()
        elif both is not None:
            method, url = both.groups()
        elif not url and (text := _address(value, bare=bare)):
            url = text
        elif value.members:
            method, url, body = _of_options(value, method, url)
        elif url and value.known:
            body = value
    for key, value in named_arguments(parts, scope()):
        if key in _SAID and value.known:
            method = value.known[0].upper()
        elif key in _PLACES and not url:
            url = _address(value, bare=True)
        elif key in _BODIES:
            body = value
    if not url and name in _BUILDING and parts.receiver is not None:
        url = _built(parts.receiver, scope)
        body = given[0][1] if given and not body.known else body
    if not url:
        return None
    if url[0] == "/":
        url = f"{base}{url}"
    sent = "" if body == UNKNOWN else written_out(body) if body.members or body.items else (*body.known, "")[0]
    return ServiceRequest(method if method in _METHODS else "POST" if sent else "GET", url, sent.replace(HOLE, "VALUE"))


# Under which name a client is made of the address that all its requests begin with.
_BASES: Final = frozenset({"baseURL", "baseUrl", "base_url", "base_uri", "prefixUrl", "prefix_url"})


def _base(client: str, scope: NameScope) -> str:
    """The address that the requests of a client begin with: `axios.create({ baseURL: ... })`; empty for none."""
    for bound in scope.bounds_of(client)[:1]:
        parts = called(bound.value)
        given = list(named_arguments(parts, scope))
        given += [pair for one in parts.arguments for pair in scope.value(one).members]
        for name, value in given:
            if name in _BASES:
                return _address(value, bare=False).rstrip("/")
    return ""


_BUILDING: Final = frozenset({"delete", "post", "put", "patch", "method"})  # what ends the chain that builds a request


def _built(receiver: Node, scope: Callable[[], NameScope]) -> str:
    """The address that the calls before the last give to what builds a request."""
    if _BUILT.search(text_of(receiver)[:_LONGEST]) is None:
        return ""
    waiting = [receiver]
    for one in waiting[:_MOST_ABOVE]:
        listed = one.child_by_field_name("arguments")
        for argument in () if listed is None else listed.named_children:
            text = _address(scope().value(argument), bare=True)
            if text:
                return text
        waiting += one.named_children[:2]
    return ""


def _of_options(value: FollowedValue, method: str, url: str) -> tuple[str, str, FollowedValue]:
    """What an object of options says of a request, or what is sent where it says nothing of it."""
    said = next((value.member(name) for name in _SAID if value.member(name).known), None)
    if said is not None and _METHOD.search(said.known[0]):
        method = said.known[0].upper()
    where = next((value.member(name) for name in _PLACES if value.member(name).known), None)
    if not url and where is not None:
        url = _address(where, bare=True)
    held = next((value.member(name) for name in _BODIES if value.member(name) != UNKNOWN), None)
    options = said is not None or held is not None or value.member("headers") != UNKNOWN
    return method, url, held or (UNKNOWN if options else value)


def _address(value: FollowedValue, *, bare: bool) -> str:
    """The address that a value is; what stands before its path may come from outside, or be left out if `bare`."""
    text = (*value.known, "")[0][:_LONGEST].replace(HOLE, "VALUE")
    if _ADDRESS.search(text) is None or "\n" in text or " " in text:
        return ""
    if text[0] == "/" and not bare:  # of a file
        return ""
    return text[text.index("/") :] if text.startswith("VALUE/") else text


class LibraryCall(NamedTuple):
    """A call of a library as a call of a tool: the words of its name, and its arguments, also as JSON."""

    tool: str
    arguments: Mapping[str, Any]
    text: str


_OBJECTS: Final = frozenset({
    "object", "dictionary", "hash", "array_creation_expression", "anonymous_object_creation_expression",
    "object_creation_expression", "composite_literal", "unary_expression", "anonymous_hash_expression",
    "as_expression", "satisfies_expression",
})  # fmt: skip
_NAMES: Final = frozenset({"identifier", "variable_name", "scalar", "shorthand_property_identifier"})
_WORD: Final = Lazy(r"[A-Za-z][A-Za-z0-9]*")
_GIVEN: Final = Lazy(r"\([^()]*\)?")
_SETTER: Final = Lazy(r"^set([A-Z]\w{2,40})$")
_LONGEST_OWNER: Final = 120
_OF_PROCESSES: Final = frozenset({"subprocess", "sp", "child_process", "cp", "asyncio", "Open3"})  # that ask nobody
_MOST_WORDS: Final = 4  # of what a method is called on


def asked_call(parts: Called, node: Node, scope: Callable[[], NameScope]) -> LibraryCall | None:
    """A method of a library that is called with named arguments; `None` for every other call."""
    if parts.receiver is None or text_of(parts.receiver) in _OF_PROCESSES:
        return None
    owner = [match.group() for match in _WORD.finditer(_GIVEN.sub("", text_of(parts.receiver)[-_LONGEST_OWNER:]))]
    tool = "_".join([*owner[-_MOST_WORDS:], parts.name])
    if not speaks(tool) and not may_tell(text_of(node)):
        return None
    members: dict[str, FollowedValue] = dict(named_arguments(parts, scope()))
    setter = _SETTER.match(parts.name)
    if setter is not None and len(parts.arguments) == 1 and not members:  # `realm.setSslRequired("none")`
        value = scope().value(parts.arguments[0])
        if value.known:
            members[setter.group(1)] = value
    for one in parts.arguments[:6]:
        if _is_object(one, scope):
            members.update(scope().value(one).members)
        elif parts.name in _PIPED and (value := scope().value(one)).items:
            members["pipeline"] = value
            members["collection"] = FollowedValue(tuple(_COLLECTION.findall(text_of(parts.receiver)[-_LONGEST_OWNER:])))
    if members.keys() <= {"where"} and not members.get("where", UNKNOWN).members:
        return None  # of nothing but a condition: `Repo.delete_all(from o in Order, where: o.state == "void")`
    if members.get("dry_run", UNKNOWN).known == ("All",) and "namespaced" in tool:
        return None  # of Kubernetes: what is only tried
    arguments = plain(FollowedValue((), (), tuple(members.items())))
    return LibraryCall(tool, arguments, json.dumps(arguments))


SENDS: Final = frozenset({"send", "public_send", "__send__"})  # of Ruby, whose names say nothing of what is called
# What chooses rows by conditions: their members are no settings.
_CHOOSES: Final = frozenset({
    "where", "filter", "filter_by", "exclude", "find_by", "find", "find_one", "findone", "findmany", "findfirst",
    "findall", "findunique", "count", "exists", "having", "reject",
})  # fmt: skip
_MOST_SITES: Final = 8  # places where one function of the text is called
_FAR: Final = 24  # nodes around a call in which the function is looked for that it stands in
_MOST_TRIED: Final = 96  # calls of one text that are read
_MOST_CHARS: Final = 65_536  # ... and their characters, as calls stand in each other
_MOST_STEPS: Final = 600  # expressions that are followed for them, whatever the rest of the text has taken
_READS: Final = ("get", "list", "describe", "find", "fetch", "read", "query", "head", "search", "new", "log", "print")
_GIT_WORDS: Final = frozenset({"push", "reset", "clean", "raw", "filter_branch", "update_ref", "reflog", "config"})


def _is_object(node: Node, scope: Callable[[], NameScope]) -> bool:
    """Whether an argument is an object, or a name that one was given to."""
    if node.type in _OBJECTS:
        return True
    return node.type in _NAMES and any(
        unwrapped(one.value).type in _OBJECTS for one in scope().bounds_of(text_of(node))
    )


# Methods of collections that are given a list of stages, and how a collection is named.
_PIPED: Final = frozenset({"aggregate", "Aggregate", "AggregateAsync"})
_COLLECTION: Final = Lazy(r"[.\[(][\"'`]?([\w$-]{1,80})[\"'`]?[\])]?$")


def _is_named(node: Node, scope: Callable[[], NameScope]) -> bool:
    """Whether a call may have arguments with names, or gives a member its value."""
    if called_name(node) in _PIPED or _SETTER.match(called_name(node)) is not None:
        return True
    listed = node.child_by_field_name("arguments")
    if listed is None:
        return False
    return any(one.type in NAMED or _is_object(one, scope) for one in map(unwrapped, listed.named_children[:12]))


@remembered
def asks_service(name: str) -> bool:
    """Whether a call of that name may ask a service for something."""
    return name.lower() in REQUESTING or ends_something(name.lower()) or speaks(name)


def _begins(node: Node) -> int:
    return node.start_byte


def as_started(line: str, parts: Called, scope: NameScope) -> str:
    """A command line with the text that its program is given to read, and with the variables that it is started with.

    The text is `input=` of Python, `{input: ...}` of JavaScript.
    """
    told = [value for name, value in named_arguments(parts, scope) if name in ("input", "stdin_data", "_in")]
    told += [scope.value(one).member("input") for one in parts.arguments[1:3] if one.type == "object"]
    fed = next((text for one in told for text in one.known), "")[:MAX_CHARS]
    return f"{_variables(line, parts, scope)}{f'printf %s {shlex.quote(fed)} | ' if fed else ''}{line}"


# Calls that write to what was started, and programs that run or keep what they read.
_FEEDS: Final = frozenset({
    "write", "puts", "print", "fwrite", "fputs", "write_all", "writeline", "writelines", "communicate", "end",
    "newreader",
})  # fmt: skip
_READS_INPUT: Final = Lazy(
    r"^'?(?:sudo\s+(?:-\S+\s+)*)?(?:\S*/)?(?:crontab\b.*\s-|at\s|batch\b|chpasswd\b|tee\s|(?:ba|z|da)?sh(?:\s+-s)?$|psql\b|mysql\b|ssh\s)"
)
_BRINGS: Final = Lazy(r"\b(?:curl|wget|fetch|aria2c)\b.*://")
_MOST_LINES: Final = 8


_VARIABLE: Final = Lazy(r"\$\{?([A-Za-z_]\w{0,40})")
_SET_BY: Final = ("os.environ[{}]", "process.env.{}", "ENV[{}]")


def _variables(line: str, parts: Called, scope: NameScope) -> str:
    """What stands before a command line where the program sets the variables that are named in it."""
    names, found = dict.fromkeys(match.group(1) for match in _VARIABLE.finditer(line)), ""
    objects = [scope.value(one) for one in parts.arguments if one.type in ("object", "hash", "dictionary")]
    objects += [one.member("env") for one in objects]
    objects += [value for name, value in named_arguments(parts, scope) if name == "env"]
    for name in (*islice(names, _MOST_VARIABLES), *_DATABASES):
        values = [*(one.member(name) for one in objects), *(scope.named(key.format(name)) for key in _SET_BY)]
        known = next((text for one in values for text in one.known if HOLE not in text), None)
        behind = " " if name in _DATABASES else "\n"
        found += "" if known is None else f"{name}={shlex.quote(known)}{behind}"
    return found


_DATABASES: Final = ("DATABASE_URL",)  # that programs read which the line does not name
_MOST_VARIABLES: Final = 8


_STARTED: Final = ("executableURL", "launchPath", "FileName", "fileName")
_ARGUMENTS: Final = ("arguments", "Arguments")


def started_by_members(owner: Node, scope: NameScope) -> Iterator[str]:
    """The command lines that the members of a value name, with arguments: `task.launchPath`, `info.FileName`."""
    name = text_of(owner)
    made = scope.value(owner)
    for program in (made.member("FileName"), *made.items[:1], made) if made.members or made.known else ():
        if program.known:
            listed = FollowedValue((), (*made.member("ArgumentList").items, *scope.named(f"{name}.ArgumentList").items))
            yield from started("split", [program], listed if listed.items else made.member("Arguments"))
            break
    for prefix in (name, f"{name}.StartInfo"):
        told = [scope.value(one.value) for member in _STARTED for one in scope.bounds_of(f"{prefix}.{member}")]
        given = [scope.value(one.value) for member in _ARGUMENTS for one in scope.bounds_of(f"{prefix}.{member}")]
        for program in told[:1]:
            yield from started("split", [program], given[0] if given else UNKNOWN)


def speaks_to_emulator(text: str) -> bool:
    """Whether each client of a cloud that a program makes asks an emulator on the machine itself."""
    clients = len(_MADE.findall(text))
    return clients > 0 and clients == len(_EMULATED.findall(text))


_MADE: Final = Lazy(r"\bboto3\.(?:client|resource)\s*\(|\.Session\(")
_EMULATED: Final = Lazy(
    r"\bboto3\.(?:client|resource)\s*\([^()#]{0,200}endpoint_url\s*=\s*['\"]https?://(?:localhost|127\.0\.0\.1)[:/'\"]"
)


class ServiceCalls:
    """What one text asks of services, call by call; `own` are the functions of the text itself."""

    def __init__(
        self, own: Mapping[str, Node], calls: Sequence[Node], scope: Callable[[], NameScope], text: Callable[[], str]
    ):
        self._own = own
        self._every = calls
        self._text = text
        self._scope = scope
        self._calls: list[tuple[bool, int, str, Node]] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._feeds: list[Node] = []  # calls that write, perhaps to what was started

    def further_lines(self, lines: Sequence[str]) -> list[str]:
        """The command lines of programs that run what they read, fed with each text that the text writes; and all of
        them as one text, where one brings a file that another may run.
        """
        readers = [line for line in lines if _READS_INPUT.match(line)][:_MOST_LINES]
        given = [one for node in self._feeds[:_MOST_LINES] for one in called(node).arguments[:2] if readers]
        texts = [text.replace(HOLE, "VALUE") for one in given for text in self._scope().value(one).known[:1]]
        several = 1 < len(lines) <= _MOST_LINES and any(map(_BRINGS.search, lines))
        fed = [f"printf %s {shlex.quote(text)} | {line}" for text in texts for line in readers]
        return [*fed, "\n".join(lines)] if several else fed

    @cached_property
    def _tells(self) -> bool:
        """Whether the text names members that may tell something."""
        return bool(may_tell(self._text()))

    def take(self, name: str, node: Node) -> str | None:
        """Take a call by the last part of its name; the command of Git that it is, if it is one."""
        last = name.lower()
        self._feeds += [node] if last in _FEEDS else []
        if last in _GIT_WORDS:
            parts = called(node)
            owner = text_of(parts.receiver)[-_LONGEST_OWNER:].lower()
            if owner.endswith(("git", "git()", "repo")):
                return self._git(parts)
        if (prepared := self._prepared(node)) is not None:
            name, last = prepared.name, prepared.name.lower()
        is_request = last in REQUESTING
        is_call = last not in SENDS and (speaks(name) or self._tells) and _is_named(node, self._scope)
        if name not in self._own and (is_request or is_call):
            owner = text_of(node)[:_LONGEST_OWNER].partition("(")[0]
            self._seen[owner, last] += 1
            self._calls.append((last.startswith(_READS), self._seen[owner, last], name, node))
        return None

    @cached_property
    def _prepares(self) -> bool:
        return "partial(" in self._text()

    def _prepared(self, node: Node) -> Called | None:
        """A call of what was made of a method and some arguments: `wipe = partial(api.delete_all, **more)`."""
        bound = self._scope().bounds_of(called_name(node)) if self._prepares else ()
        made = called(bound[0].value) if len(bound) == 1 and called_name(bound[0].value) == "partial" else None
        if made is None or not made.arguments or made.arguments[0].type != "attribute":
            return None
        receiver, method = member_parts(made.arguments[0])
        return Called(receiver, text_of(method), (*made.arguments[1:], *called(node).arguments))

    def effects(self) -> Iterator[ResourceEffect]:
        """What was asked for does: a request as a tool would make it, a call of a library as a call of a tool.

        Of many calls those that read come last, and each name has its turn: none is hidden behind others.
        """
        if self._calls:
            self._scope().renew(_MOST_STEPS)
        left = _MOST_CHARS
        for _, _, name, node in sorted(self._calls, key=itemgetter(0, 1))[:_MOST_TRIED]:
            left -= node.end_byte - node.start_byte
            if left < 0:
                break
            for given in self.given_to(node) or ({},):
                with self._scope().standing_for(given):
                    yield from self._asked(name, node)

    @cached_property
    def _sites(self) -> Mapping[str, list[Node]]:
        """Where functions of the text are called, by their names."""
        found: dict[str, list[Node]] = {}
        for node in self._every if self._own else ():
            name = called_name(node)
            if name in self._own and len(sites := found.setdefault(name, [])) < _MOST_SITES:
                sites.append(node)
        return found

    @cached_property
    def _called_here(self) -> Mapping[int, str]:
        """The functions of the text that it calls, by their nodes."""
        return {self._own[name].id: name for name in self._sites}

    def _within(self, node: Node) -> str | None:
        """The function of the text that a call stands in, where the text calls it."""
        names = self._called_here
        above = node.parent
        for _ in range(_FAR if names else 0):
            if above is None or above.id in names:
                break
            above = above.parent
        if above is not None:
            return names.get(above.id)
        around = [one for name in self._sites if (one := self._own[name]).start_byte < node.start_byte < one.end_byte]
        return names[max(around, key=_begins).id] if around else None

    def given_to(self, node: Node) -> list[Mapping[str, FollowedValue]]:
        """What the parameters of the function stand for that a call stands in, at each place where that is called."""
        name = self._within(node)
        if name is None:
            return []
        own = self._own[name]
        found: list[Mapping[str, FollowedValue]] = []
        known, rest = defaults(own), rest_of(own)
        for site in self._sites[name] if known or rest else ():
            parts, scope = called(site), self._scope()
            values = [scope.value(one) for one in parts.arguments if one.type not in NAMED]
            told = dict(zip([parameter for parameter, _ in known], values, strict=False))
            told.update(named_arguments(parts, scope))
            given = {
                parameter: told.get(parameter) or (UNKNOWN if default is None else scope.value(default))
                for parameter, default in known
            }
            further = object_of((key, value) for key, value in told.items() if key not in given)
            given = {**told, **given, rest_of(own, NAMED_RESTS): further}
            found.append({**given, rest: FollowedValue((), tuple(values[len(known) :]))})
        return found

    def _asked(self, name: str, node: Node) -> Iterator[ResourceEffect]:
        last, parts = name.lower(), self._prepared(node) or called(node)
        if last in REQUESTING and (last not in _OFTEN or _SHOWS_ADDRESS.search(text_of(node))):
            made = made_request(parts, node, self._scope)
            if made is not None:
                yield from asked(*made)
                reached = host_place(made.url) if made.body and made.method != "DELETE" else None
                if reached in ("address", "collector", "tunnel"):
                    yield ResourceEffect("send", reached, "one", (made.url,), "", made.url)
                if made.method == "DELETE" and made.url.rpartition("/")[2].startswith("VALUE"):
                    yield from swept_by_request(parts, node, made.url, self._scope())
        if (
            last not in SENDS
            and last not in _CHOOSES
            and (speaks(name) or self._tells)
            and _is_named(node, self._scope)
        ):
            call = asked_call(parts if parts.name == name else parts._replace(name=name), node, self._scope)
            if call is not None:
                for shown in structured_effects(call.tool, call.arguments, call.text, to_files=False):
                    yield shown.effect

    def _git(self, parts: Called) -> str:
        """A command of Git that a library calls by its name: `repo.git.push("--force", "origin", "main")`."""
        given = [self._scope().value(one) for one in parts.arguments if one.type not in NAMED]
        words = [text for one in given for item in (one.items or (one,)) for text in item.known[:1]]
        first = [] if parts.name == "raw" else [parts.name.replace("_", "-")]
        return shlex.join(["git", *first, *words])
