r"""Shell words as the shell joins them: quotes inside words, backslashes, `$IFS`, empty expansions.

`c'a't /et""c/pass\wd`, `cat${IFS}/etc/passwd`, `{cat,/etc/passwd}` and `w$@hoami` become what runs.
This is a reading for pattern rules; the shell analyser parses the original.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from aegis.core.json import escape, tokens
from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.extract import MOST_POINTERS
from aegis.detect.roles import argument_of, words_of
from aegis.detect.tool_words import vocabulary

# Values that are not there yet: placeholders of templates, and references to results that are still pending.
#
# Found by us, whatever the caller declares. Braces in literal content (code, JSON, prose) are content: inside of a
# longer text only the forms that nobody writes by chance count.

MAX_FOUND: Final = 100  # pointers named for one call: bounds what a refusal carries
_SHORT: Final = 512  # longer text is content
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+|\[[A-Za-z0-9_'\"-]+\])*"
# The whole value is one placeholder or one reference.
_WHOLE: Final = Lazy(
    rf"\s*(?:\{{\s*(?:{_NAME}|[0-9]{{1,3}})\s*(?:![rsa])?\s*\}}|\$\{{[^{{}}\n]{{1,200}}\}}|\{{\{{[^{{}}\n]{{1,200}}\}}\}}"
    rf"|<\s*(?:pending|unresolved|await|awaiting|result of|output of)\s*:[^<>\n]{{1,200}}>"
    rf"|\$(?:ref|result|output|pending):[^\s]{{1,200}})\s*"
)
# Inside of a text: what no language writes by chance, and names in braces where the text is short.
_ANYWHERE: Final = Lazy(r"<pending:[^<>\n]{1,200}>")
_TEMPLATE: Final = Lazy(rf"\{{\{{\s*{_NAME}\s*\}}\}}|\$\{{{_NAME}\}}")
_FORMAT: Final = Lazy(rf"(?:^|[^{{}}$\\\w#]){{{_NAME}}}(?:[^}}]|$)")
_IN_BRACES: Final = Lazy(rf"{{{_NAME}}}")
_OWN_PATH: Final = Lazy(r"^(?:https?://[^/{}\s]{1,253})?/")  # of a host that is written out, if of any
_NAMED_IN_BRACES: Final = Lazy(r"\{([^{}]{1,100})\}")
_PROSE_BLANKS: Final = 5  # between words of a sentence
# Arguments whose text is content: braces belong to it.
# What is itself a template, and what is filled elsewhere, of which nothing would be looked at: `Bearer {{token}}`.
_TEMPLATES: Final = frozenset({"expression", "formula"})
_BY_REFERENCE: Final = frozenset({"authorization", "x-api-key", "fn::sub"})
_FORMATTED: Final = frozenset({"url", "uri", "endpoint", "sql", "statement", "query"})  # where `=` is no code
# Where a shell expands names itself, `${x}` is its own syntax.
_SHELL: Final = frozenset({"command", "cmd", "script", "bash", "shell"})
# Roles of text that is for people or is written as it stands.
_TEXTS: Final[frozenset[TextRole]] = frozenset({"content", "document", "code"})
_NO_ROLES: Final[Mapping[str, TextRole]] = MappingProxyType({})
_REFERENCES: Final = frozenset({"$ref", "$result", "$output", "$pending"})


# Programs that fill what stands in double braces by themselves, from an inventory or the values of a chart.
_FILLS: Final = frozenset({"ansible", "helm", "playbook"})
# What is filled at each event or request: no command is left to that.
_FILLS_LATER: Final = frozenset({"automation", "n8n", "postman", "vault", "workflow", "workflows", "zap", "zapier"})
# What is declared with the names of what each use will bring: `register_resource_template`, `add_endpoint_doc`.
_DECLARED: Final = frozenset({"endpoint", "prompt", "prompts", "route", "routes", "template", "templates"})
# What an editor fills in the settings that it reads: `${input:api_key}`.
_OF_SETTINGS: Final = Lazy(r"\s*\$\{(?:command|config|env|input|secret):[\w.-]{1,100}\}\s*")
# What a program is to show of what it finds: `docker inspect --format '{{.Mountpoint}}'`.
_SHOWN: Final = Lazy(r"\s*\{\{\s*(?:json )?\.[\w.]{0,100}\s*\}\}\s*")
# How the entries of a boot loader are called: `bcdedit /enum {default}`.
_BOOT_ENTRY: Final = Lazy(
    r"(?i)\{(?:default|current|bootmgr|fwbootmgr|globalsettings|bootloadersettings|memdiag|ntldr|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})\}"
)


def find_unresolved(
    arguments: Mapping[str, Any], roles: Mapping[str, TextRole] = _NO_ROLES, tool: str = ""
) -> tuple[str, ...]:
    """Pointers of values that are placeholders or pending references; at most `MAX_FOUND`, in document order.

    `roles` are declared by the operator: where one says that a value is text, braces in it are text.
    """
    if not _may_be_pending(arguments):
        return ()
    found: list[str] = []
    stack: list[tuple[str, Any]] = [("", arguments)]
    pointers = 0
    words = words_of(tool)
    fills, later, declares = not _FILLS.isdisjoint(words), not _FILLS_LATER.isdisjoint(words), _declares(words)
    while stack and len(found) < MAX_FOUND:
        path, value = stack.pop()
        if isinstance(value, (dict, list)):
            pointers += (len(path) + 1) * len(value)
            if pointers > MOST_POINTERS:
                break  # the walk over the strings refuses such a call
        if type(value) is str:
            marked = "{" in value or "<" in value or "$" in value
            own = fills or ((later or declares) and _argument(path) not in _SHELL)
            own = own and (declares or "{{" in value) and "<" not in value and "$" not in value
            if marked and not own and _is_pending(path, value, roles) and not _is_filled(value, arguments):
                found.append(path)
        elif isinstance(value, dict):
            if len(value) == 1 and _is_reference(value):
                found.append(path)
                continue
            left = _edited(value)
            stack.extend(
                [(f"{path}/{escape(str(key))}", inner) for key, inner in reversed(value.items()) if key not in left]
            )
        elif isinstance(value, list):
            stack.extend([(f"{path}/{index}", inner) for index, inner in enumerate(value)][::-1])
    return tuple(found)


def _declares(words: Sequence[str]) -> bool:
    """Whether a tool makes something known that others use later, each time with what they put in."""
    known = vocabulary().values
    kinds = _DECLARED | known["toolkinds"]
    return not kinds.isdisjoint(words) and not known["declaring"].isdisjoint(words)


def _edited(members: Mapping[Any, Any]) -> frozenset[str]:
    """The names of what is looked for in a text, where that is a placeholder, and of the placeholder put in its place.

    Neither will be anything else: `{"old_str": "{{user}}", "new_str": "{{user.name}}"}`.
    """
    braced = {
        key: str(key).lower().replace("_", "")
        for key, one in members.items()
        if isinstance(one, str) and "{" in one and is_placeholder("", one)
    }
    edited = frozenset(key for key, name in braced.items() if name in _SOUGHT or name in _PUT_IN)
    return edited if not _SOUGHT.isdisjoint(braced.values()) else frozenset()


_SOUGHT: Final = frozenset({"find", "findtext", "oldstr", "oldstring", "oldtext", "search", "searchtext"})
_PUT_IN: Final = frozenset({"newstr", "newstring", "newtext", "replace", "replacement", "replacetext", "replacewith"})


def _is_filled(value: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a path names only what the call gives beside it: `/users/{id}` with `{"path_params": {"id": 7}}`."""
    if _OWN_PATH.match(value.partition(" ")[2] or value) is None or "$" in value or "{{" in value or "<" in value:
        return False
    given = [arguments, *(inner for inner in arguments.values() if isinstance(inner, dict))]
    names = [match.group(1) for match in _NAMED_IN_BRACES.finditer(value)]
    return bool(names) and all(
        any(inner.get(name) not in (None, "") and "{" not in str(inner.get(name)) for inner in given) for name in names
    )


