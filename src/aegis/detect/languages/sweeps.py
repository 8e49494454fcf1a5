"""What a program does to all that a service lists: `for one in client.list_users(): client.delete_user(one.id)`.

No library need be known for it. One call lists, another ends what its argument or its owner names, it is made for each
item, and nothing between them picks some of the items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tree_sitter import Node

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import BoundName
from aegis.detect.languages.requests import LONGEST_CHAIN, MOST_NAMES, is_from_afar, names_in
from aegis.detect.languages.syntax import Called, text_of
from aegis.detect.languages.values import NameScope
from aegis.detect.quick import remembered

_ASKS: Final = frozenset({
    "if_statement", "if", "elif_clause", "else_clause", "conditional_expression", "ternary_expression", "unless",
    "switch_statement", "switch_section", "switch_case", "case_clause", "match_statement", "if_modifier", "case",
    "unless_modifier", "boolean_operator", "if_clause", "expression_switch_statement", "conditional",
})  # fmt: skip
_LOOPS: Final = ("for", "while", "generator", "list_comp", "set_comp")
_FAR: Final = 16  # nodes around a call that are looked at
_LEAVES: Final = (b"continue", b"next ", b"return")


# A condition that picks some by what they are called or equal, and one that only leaves some out.
_PICKS: Final = Lazy(rb"[\"'`]|==|\bin\b|\bmatch|\bsearch")
_UNLIKE: Final = Lazy(rb"!=|\bnot\s+(?:\w+\s+)?in\b|\bnot\s+[\w.]+\.\w*(?:with|match)|!\s*[\w.]+\.\w+\(|\bunless\b")
# A state that is asked for which nearly all have that are worth something.
_OF_USE: Final = Lazy(
    rb"(?i)\w*stat(?:us|e)\w*\s*(?:[!=]==?)\s*[\"'](?:active|enabled|running|live|open|succeeded|paid|in[_-]?use|available|ready)[\"']"
)
_OMITS: Final = Lazy(rb"!=|!==|\bnot\b|\bunless\b|![\w(]")


def is_conditional(node: Node) -> bool:
    """Whether a condition between a call and the loop around it picks what the call is made for.

    `if p.name() == "vite": p.kill()` does; `if p.pid != os.getpid()` only leaves one out, and so does a `continue`
    where something is equal.
    """
    whole = node.parent
    for _ in range(_FAR):
        if whole is None:
            return False
        before = _OF_USE.sub(b"", (whole.text or b"")[: node.start_byte - whole.start_byte])
        if whole.type in _ASKS and _PICKS.search(before) and not _OMITS.search(before):
            return True
        if whole.type.startswith(_LOOPS):
            if any(word in before for word in _LEAVES):
                return _UNLIKE.search(before) is not None
            asked = [
                one.text or b"" for one in whole.named_children if one.type in _ASKS and one.end_byte > node.end_byte
            ]
            return any(_PICKS.search(one) and not _OMITS.search(one) for one in asked)
        whole = whole.parent
    return False


_HOPS: Final = 3  # names between an item and the call that lists it
_SHOWN: Final = 80

# What a call ends, by the words that its name begins with.
_ENDED: Final = Lazy(
    r"^(?:(?:[bB]egin|[eE]xecute|[sS]tart|[rR]ecursive|[bB]ulk|[bB]atch|[hH]ard|[fF]orce|[aA]dmin|[pP]ermanently)_?)?"
    r"(?:(?P<deletes>[dD]elete|dbRemoveTable|del|[uU]nlink|[dD]estroy|[tT]erminate|[pP]urge|[dD]rop|[rR]emove_?(?:[oO]bject|[vV]olume|[bB]ucket|[bB]lob|[rR]epo|[pP]roject|[dD]atabase|[iI]ndex))|"
    r"(?P<disables>[dD]eactivate|[dD]isable|[sS]uspend|[dD]eleteUsers?)|(?P<unproves>[uU]nenroll|[rR]eset_?[fF]actors?)|(?P<undoes>[cC]ancel|[rR]efund|[rR]evoke))"
    r"(?:[_A-Z]\w*|s)?$|^(?:admin_)?(?:users?_|members?_)?(?P<removes>[rR]emove|kick|deprovision|ban)"
    r"(?:_?(?:[uU]sers?|[mM]embers?|[cC]ollaborators?|[oO]wners?|[dD]evices?|[cC]ustomers?|[aA]ccounts?))?(?:_?[fF]rom\w*)?$"
)
_BEGINNINGS: Final = (
    "begin", "execute", "del", "store", "uid", "trash", "add_flags", "addflags", "messageflags", "unlink",
    "destroy", "terminate", "purge", "deactivate", "disable", "suspend", "cancel", "refund",
    "revoke", "create", "recursive", "bulk", "batch", "hard", "force", "admin", "permanently", "drop", "remove",
    "kick", "deprovision", "ban", "admin_", "users_", "user_", "member", "start", "dbremovetable",
    "unenroll", "resetfactor", "reset_factor",
)  # fmt: skip
_UNDONE: Final = Lazy(r"(?i)\brefunds?\.create$|\bcredit_?notes?\.create$")
# A call that lists what a service has.
_LISTED: Final = Lazy(
    r"\bdbListTables\s*\(|\bcat\(\)\.indices\(\)|\bGetPropertiesOf\w{2,30}\s*\(|\bContainerList\s*\(|"
    r"\b[A-Z]\w{2,40}(?:::|\.)(?:all|find_each|unscoped|cursor)\b|\.objects\.all\(\)|\.collection\([^()]{1,60}\)\.(?:get|stream|listDocuments|list_documents)\(\)|"
    r"\b(?:users|members|accounts|customers|channels|repos|projects|teams)_list\s*\(|"
    r"\.(?:scan_?[iI]ter(?:ator)?|scanStream)\(\s*(?:[\"'`]\*[\"'`]|\{?\s*,|\{?\s*(?:match|MATCH|pattern)\s*[:=]\s*[\"'`]\*[\"'`]|\{?\s*(?:count|COUNT)|\{?\s*\}?\s*[,)])|\.keys\(\s*[\"'`]\*[\"'`]|"
    r"(?:^|[.>:\s])(?:[lL]ist|[gG]et_?[aA]ll|[dD]escribe|[fF]etch_?[aA]ll|[fF]ind_?[aA]ll|[gG]et\w{1,24}List)(?:[_A-Z]\w*|s)?\s*\(|"
    r"\.(?:auto_paging_iter|autoPagingIterator|autoPagingEach|autoPagingToArray|paginate(?:\.iterator)?)\s*\(|"
    r"\.(?:buckets|object_versions|instances|volumes|snapshots|clusters|accounts|users|tenants|databases|projects|"
    r"repositories|repos|zones|domains|vaults|tables)(?:\(\))?(?:\.(?:all|each|pages)\b(?:\(\))?)?$"
)
# What picks some of it, what picks all that is worth something, and what is made to be ended.
_ALL_OF_USE: Final = Lazy(
    r"(?i)\b(?:match|pattern)[\"']?\s*[:=]\s*[\"'`]\*[\"'`]|\bstatus(?:es)?[\"']?\s*[:=(]\s*\[?[\"'](?:active|all|enabled|running|live|open|succeeded|paid|in[_-]?use)[\"']\]?"
)
_PICKED: Final = Lazy(
    r"(?i)filter|prefix|query|\bq\b|where|tag|label|status|state|search|since|before|until|older|newer|created|expired|stale|"
    r"limit\W+1\b|max_?results?\W+1\b|page_?size\W+1\b|startswith|endswith|\bname\b|pattern|match|selector"
)
_IN_TIME: Final = Lazy(
    r"(?i)\bcreated(?:_?at)?[\"']?\s*[:=]\s*(?:\{[^{}]{0,60}\}|[\w.\"'-]{1,40})"
)  # no reason for a refund
_SEVERAL: Final = Lazy(r"(?:[a-rt-z]s|[mM]any|[aA]ll|[bB]atch)$")  # what is asked to end several at once
# Conditions that only leave some out.
_LEFT_OUT: Final = Lazy(r"\bif\s+not\s+[^\[\]]{1,80}\]?|\bif\s+\w+\s*!=\s*[\"'\w]{1,40}")
_SMALL_THINGS: Final = Lazy(
    r"(?i)te?mp|test|mock|cache|session|cookie|notification|bookmark|draft|preview|listener|handler|breakpoint|marker|"
    r"listOf\b|element|child|rows?\b|cells?\b|shapes?\b|slides?\b|annotation|comment|reaction|message|timer|watch|job|task|run|artifact|webhook|dir\b|files?\b|"
    r"listdir|readdir|list_?files|listFiles"
)


@remembered
def ends_something(name: str) -> bool:
    """Whether a call of a name in small letters may end something."""
    return name.startswith(_BEGINNINGS)


def sweeps(names: Sequence[str], parts: Called, scope: NameScope) -> Iterator[ResourceEffect]:
    """What a call by those names, the fullest first, ends of all that a service lists.

    Nothing where it is not made for each of it, and where it is a function of the program itself.
    """
    kind = _ENDED.search(parts.name.rstrip("!"))
    name = names[0] if names else ""
    if kind is None or "message" in name:
        yield from _empties_mailbox(parts, scope)
    audited = _of_audit(parts, scope) if kind is not None and kind.group("deletes") is not None else ""
    if audited:
        yield ResourceEffect("delete", "log", "many", (parts.name,), "", audited[:_SHOWN])
    if (
        (parts.receiver is None and name != "dbremovetable")
        or (kind is None and _UNDONE.search(name) is None)
        or _SMALL_THINGS.search(name) is not None
    ):
        return
    listed = next(_listed(parts, scope), "") or _below(parts)
    if listed:
        is_deleted = kind is not None and kind.group("deletes") is not None
        is_disabled = kind is not None and any(map(kind.group, ("disables", "removes", "unproves")))
        if is_deleted:
            yield ResourceEffect("delete", "cloud-resource", "all", (parts.name,), "", listed[:_SHOWN])
        elif is_disabled:
            yield ResourceEffect("disable", "account", "all", (parts.name,), "", listed[:_SHOWN])
        else:
            yield ResourceEffect("write", "record", "all", (parts.name,), "", listed[:_SHOWN])


def swept_by_request(parts: Called, node: Node, url: str, scope: NameScope) -> Iterator[ResourceEffect]:
    """What a request for the deletion of one thing ends that is made for each of all that a service lists."""
    listed = next(_listed(parts, scope, _ANSWERED), "")
    far = "://" not in url or is_from_afar(url)
    if listed and far and _SMALL_THINGS.search(url) is None and not is_conditional(node):
        yield ResourceEffect("delete", "cloud-resource", "all", (url[:_SHOWN],), "", listed[:_SHOWN])


# Every key of a store, and every letter of a mailbox.
_ALL_KEYS: Final = Lazy(r"\.keys\(\s*[\"'`]\*[\"'`]\s*\)|\bscan_?[iI]ter(?:ator)?\(\s*(?:[\"'`]\*[\"'`])?\s*\)")
_ALL_MAIL: Final = Lazy(
    r"[\"']1:\*[\"']|\bsearch\(\s*(?:None\s*,\s*)?[\[{]?\s*[\"'](?:ALL|1:\*)[\"']|\bsearch\(\s*\{\s*all:\s*true|\bmessages\(\)\s*\.list\(\s*userId\s*=\s*[\"']me[\"']\s*\)"
)
_MARKED: Final = Lazy(r"(?i)\bdeleted\b|\bTRASH\b")


def _empties_mailbox(parts: Called, scope: NameScope) -> Iterator[ResourceEffect]:
    """What a call deletes, or marks as deleted, of every letter that a mailbox has."""
    given = " ".join(text_of(one)[:LONGEST_CHAIN] for one in parts.arguments[:MOST_NAMES])
    if not (_ENDED.search(parts.name) or parts.name == "trash" or _MARKED.search(given)):
        return
    asked = [_source(one, scope) for name in names_in([given])[:MOST_NAMES] for one in scope.bounds_of(name)[:1]]
    if any(map(_ALL_MAIL.search, (given, *asked))):
        yield ResourceEffect("delete", "record", "all", (parts.name,), "", f"{parts.name} {given}"[:_SHOWN])


def _below(parts: Called) -> str:
    """A collection that goes with all below it, in a program that speaks to no emulator."""
    node = parts.arguments[0] if parts.arguments else None
    text = text_of(node)[:LONGEST_CHAIN]
    if node is None or parts.name not in _RECURSIVE or ".collection" not in text:
        return ""
    for _ in range(_DEEPEST):
        node = node.parent or node
    return "" if _EMULATED.search(node.text or b"") else text


_RECURSIVE: Final = ("recursiveDelete", "recursive_delete")
_DEEPEST: Final = 48  # nodes up to a whole program
_EMULATED: Final = Lazy(rb"(?i)emulator|project_?id[\"']?\s*[:=]\s*[\"']demo-")


_AUDIT: Final = Lazy(r"(?i)\baudit_?(?:event|log|entr(?:y|ies)|record|trail)s?\b|PaperTrail::V|\bactivity_?logs?\b")


def _of_audit(parts: Called, scope: NameScope) -> str:
    """What rows of an audit a call deletes, as they are asked for: `session.query(AuditEvent).filter(...).delete()`."""
    owner = text_of(parts.receiver)[:LONGEST_CHAIN]
    asked = (text_of(one.value)[:LONGEST_CHAIN] for name in names_in([owner])[:2] for one in scope.bounds_of(name)[:1])
    return next((text for text in (owner, *asked) if _AUDIT.search(text) is not None), "")


# The answer to a request.
_ANSWERED: Final = Lazy(r"\.text\.split|\.json\(|\.data\b|json\.loads|JSON\.parse|json_decode")


def _listed(parts: Called, scope: NameScope, also: Lazy | None = None) -> Iterator[str]:
    """The calls that list what the argument or the owner of a call is an item of, with nothing that picks some."""
    texts = [text_of(one)[:LONGEST_CHAIN] for one in (parts.receiver, *parts.arguments[:MOST_NAMES])]
    yield from (text for text in texts[1:] if _ALL_KEYS.search(text) is not None)
    for item in names_in(texts):
        for one in scope.bounds_of(item):
            if one.each or _SEVERAL.search(parts.name) or _ALL_KEYS.search(text_of(one.value)[:LONGEST_CHAIN]):
                text = _source(one, scope)
                plain = _LEFT_OUT.sub("", _ALL_OF_USE.sub("", _unpicked(text, scope)))
                plain = (
                    _IN_TIME.sub("", plain) if "efund" in parts.name or "efund" in text_of(parts.receiver) else plain
                )
                lists = _LISTED.search(plain) or (also is not None and also.search(plain))
                if lists and not _PICKED.search(plain) and not _SMALL_THINGS.search(plain):
                    yield text


# What picks by a beginning of names: `.filter(n -> n.startsWith(lead))`, `if n.startswith(lead)`.
_BEGINS: Final = Lazy(
    r"(?i)(?:\.(?:filter|where|select)\s*[({]\s*\(?[\w\s|]{0,40}\)?\s*(?:->|=>|\|)?|\bif\s)\s*\w+\.starts_?with\??\(\s*(\w+)\s*\)\s*[)}]?"
)


def _unpicked(text: str, scope: NameScope) -> str:
    """A text without what picks by a beginning that is empty."""
    for match in list(_BEGINS.finditer(text)):
        if scope.named(match.group(1)).texts == ("",):
            text = text.replace(match.group(), "")
    return text


def _source(one: BoundName, scope: NameScope) -> str:
    """What is gone over, as it is written where it was asked for."""
    text = text_of(one.value)[:LONGEST_CHAIN]
    told = [text]
    for _ in range(_HOPS):
        further = [bound for name in names_in([text])[:1] for bound in scope.bounds_of(name)[:1]]
        if not further or _LISTED.search(text):
            break
        text = text_of(further[0].value)[:LONGEST_CHAIN]
        told.append(text)
    return " ".join(told)
