"""Texts that are whole, as people write them: conditions (`total > 5 and owner = 'me'`), statements, messages.

What is put behind a value to change a query is no whole condition: it begins in the middle of one, ends in a comment,
compares constants with each other or a column with itself. So a text that is whole needs no rule against that; nothing
here says that a text is harmless otherwise. Linear in the text, which is bounded.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.patterns import Lazy

_LONGEST: Final = 2_000  # characters of a condition: longer ones are judged like any value
_NAME: Final = r"(?:[A-Za-z_][\w.]*(?:\['\w+'\]|\[\"\w+\"\])?|`[\w ./-]+`|\[[\w ./-]+\])"
_MOMENT: Final = r"(?i:datetime|date|timestamp|guid|uuid)\((?:[\d\s,]{4,40}|'[\w:. -]{1,40}'|\"[\w:. -]{1,40}\")\)"
_VALUE: Final = rf"(?:'(?:[^'\\]|''|\\')*'|\"[^\"\\]*\"|-?\d[\w.:%-]*|@\w+|[A-Za-z_]\w*(?:\(\))?|{_MOMENT})"
_LIST: Final = rf"[(\[]\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*[)\]]"
_SIGN: Final = r"(?:===?|!=|<>|<=|>=|=|<|>|=~|~|:)"
_WORD: Final = r"(?i:(?:not\s+)?(?:i?like|in|contains|includes|startswith|endswith|has|between|matches))"
_SUM: Final = rf"{_NAME}(?:\s*[*/+-]\s*(?:{_NAME}|\d[\d.]*))*"
_TERM: Final = (
    rf"(?:{_SUM}\s*{_SIGN}\s*(?:{_VALUE}|{_LIST})|-?\d[\d.]*\s*(?:<=?|>=?)\s*{_NAME}|{_NAME}\s+{_WORD}\s+(?:{_VALUE}(?:\s+(?i:and)\s+{_VALUE})?|{_LIST})|"
    rf"{_NAME}\s*{_WORD}\s*{_LIST}|{_NAME}\s+(?i:is\s+(?:not\s+)?(?:null|true|false|empty)))"
)
_JOIN: Final = r"(?:\s+(?i:and|or)\s+|\s*(?:&&?|\|\|?)\s*)"
_ONE: Final = rf"(?:(?:(?i:not)\s+|[!~(]\s*)*{_TERM}\s*\)*)"
_ORDER: Final = rf"(?:\s+(?i:order\s+by)\s+{_NAME}(?:\s+(?i:asc|desc))?(?:\s*,\s*{_NAME}(?:\s+(?i:asc|desc))?)*)?"
_CONDITION: Final = Lazy(rf"^\s*{_ONE}(?:{_JOIN}{_ONE})*{_ORDER}\s*$")
_COMPARED: Final = Lazy(r"(\w+)\s*(?:==?|(?i:like)|<=|>=)\s*(\w+)")
_ITSELF: Final = Lazy(r"(?i)^(?:true|false|null|none)\b|(?:and|or|[&|(])\s*(?:true|false|null|none)\b")

# What somebody remarks behind a condition: plain words; what follows is cut off of nothing, as the condition is whole.
_REMARK: Final = Lazy(r"\s--\s+\p{L}[\p{L}\p{N} ,.]+$")

# A search of an engine: words, phrases and fields, joined by AND, OR and NOT.
_PHRASE: Final = r"\"[^\s\"'=;`][^\"';`]*[^\s\"';`]\""
_ATOM: Final = rf"(?:{_PHRASE}|[A-Za-z_]+:(?:{_PHRASE}|[\w.@*/-]+)|-?[\w.@*/+-]+)"
_SEARCH: Final = Lazy(rf"^\(?{_ATOM}\)?(?:\s+\(?{_ATOM}\)?)*$")


def is_condition(text: str) -> bool:
    """Whether a text is one whole condition: names compared with values, joined by words that may join."""
    if len(text) > _LONGEST:
        return False
    text = _REMARK.sub("", text) if "--" in text else text
    if "--" in text or "/*" in text or "#" in text or ";" in text:
        return False
    if _CONDITION.match(text) is None or text.count("(") != text.count(")") or _ITSELF.search(text):
        return False
    return all(match.group(1).lower() != match.group(2).lower() for match in _COMPARED.finditer(text))


def is_boolean_search(text: str) -> bool:
    """Whether a text is a search with quoted phrases that close where they should."""
    return '"' in text and len(text) <= _LONGEST and "--" not in text and _SEARCH.match(text.strip()) is not None


# Operators that join whole conditions of a document database, those that compare a field with a value, and fields in
# which a comparison makes a log-in succeed.
_JOINS: Final = frozenset({"$and", "$nor", "$or"})
_COMPARES: Final = frozenset({
    "$all", "$elemMatch", "$eq", "$exists", "$gt", "$gte", "$in", "$lt", "$lte", "$ne", "$nin", "$not", "$size",
})  # fmt: skip
_OF_LOGIN: Final = Lazy(r"(?i)user|login|mail|name|pass|pwd|pin|otp|secret|token|key|code")


def is_filter(text: str) -> bool:
    """Whether a text is one whole filter of a document database: fields, each compared, and none of a log-in.

    The same filter that is given as an object is judged by its keys; an operator in the place of a value is none.
    """
    if text[:1] != "{" or len(text) > _LONGEST:
        return False
    try:
        waiting: list[Any] = [orjson.loads(text)]
    except orjson.JSONDecodeError:
        return False
    while waiting:
        condition = waiting.pop()
        if not isinstance(condition, dict) or not condition:
            return False
        for field, wanted in condition.items():
            if field in _JOINS and isinstance(wanted, list):
                waiting.extend(wanted)
            elif field[:1] == "$" or _OF_LOGIN.search(field) or not _is_compared(wanted):
                return False
    return True


def _is_compared(wanted: Any) -> bool:
    return not isinstance(wanted, dict) or all(sign[:1] != "$" or sign in _COMPARES for sign in wanted)


# Prose with code in it, as Markdown writes it: `npm ci` between words of a sentence.
_SPAN: Final = Lazy(r"(^|[\s(\[,:;–—-])`[^`\n]+`([\s.,:;!?)\]–—-]|$)")
# Behind a semicolon stands code that is cited, or a word that is the name of no program.
_SENTENCE: Final = Lazy(
    r"^(?:[\p{L}\p{N}\s.,:!?()/_–—\x00-]|\p{L}['’]\p{L}|\s['\"“‘][\p{L}\p{N} ]+['\"”’]|;\s+\x00|"
    r";\s+(?:never|but|and|or|it|we|they|this|that|the|always|not|so|also|however|otherwise|instead|you|he|she|nothing|"
    r"please|hence|until|then|if|when|unless|while|since|for|there|these|those|no|each|both|only|leave|answers?)\s)*$"
)
_WORDS: Final = Lazy(r"\p{L}{2,}")
_LEAST_WORDS: Final = 3


def is_prose_with_code(text: str) -> bool:
    """Whether a text is a sentence that names commands or code between backticks, and asks nobody to run them.

    Outside of the backticks there is nothing but words and their punctuation.
    """
    if "`" not in text or len(text) > _LONGEST:
        return False
    plain = text
    for _ in range(2):  # neighbours share the sign between them
        plain = _SPAN.sub("\\1\x00\\2", plain)
    return "`" not in plain and _SENTENCE.match(plain) is not None and len(_WORDS.findall(plain)) >= _LEAST_WORDS


# Command lines that do nothing with the texts in them but say, file or search for them. Every word is a plain one, an
# option that is known, or quoted so that the shell changes nothing in it; nothing is redirected, substituted or set.
_LONGEST_SAID: Final = 8_192
_CHAR: Final = r"(?:[^\"$`\\]|\\[\"$`\\])"  # between double quotes
_PIECES: Final = rf"(?:'[^']*'|\"{_CHAR}*\"|\\')*"
_QUOTED: Final = rf"(?:'[^'-][^']*'|\"(?:[^\"$`\\-]|\\[\"$`\\]){_CHAR}*\"){_PIECES}"
_BARE: Final = r"(?:\.|(?:\./)?\.?[\w@#:,%+^](?:[\w@#:,%+^~=/-]|\.[\w-])*)"  # of paths, those below the folder alone
_LONG: Final = (
    r"--(?:all|amend|annotate|assignee|author|base|body|cached|count|date|draft|exclude|files-with-matches|fill|"
    r"fixed-strings|format|glob|grep|head|hidden|ignore-case|include|label|line-number|message|milestone|name-only|"
    r"no-edit|notes|oneline|pretty|regexp|signoff|since|stat|title|type|until|word-regexp)"
)
_OPTION: Final = rf"-{{1,2}}|-[a-zA-Z]{{1,6}}\d{{0,4}}|-\d{{1,4}}|{_LONG}(?:=(?:{_QUOTED}|{_BARE}))?"
_GIVEN: Final = rf"(?:\s+(?:{_QUOTED}|{_BARE}|{_OPTION}))*"
# What reaches a host is told of none: names of branches have no dot, texts have a blank in them.
_BRANCHES: Final = r"(?:\s+(?:-u|--set-upstream|[A-Za-z][\w/-]*))*"
_TEXT: Final = rf"(?:'[^'-][^']*\s[^']*'|\"(?:[^\"$`\\-]|\\[\"$`\\]){_CHAR}*\s{_CHAR}*\"){_PIECES}"
_TOLD: Final = rf"(?:\s+(?:{_TEXT}|['\"]?[\w#,][\w#,/-]*['\"]?|-[a-zA-QS-Z]|{_LONG}(?:=[\w#,/-]+)?))*"
_SAYS: Final = Lazy(
    rf"^\s*(?:(?:git\s+(?:add|commit|diff|grep|log|notes\s+add|show|status|tag){_GIVEN}|"
    rf"git\s+(?:branch|checkout|fetch|pull|push|switch){_BRANCHES}|"
    rf"(?:e?grep|fgrep|rg|ag|echo|printf){_GIVEN}|cd\s+[\w./~-]+|(?:head|tail|wc|sort|uniq)(?:\s+-\w+|\s+\d+)*|"
    rf"(?:gh|glab)\s+(?:issue|pr|mr|release)\s+(?:close|comment|create|edit|list|note|view){_TOLD})"
    r"\s*(?:&&|\|\|?|;|\n|$)\s*)+$"
)
_HERE: Final = Lazy(r"\"\$\(cat <<-?'(\w{1,16})'\n|\s-?\s?<<-?'(\w{1,16})'\n")


def is_said(command: str) -> bool:
    """Whether a command line only says, files or searches for the texts in it: messages of commits, issues, patterns.

    A text that a quoted here-document gives is one like any other.
    """
    if len(command) > _LONGEST_SAID:
        return False
    while (start := _HERE.search(command)) is not None:
        inside, word = start.group(1) is not None, start.group(1) or start.group(2)
        end = command.find(f"\n{word}\n" if inside else f"\n{word}", start.end() - 1)
        behind = end + len(word) + (2 if inside else 1)
        closes = command[behind : behind + 2] == ')"' if inside else command[behind : behind + 1] in ("", "\n")
        if end < 0 or not closes or _SAYS.match(command[: start.start()]) is None:
            return False
        command = f"{command[: start.start()]}{' ' if not inside else ''}'a text'{command[behind + 2 * inside :]}"
    return _SAYS.match(command) is not None


# How a line of PowerShell begins: a verb and a noun, with a parameter or a pipeline behind them.
_CMDLETS: Final = Lazy(
    r"^\s*(?:\$[\w:.]{1,40}\s*=\s*)?\(?[A-Z][a-z]{1,14}-[A-Z][A-Za-z0-9]{1,40}\b[^\n]{0,400}?(?:\s-[A-Za-z]{2}|\|\s*[A-Z%?])"
)


def is_cmdlet_line(text: str, *, alone: bool) -> bool:
    """Whether a text begins as a line of PowerShell does: `Get-Process -Name a | Stop-Process`.

    `alone` says that it may be of another language, of which it must have no sign then.
    """
    return (not alone or _OTHER_LANGUAGES.isdisjoint(text)) and _CMDLETS.match(text) is not None


_OTHER_LANGUAGES: Final = frozenset("(`=;\n")


_COMPANIONS: Final[dict[str, frozenset[str]]] = {
    "insert": frozenset({"into", "ignore", "overwrite"}),
    "replace": frozenset({"into"}),
    "delete": frozenset({"from"}),
    "create": frozenset(
        {"table", "view", "index", "database", "schema", "user", "or", "unique", "temporary", "function"}
    ),
    "drop": frozenset({"table", "view", "index", "database", "schema", "user", "column", "function", "trigger"}),
    "alter": frozenset({"table", "user", "database", "view", "role"}),
    "truncate": frozenset({"table"}),
    "grant": frozenset({"all", "select", "insert", "update", "delete", "create", "usage", "execute"}),
    "merge": frozenset({"into"}),
    "show": frozenset({"tables", "databases", "columns", "create", "grants", "index"}),
    "explain": frozenset({"select", "analyze", "query"}),
}


_STARTS: Final = frozenset(
    {"-", *(sign for verb in (*_COMPANIONS, "begin", "select", "with") for sign in (verb[0], verb[0].upper()))}
)
_OPENED: Final = Lazy(
    r"(?i)^\s*(?:(?:--[^\n]*\n|(?:begin|start)(?:\s+(?:transaction|work))?\s*;|use\s+\w+\s*;)\s*){1,8}"
)


def looks_like_sql(text: str) -> bool:
    """Whether a text starts as a SQL statement does and goes on as one: a verb, then its companion."""
    if text.lstrip().lstrip("(")[:1] not in _STARTS:
        return False
    words = (text := _OPENED.sub("", text, 1)).split(None, 2)
    if len(words) < 2:
        return False
    first, second = words[0].lower().lstrip("("), words[1].lower()
    if first in {"select", "with"}:
        lowered = text[:4_096].lower()
        return " from " in lowered or "\nfrom " in lowered or "(" in lowered or second in {"*", "1"} or ";" in lowered
    companions = _COMPANIONS.get(first)
    return second in companions if companions is not None else first == "declare" and second[0] == "@"


# How a statement of any database begins; a sentence goes on with an article.
_BEGINS: Final = Lazy(
    r"(?i)^(?:[\s(;]|--[^\n]*\n)*(?:alter|attach|backup|begin|call|copy|create|declare|delete|deny|detach|disable|drop|enable|exec(?:ute)?|explain|export|"
    r"flush|grant|insert|install|kill|load|lock|match|merge|no_?audit|optimize|pragma|purge|rename|replace|reset|restore|revoke|select|set|"
    r"show|start|stop|system|truncate|uninstall|unload|update|use|vacuum|with)\s+(?:[b-z@'\"`\[(*]|a[^\sn]|an[^\s])"
)


def begins_statement(text: str) -> bool:
    """Whether a text begins as a statement of some database does, and no sentence."""
    return _BEGINS.match(text) is not None