def is_placeholder(path: str, value: str) -> bool:
    """Whether the whole of a text is one placeholder or reference, so that nothing of it can be looked at yet."""
    if "{" not in value and "<" not in value and "$" not in value:
        return False
    if "/env/" in path and _OF_SETTINGS.fullmatch(value):
        return False
    if _argument(path) == "format" and _SHOWN.fullmatch(value):
        return False
    return bool(_WHOLE.fullmatch(value)) and not (_argument(path) in _SHELL and value.lstrip().startswith("$"))


def _may_be_pending(arguments: Mapping[str, Any]) -> bool:
    """Whether anything in the arguments has a sign of a placeholder or a reference; most have none."""
    stack: list[Any] = [arguments]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if len(item) == 1 and not _REFERENCES.isdisjoint(item):
                return True
            item = item.values()
        for inner in item:
            kind = type(inner)
            if kind is str:
                if "{" in inner or "<" in inner or "$" in inner:
                    return True
            elif kind is dict or kind is list:
                stack.append(inner)
    return False


def _is_pending(path: str, value: str, roles: Mapping[str, TextRole]) -> bool:
    name = _argument(path)
    if roles and (roles.get(path) or roles.get(argument_of(path))) in _TEXTS:
        return _ANYWHERE.search(value) is not None
    if name in _BY_REFERENCE or "/containsText/" in path or (name in _TEMPLATES and value.lstrip().startswith("{{")):
        return _ANYWHERE.search(value) is not None
    if is_placeholder(path, value):
        return True
    if _WHOLE.fullmatch(value):
        return False
    if _ANYWHERE.search(value):
        return True
    if len(value) > _SHORT or "\n" in value or name in vocabulary().values["contentnames"]:
        return False
    if name not in _SHELL and _TEMPLATE.search(value):
        return name in _FORMATTED or value.count(" ") < _PROSE_BLANKS  # a text for people around it is the template
    value = _BOOT_ENTRY.sub("", value) if "bcdedit" in value else value
    if name not in _SHELL and "{" in _IN_BRACES.sub("", value):  # a language of its own: `cpu{env:prod} by {host}`
        return False
    # Text with other structure around its braces is code or data.
    if name in _SHELL or any(char in value for char in ";\"'`>") or value.count("{") != value.count("}"):
        return False
    if "=" in value and name not in _FORMATTED:
        return False
    return _FORMAT.search(value) is not None


