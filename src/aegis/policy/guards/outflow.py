"""Secrets and personal data in a call: masked or held where they leave for outside, noted where they stay.

A rule of these families says what was found; where the call takes it decides what happens.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import structs

from aegis.core.finding import Finding, Patch
from aegis.core.json import resolve
from aegis.core.names import glob_match
from aegis.core.outcome import Outcome, Risk
from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.roles import words_of, writes_by_name
from aegis.detect.rules.scanner import DATA, Checks, Scanner
from aegis.detect.tool_words import vocabulary
from aegis.detect.touch.touch import touch
from aegis.detect.views import views_of
from aegis.policy.guards.base import Case
from aegis.policy.guards.options import ContentOptions, DlpPolicy

# Links that lead out of where agents work: a path that reads as inside of a folder and is not (CWE-59).
#
# Only folders that the operator names on this machine are looked at, and only paths that read as inside of them: a
# path of another machine's agent means nothing here. A link made after the decision is not seen; a held call is
# bound to where its paths lead, and a sandbox holds whatever happens.

MOST_PATHS: Final = 256  # paths of one call that are followed: each takes system calls
_LONGEST: Final = 4_096  # characters of a path, as the system has it
_DEEPEST: Final = 64  # folders of a path that is followed
Follow = Callable[[str], str | None]


class Links:
    """Finds what leads out of `folders`; relative paths start at the first of them.

    `follow` answers where an absolute path really leads, and `None` for one that cannot be followed.
    """

    def __init__(self, folders: tuple[str, ...], follow: Follow):
        self._folders = folders
        self._real = tuple(real for folder in folders if (real := follow(folder)) is not None)
        self._follow = follow

    def findings(self, case: Case) -> list[Finding]:
        """`block` for each path that reads as inside and is not, that cannot be followed, or is one too many."""
        found: list[Finding] = []
        for number, (pointer, path) in enumerate(self._inside(case)):
            if number == MOST_PATHS:
                found.append(_finding("limit-links", pointer, "the call names more paths than are followed", path))
                break
            real = self._follow(path) if path.count("/") <= _DEEPEST else None
            if real is None or not any(_is_below(real, folder) for folder in self._real):
                found.append(_finding("path-link", pointer, "a link leads out of the folder that agents work in", path))
        return found

    def _inside(self, case: Case) -> Iterator[tuple[str, str]]:
        """The paths that read as inside of a folder, absolute, each with its pointer."""
        seen: set[tuple[str, str]] = set()
        for pointer, value in _named(case, self._folders[0]):
            if not value or len(value) > _LONGEST or "\0" in value or "://" in value or value.startswith("~"):
                continue
            path = posixpath.join(self._folders[0], value)
            read = posixpath.normpath(path)
            if any(_is_below(read, folder) for folder in self._folders) and (pointer, path) not in seen:
                seen.add((pointer, path))
                yield pointer, path


def _named(case: Case, base: str) -> Iterator[tuple[str, str]]:
    """What names a file: arguments that are paths, and the words and redirections of commands."""
    texts = case.facts.texts.strings
    for text in texts:
        if text.role == "path" and not text.is_key:
            yield text.path, text.value
    if not case.facts.vectors and not any(text.role == "command" for text in texts):
        return
    touched = case.touched or touch(case.arguments, texts, sends=False, base=base)
    for pointer, names in touched.resources.get("commands", ()):
        for words in names:
            for word in words[1:]:
                yield pointer, word.partition("=")[2] if word.startswith("-") else word
    for pointer, names in touched.resources.get("paths", ()):
        for segments in names:
            yield pointer, "/".join(segments).replace("//", "/", 1)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _finding(rule: str, pointer: str, message: str, path: str) -> Finding:
    return Finding(
        guard="content",
        rule=rule,
        category="resource_limit" if rule.startswith("limit-") else "path_traversal",
        severity=Risk.HIGH,
        outcome=Outcome.BLOCK,
        path=pointer,
        message=message,
        evidence=path[:200],
    )


_OUTCOMES: Final[dict[DlpPolicy, Outcome]] = {
    "mask": Outcome.SANITIZE,
    "hold": Outcome.REQUIRE_APPROVAL,
    "note": Outcome.ALLOW,
}
MOST_MASKED: Final = 250  # findings of data that are masked in one call; a call with more is held
_MOST_READ: Final = 131_072  # characters of masked values that decoders are given once more
MOST_SEARCHED: Final = 4_194_304  # characters searched for what to mask, a value once for each finding in it
_LONGEST_MASKED: Final = 262_144  # characters of one value that are masked in place; longer ones are held


def answer_data(
    findings: list[Finding], case: Case, options: ContentOptions, scanner: Scanner
) -> tuple[list[Finding], list[Patch]]:
    """The findings with the outcome that the policy gives to secrets and personal data, and the patches."""
    asked = [finding for finding in findings if finding.category in DATA and finding.outcome is not Outcome.ALLOW]
    if not asked:
        return findings, []
    away = leaves(case, options)
    # What a forge shows stays there for whoever reads it: names of people belong into it, secrets do not.
    shown = not away and (
        is_shown(case.tool) or is_committed(case.tool, case.arguments) or is_published(case.arguments)
    )
    served = not away and any(
        text.role in ("path", "command") and _SERVED.search(text.value) is not None for text in case.facts.texts.strings
    )
    outcomes = {
        category: _OUTCOMES[options.egress if away or (shown and category == "secret") else options.inside]
        for category in DATA
    }
    masked = [finding for finding in asked if outcomes[finding.category] is Outcome.SANITIZE]
    if len(masked) > MOST_MASKED:
        outcomes = {
            category: _OUTCOMES["hold"] if one is Outcome.SANITIZE else one for category, one in outcomes.items()
        }
        masked = []
    masking = _Masking(case.arguments, scanner, masked)
    answered: list[Finding] = []
    for finding in findings:
        if finding.category not in DATA or finding.outcome is Outcome.ALLOW:
            answered.append(finding)
            continue
        # What stands in an encoding cannot be masked in place, so a person looks.
        outcome = outcomes[finding.category]
        for_browsers = finding.rule in _FOR_BROWSERS and _OF_SERVERS.search(finding.evidence) is None
        if served and finding.category == "secret" and not for_browsers:
            outcome = max(outcome, Outcome.REQUIRE_APPROVAL)
        unmasked = outcome is Outcome.SANITIZE and masking.leaves(finding)
        given = Outcome.REQUIRE_APPROVAL if unmasked else outcome
        if unmasked:
            masking.masked.pop(finding.path, None)
        answered.append(finding if finding.outcome is given else structs.replace(finding, outcome=given))
    return answered, [Patch(path=path, value=value) for path, value in masking.masked.items()]


_ASKS_FOR: Final = frozenset({"fetch", "find", "get", "list", "query", "read", "search", "view"})


@lru_cache(maxsize=8_192)
def is_shown(tool: str) -> bool:
    """Whether a tool writes what many people are shown: issues, comments, gists, pages of a wiki."""
    words = words_of(tool)
    return not vocabulary().values["showing"].isdisjoint(words) and (
        writes_by_name(tool) or _ASKS_FOR.isdisjoint(words)
    )


# Files that a web server hands to everybody, images and documents that many get, and keys that pages are meant to hold.
_SERVED: Final = Lazy(
    r"(?i)(?:^|[/\\])(?:public|public_html|static|wwwroot|htdocs|www|_site|_posts|blog|website|published|slides|talks)"
    r"[/\\][^\n]{0,400}\.(?:[cm]?js|css|csv|html?|ipynb|json|map|mdx?|svg|txt|xml|ya?ml|env|bak|old|sql)$|"
    # What a line of a program puts there: images, packages, gists and issues.
    r"\b(?:gh|glab)\s+(?:issue|pr|mr|release|gist|snippet)\s+(?:create|comment|edit|note|new)\b|--push\b|"
    r"\b(?:docker|podman)\s+push\b|\b(?:twine|npm|cargo|yarn|pnpm|uv)\s+(?:upload|publish)\b|"
    r"(?:^|[/\\])(?:(?:Docker|Container)file(?:\.[\w.-]{1,40})?|README(?:\.[\w.-]{1,20})?|docs?[/\\][^\n]{1,400}\.(?:md|mdx|rst))$"
)
_FOR_BROWSERS: Final = frozenset({"secret-google", "secret-observability", "secret-assigned", "secret-jwt"})
_OF_SERVERS: Final = Lazy(r"(?i)secret|private|master|admin|passw|refresh")  # names of what no page holds
# Arguments that say who may see a thing, and where it is put; and what they say of one that everybody sees.
_AUDIENCE: Final = frozenset(
    {"access", "acl", "anonymous", "audience", "privacy", "public", "published", "sharing", "viewers", "visibility"}
)
_PLACES: Final = frozenset({"board", "channel", "collection", "destination", "folder", "parent", "space", "where"})
_OF_ALL: Final = Lazy(r"(?i)\b(?:public(?:ly)?|published|everyone|everybody|anyone|world)\b")


def is_published(arguments: Mapping[str, Any]) -> bool:
    """Whether a call says of what it writes that everybody may see it."""
    for name, value in arguments.items():
        last = words_of(name)[-1:]
        if value is True and not _AUDIENCE.isdisjoint(words_of(name)):
            return True
        says = not (_AUDIENCE | _PLACES).isdisjoint(last) and isinstance(value, str) and len(value) < _LONGEST
        if says and _OF_ALL.search(value) is not None:
            return True
    return False


_OF_FORGES: Final = (
    frozenset({"owner", "repo"}),
    frozenset({"project_id", "branch"}),
    frozenset({"repository", "branch"}),
    frozenset({"repo", "content"}),
    frozenset({"repository", "content"}),
    frozenset({"project", "content"}),
)
_COMMITS: Final = frozenset({"commit", "push"})


def is_committed(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call puts what it is given into a repository on a forge, where it stays in the history."""
    names = arguments.keys()
    return any(names >= one for one in _OF_FORGES) and (writes_by_name(tool) or not _COMMITS.isdisjoint(words_of(tool)))


def leaves(case: Case, options: ContentOptions) -> bool:
    """Whether the call takes its content outside: by its effects, unless every host it names is inside."""
    if (
        "external_send" not in case.effects
        and "network" not in case.effects
        and "external_send" not in case.facts.effects
    ):
        return False
    if not options.inside_hosts:
        return True
    hosts = [host for text in case.facts.texts.strings for host in _hosts(text.value)]
    return not hosts or any(not _inside(host, options.inside_hosts) for host in hosts)


def mask_spans(text: str, spans: list[tuple[int, int, str]]) -> str:
    """The text with every span replaced by the name of the rule that found it."""
    out: list[str] = []
    at = 0
    for start, end, rule in sorted(spans):
        if start < at:
            continue
        out.append(f"{text[at:start]}[masked: {rule}]")
        at = end
    out.append(text[at:])
    return "".join(out)


class _Masking:
    """The values of one call with what was found in them masked; what looking costs is bounded for all together."""

    def __init__(self, root: Any, scanner: Scanner, findings: Sequence[Finding]):
        self._scanner = scanner
        self._checks = Checks()
        self._effort = Effort(_MOST_READ)
        self._seen: set[tuple[str, str]] = set()  # rule and path of what stands openly
        self._readings: dict[str, list[str]] = {}
        values: dict[str, str] = {}
        spans: dict[str, list[tuple[int, int, str]]] = {}
        searching = Effort(MOST_SEARCHED)
        for finding in findings:
            value = _value(root, finding.path)
            rule = scanner.rules.by_id.get(finding.rule)
            if not value or rule is None or not searching.take(len(value)):
                continue
            found = scanner.spans(rule, value, checks=self._checks)
            if found:
                self._seen.add((finding.rule, finding.path))
                values[finding.path] = value
                spans.setdefault(finding.path, []).extend((start, end, finding.rule) for start, end in found)
        self._texts = {path: mask_spans(value, spans[path]) for path, value in values.items()}
        self.masked = dict(self._texts)  # without those of which something would stay

    def leaves(self, finding: Finding) -> bool:
        """Whether what was found does not stand openly, or stands in an encoding too, in which it is not masked."""
        if (finding.rule, finding.path) not in self._seen:
            return True
        rule = self._scanner.rules.by_id[finding.rule]
        for reading in self._read(finding.path):
            if not self._effort.take(len(reading)) or self._scanner.spans(rule, reading, checks=self._checks):
                return True
        return self._effort.left < 0  # nobody looked further

    def _read(self, path: str) -> list[str]:
        known = self._readings.get(path)
        if known is None:
            readings = views_of(self._texts[path], self._effort)
            known = self._readings[path] = [reading for reading, kinds in readings if "shell" not in kinds]
        return known


def _value(root: Any, path: str) -> str:
    """The text at a place, if it is short enough to be masked; empty where there is none."""
    try:
        value = resolve(root, path)
    except LookupError:
        return ""
    return value if isinstance(value, str) and len(value) <= _LONGEST_MASKED else ""


def _hosts(value: str) -> list[str]:
    """The host of an address or URL, where the whole value is one."""
    if len(value) > 2_048 or " " in value:
        return []
    if "://" in value:
        return [value.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()]
    local, at, domain = value.rpartition("@")
    return [domain.lower()] if at and local and "." in domain else []


def _inside(host: str, patterns: tuple[str, ...]) -> bool:
    return any(glob_match(pattern.lower(), host) for pattern in patterns)