def _is_reference(value: dict[Any, Any]) -> bool:
    ((key, inner),) = value.items()
    # In JSON Schema a reference begins with `#` or names a document.
    return key in _REFERENCES and isinstance(inner, str) and "#" not in inner and "://" not in inner


def _argument(path: str) -> str:
    for token in reversed(tokens(path)):
        if not token.isdigit():
            return token.lower()
    return ""


# Templates that a call fills by itself: a variable in double braces that stands beside what it is put into.
#
# What runs is the filled text, so that is what is looked at. Of expressions only variables and filters of paths and
# letters are evaluated, as Jinja and Ansible do; any other stays as it is written.

VARIABLES: Final = frozenset({"vars", "extra_vars", "extraVars", "variables", "template_vars", "template_variables"})
# On one line, and with nothing in its brackets that a shell would run if nobody filled it.
_EXPRESSION: Final = Lazy(
    r"\{\{-? *(\w{1,64})((?: *\| *\w{1,32}(?:\((?:'[\w ./-]{0,64}'|\"[\w ./-]{0,64}\"|\w{0,64})\))?){0,8}) *-?\}\}"
)
_FILTERS: Final[Mapping[str, Callable[[str], str]]] = {
    "basename": posixpath.basename, "d": str, "default": str, "dirname": posixpath.dirname, "lower": str.lower,
    "mandatory": str, "normpath": posixpath.normpath, "string": str, "trim": str.strip, "upper": str.upper,
}  # fmt: skip
_LONGEST_FILLED: Final = 4_096  # characters of a text that is filled, and of what it becomes
_MOST_FILLED: Final = 2_000  # values that are looked at
_DEEPEST_FILLED: Final = 24


def filled(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the variables put in that they give; the same where they give none."""
    given = {
        str(name): str(value)
        for member, held in arguments.items()
        if isinstance(held, dict) and member in VARIABLES
        for name, value in held.items()
        if isinstance(value, (str, int, float)) and "{{" not in str(value)
    }
    if not given:
        return arguments
    made: dict[str, Any] = _with(arguments, given, 0, [_MOST_FILLED])
    return made


def _with(value: Any, given: Mapping[str, str], depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST_FILLED:
        return value
    if isinstance(value, dict):
        return {name: _with(inner, given, depth + 1, left) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with(inner, given, depth + 1, left) for inner in value]
    if not isinstance(value, str) or "{{" not in value or len(value) > _LONGEST_FILLED:
        return value
    made = str(_EXPRESSION.sub(lambda match: _evaluated(match.group(1), match.group(2), match.group(), given), value))
    return made if len(made) <= _LONGEST_FILLED else value


def _evaluated(name: str, filters: str, written: str, given: Mapping[str, str]) -> str:
    """The value of one expression; what is written where it is none that is known."""
    if name not in given:
        return written
    value = given[name]
    for word in filters.split("|")[1:]:
        made = _FILTERS.get(word.strip().partition("(")[0])
        if made is None:
            return written
        value = made(value)
    return value


# A quote, backslash or caret between two word characters joins a word; in prose it never does.
QUOTES: Final = (
    r"""[A-Za-z0-9/._-](?:''|""|\\|\^|``)[A-Za-z0-9/._-]|['"][A-Za-z/._-]{1,8}['"][A-Za-z/]|[A-Za-z/]['"][A-Za-z/._-]{1,8}['"]"""
    r"""|\$\{?IFS|\$[@*]|\$\{[@*]\}|\$[1-9][A-Za-z]|\{[A-Za-z/.-]+,[^}{ ]+\}|\$['"]|\$\{[A-Za-z_]+:\d|\\\n"""
)
_CARET: Final = Lazy(r"[A-Za-z]\^[A-Za-z]")
_BRACED: Final = "${IFS"
_IFS_WORD: Final = 20  # characters that an expansion of `IFS` may have behind its name
_EMPTY: Final = ("$@", "$*", "$!", "${@}", "${*}", "${!}", "$()", "``", "\\\n")
_FIRST: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/.-"  # what the first word in braces is made of
_LEADING_BRACES: Final = Lazy(r"(^\s*|[;&|`(]\s*)\{([A-Za-z/.-]+(?:,[^}{ ,\n]+)+)\}")
_VARIABLE: Final = Lazy(
    r"""(?:^|[;&'"]\s*)set\s+(?:-[a-zA-Z]{1,4}\s+)?(?P<fish>[A-Za-z_]\w*)\s+(?P<given>[\w./:@%+,~-]+)|\bfor\s+(?P<each>[A-Za-z_]\w*)\s+in\s+(?P<words>[^;$`|&\n()]+)|(?:\b(?P<name>[A-Za-z_]\w{0,63})=(?:(?P<value>[\w./:@%+,-]{1,400})|'(?P<single>[^'$`]{0,400})'|"(?P<double>[^"$`\\]{0,400})")"""
    r"""|\$(?:(?P<used>[A-Za-z_]\w{0,63})|\{(?P<braced>[A-Za-z_]\w{0,63})\}))"""
)
_DIGITS: Final = frozenset("0123456789")
_JOINERS: Final = str.maketrans("", "", "'\"\\^")


def unquote_shell(text: str) -> str | None:
    """The text, in which `QUOTES` matches, with shell quoting undone, or `None` where nothing changes."""
    joined = _without_ifs(text)
    for empty in _EMPTY:
        joined = joined.replace(empty, "")
    joined = _without_braces(joined)
    joined = joined.replace("$'", "'").replace('$"', '"').translate(_JOINERS)
    return joined if joined != text else None


def expanded_words(text: str) -> str:
    """The text with what a shell splits into words written as words, quotes kept: `cat${IFS}x`, `{cat,x}`."""
    if "IFS" in text:
        text = _without_ifs(text)
    if "{" in text and "," in text:
        text = _LEADING_BRACES.sub(_lead, text)
    if "(" in text:
        text = _QUALIFIED.sub(r"\1", text)
    if ("(" in text or "end" in text) and _IS_FISH.search(text) and _NOT_FISH.search(text) is None:
        text = _of_fish(text)
    if "${" in text and ":" in text:
        text = _UNNAMED.sub(r"\1", _ASSURED.sub(r"$\1", text))
    return text


# A pattern of zsh with qualifiers behind it, which say of what kind the files are: `~/*(ND.)`.
_QUALIFIED: Final = Lazy(r"(\s[~/.*$^][\w./~$*?^{}-]*)\([NDF./@^=*%UomLacrwx0-9+,-]{1,16}\)")
_IS_FISH: Final = Lazy(
    r"(?m)^\s*set(?:\s+-[lgxUf]{1,3})?\s+[A-Za-z_]\w*\s+\(|(?:^|\s)\((?:string|path)\s|\"\([a-z]+\s|@\([a-z]+\s[^|()]*\)|"
    r"(?:^|\A|;)\s*(?:for\s+\w+\s+in\s[^;\n()]+|(?:while|if)\s[^;\n()]+|function\s+[\w-]+\s*)[;\n](?s:.*)[;\n]\s*end\s*(?:;|$)"
)
_NOT_FISH: Final = Lazy(r"\b(?:ruby|lua\w*|julia|elixir|crystal|then|done|do)\b")
_FISH_SET: Final = Lazy(r"(?m)^([ \t]*)set(?:[ \t]+-[lgxUf-][a-z]*)*[ \t]+([A-Za-z_]\w*)[ \t]+([^\n]+)$")
_FISH_RUN: Final = Lazy(r"([\s\"=/@])\(([a-z])")
_FISH_WORDS: Final = Lazy(r"\$argv(?:\[([0-9])\])?")
_FISH_BLOCK: Final = Lazy(
    r"(?m)^[ \t]*(?:((?:for|while)\s[^\n]+)|((?:else\s+)?if\s[^\n]+)|(else)|(begin|function\s+[\w-]+[^\n]*)|end)[ \t]*$"
)


def _of_fish(text: str) -> str:
    """A text of fish as other shells write it: what is set, what is put in, and where blocks begin and end."""
    text = str(_FISH_WORDS.sub(lambda match: f"${match.group(1) or '@'}", text.replace("; ", "\n")))
    text = str(_FISH_SET.sub(r"\1\2=(\3)", str(_FISH_RUN.sub(r"\1$(\2", text))))
    ends: list[str] = []

    def block(match: Any) -> str:
        loop, choice, otherwise, group = match.groups()
        if loop or group:
            ends.append("done" if loop else "}")
            return f"{loop}; do" if loop else "{" if group == "begin" else f"{group.split()[1]}() {{"
        if choice:
            ends.extend(["fi"] if choice[:2] == "if" else [])
            return f"{'el' + choice.split(None, 1)[1] if choice[:4] == 'else' else choice}; then"
        return "else" if otherwise else ends.pop() if ends else "true"

    return str(_FISH_BLOCK.sub(block, text))


# What stands for a variable alone, and for nothing but what it says: `${HOME:?}`, `${HOME%/}`, and `${:-text}` of zsh.
_ASSURED: Final = Lazy(r"\$\{([A-Za-z_]\w{0,63})(?::?\?[^{}$]{0,200}|%/)\}")
_UNNAMED: Final = Lazy(r"\$\{:-([\w./~-]{1,200})\}")


def with_variables(text: str) -> str | None:
    """The lines in which a variable stands that the text sets, with what it is set to; `None` where there is none.

    They are another reading, and none in place of the text: whether a setting holds where it is used is not known.
    """
    if "$" not in text:
        return None
    changed = list(_called(text)) if "()" in text or "function " in text else []
    if "=" in text or "set " in text or "for " in text:
        read = _Variables().read
        changed += [after for line in text.split("\n") if (after := _VARIABLE.sub(read, line)) != line]
    return "\n".join(changed) or None


# A function of one body without braces of its own, and what it is called with: bounds what a text can stand for.
_FUNCTION: Final = Lazy(r"(?:\bfunction\s+)?\b([A-Za-z_]\w*)\s*\(\)\s*\{([^{}]+)\}")
_MOST_CALLS: Final = 8
_PLACED: Final = Lazy(r"\$\{?([1-9@*])\}?")


def _called(text: str) -> Iterator[str]:
    """The bodies of a text's functions, with what each is called with in the places of `$1` to `$9`."""
    for match in islice(_FUNCTION.finditer(text), _MOST_CALLS):
        name, body = match.group(1), match.group(2)
        calls = Lazy(rf"(?:^|[;&|\n])\s*{name}[ \t]+([^;&|\n(){{}}]+)")
        for call in islice(calls.finditer(text), _MOST_CALLS):
            words = call.group(1).split()
            yield _PLACED.sub(
                lambda one, words=words: " ".join(words) if one.group(1) in "@*" else
                (words[int(one.group(1)) - 1 :] or [""])[0], body
            )  # fmt: skip


class _Variables:
    """What the variables of a text were set to, as far as it is written out."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._divides = ""  # what the program says that words are divided by

    def read(self, match: Any) -> str:
        """Keep what an assignment sets; what stands in place of a variable that was set before."""
        whole: str = match.group()
        name = match.group("name")
        if match.group("fish"):  # as fish says it
            self._values[match.group("fish")] = match.group("given")
        elif match.group("each"):  # all that a loop goes over
            self._values[match.group("each")] = match.group("words").strip()
        elif name is None:
            value = self._values.get(match.group("used") or match.group("braced"), whole)
            return value.replace(self._divides, " ") if self._divides else value
        else:
            value = match.group("value") or match.group("single") or match.group("double") or ""
            self._values[name] = value
            self._divides = value if name == "IFS" and len(value) == 1 else self._divides
        return whole


def uncaret(text: str) -> str | None:
    """The text as the command interpreter of Windows reads it: a caret quotes what follows and is gone."""
    return text.replace("^", "") if "^" in text and _CARET.search(text) is not None else None


def _lead(match: Any) -> str:
    return f"{match.group(1)}{match.group(2).replace(',', ' ')}"


# Thousands of small replacements: cutting the text at a sign takes a tenth of what a pattern takes for each.


def _without_ifs(text: str) -> str:
    """The text with every expansion of `IFS` as a blank: `$IFS`, `$IFS$9`, `${IFS}`, `${IFS%??}`."""
    if "IFS" not in text:
        return text
    out: list[str] = []
    at = 0
    while (start := text.find(_BRACED, at)) >= 0:
        behind = start + len(_BRACED)
        end = text.find("}", behind, behind + _IFS_WORD + 1)
        out += (text[at:behind],) if end < 0 else (text[at:start], " ")
        at = behind if end < 0 else end + 1
    out.append(text[at:])
    first, *pieces = "".join(out).split("$IFS")
    out = [first]
    for piece in pieces:
        out += (" ", piece[2:] if piece[:1] == "$" and piece[1:2] in _DIGITS else piece)
    return "".join(out)


def _without_braces(text: str) -> str:
    """The text with words in braces (`{cat,/etc/passwd}`) as words with blanks between them."""
    if "{" not in text or "," not in text:
        return text
    first, *pieces = text.split("{")
    out = [first]
    for piece in pieces:
        inner, closed, rest = piece.partition("}")
        word, *others = inner.split(",")
        spreads = closed and word and others and not word.strip(_FIRST) and all(others) and " " not in inner
        out += (" ".join((word, *others)), rest) if spreads else ("{", piece)
    return "".join(out)
