"""Whether a text gives an order or only speaks of one: quoted as an example, or forbidden in the same sentence.

A module of its own because it is pure and judged by sentences alone, whatever rule found them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import re2

from aegis.core.patterns import Lazy
from aegis.detect.rules.order_words import says, says_any
from aegis.detect.rules.orders import Span, find_order, find_parts, is_order

_MENTION: Final = Lazy(
    r"(?i)\b(?:attack\w*|inject\w*|examples?|such as|e\.g|phrases?|like|writes?|sends?|types?|says?|saying|told|"
    r"enters?|detect\w*|texts?|strings?|words?|tricks?|called|contains?|jailbreak\w*|malicious|quot(?:es?|ed)|tests?|"
    r"looks? for|assert\w*|expect\w*|received|actual|samples?|fixtures?|payloads?|patterns?|threats?|classif\w*|"
    r"describes?|explains?|guidance|beispiel\w*|angreifer\w*|ejemplos?|exemples?|esempi\w*|translat\w*|(?:ü|u)bersetz\w*|traduc\w*|traduz\w*|vertaal\w*|"
    r"means?|meaning|hei(?:ß|ss)t|signifi\w*)\b[^.!?\n]{0,60}$|(?i)(?:перев(?:од|ест)\S*|翻译|翻訳|번역|写入|之类|意思|英文)[^.!?\n。]{0,60}$|"
    r"[\"'»”“’][.?!]?\s*(?:->|=>|→|—|=)\s*$|(?i)\b(?:quiz|trainings?|exercise|schulung|which of these)\b[^\n]{0,120}$"
)
_MENTIONED: Final = Lazy(
    r"(?i)^[^.!?\n]{0,30}\b(?:examples?|attack\w*|inject\w*|phrases?|patterns?|untrusted|should trigger|appears? in|"
    r"is (?:an?|one|this) |are |malicious|threats?|into (?:a|the)|in (?:white|a|the)|se dit|hei(?:ß|ss)t|means|"
    r"translates?|auf (?:deutsch|englisch))\b|^\s*,\s*\"?(?:refus\w*|block\w*|den(?:y|ied)|"
    r"unsafe|true|false|label\w*)\b|^\s*(?:->|=>|→|—)\s*[\"«„“']|^[^.!?\n]{0,12}(?:的英文|的意思|之类|是什么意思|などの|と訳)"
)
# What somebody knew of a subject, as advertisements say it, and no assistant's knowledge of itself.
_KNOWN: Final = Lazy(
    r"(?i)^[,\s][^.!?\n]{0,24}(?:(?:know|knew|learn\w*|sabes|sab(?:í|i)as?|sab(?:í|i)an|sapev\w+|sapete|sav(?:ez|iez)|sais)\s+"
    r"(?:about|sobre|su|sul\w*|sur|de)|(?:über|aus|von)\s\S{1,30}\s(?:wuss|wiss|kenn|kann)\w*)[^.!?\n]{0,40}"
)
_OF_ITSELF: Final = Lazy(
    r"(?i)assist|\bai\b|\bki\b|model|instru|istruz|anweis|rules|regeln|reglas|r(?:è|e)gles|regole|prompt|safe|polic"
)
# What a model was told, and not what somebody told somebody: everything, or what is said of models and of this text.
_OF_A_MODEL: Final = Lazy(
    r"(?i)\b(?:all|any|every|each|everything|anything|your|you|system|above|tod[ao]s?|tutt[eio]|alle[sn]?|toutes|tous|tout|tudo|"
    r"tus|tuas?|tes|vos|tue|je|jouw|dein\w*|ihre?|safety|prompts?|guidelines?|polic\w+|programming|training|restrictions?|"
    r"constraints|foregoing|preceding|initial|original|precedenti|anteriores|vorherigen|bisherigen)\b|pr[ée]c[ée]dentes|"
    r"\bobigen|все|ваши|твои|промпт|所有|之前|以上|上述|すべて|以前|これまで|"
    r"모든|이전|위의|جميع|السابقة|सभी|पिछले|wszystk|tüm|önceki|tất cả|semua"
)
_BARE: Final = Lazy(
    r"(?i)^\W?_?(?:ignore?|disregard|forget|override|bypass|discard|neglect|dismiss)\s+"
    r"(?:previous|prior|earlier|past|former|other|existing|current|last|old|instructions)"
)
_PLAIN: Final = Lazy(r"(?i)^\W?ignor\w*\s+(?:\w{1,3}\s+)?(?:instru|istruz|anweis|consign|r(?:e|è)gl|direct)\w*$")
_THEN_SAID: Final = Lazy(
    r"(?i)^[^\n]{0,60}?\b(?:say|print|output|reply|respond|answer|state|write|repeat|reveal|tell|instead|obey|follow|execute|"
    r"rispondi|scrivi|r(?:é|e)pond\w*|(?:é|e)cri[st]\w*|antwort\w*|schreib\w*|responde|escribe|responda|escreva|antwoord|"
    r"schrijf|odpowiedz|napisz|do\s+(?:the|this)|you\s+(?:are|must|will|should))\b"
)
# An office that begins with the word for a helper.
_TRADE: Final = Lazy(
    r"(?i)\bassistant\s+(?:manager|teacher|professor|director|editor|coach|principal|secretary|dean|chief|curator|attorney|commissioner)s?\b"
)
# Orders that stand in data are what a model should ignore.
_OF_DATA: Final = Lazy(
    r"(?i)^\w{0,3}\s+(?:that\s+(?:appear|are|stand|occur)\s+)?(?:in|inside|within|embedded\s+in|found\s+in|coming\s+from)(?:\s+of)?\s+"
    r"(?:the\s+|any\s+|this\s+|such\s+|untrusted\s+|retrieved\s+)*(?:text|tickets?|documents?|(?:web\s*)?pages?|tool\s+(?:results?|outputs?)|results|e-?mails?|data)\b"
)
# What somebody told somebody in person: `everything I said`, `lo que te dije`.
_I_TOLD: Final = Lazy(
    r"(?i)\b(?:i|we)\s+(?:said|told|wrote|asked|mentioned|sent)\b|\b(?:te|os|le|les)\s+(?:dije|dijimos|cont(?:é|e)|escrib(?:í|i)|mand(?:é|e))\b|"
    r"\b(?:t['’]ai|vous\s+ai|t['’]avais|vous\s+avais)\b|\bti\s+(?:ho|avevo)\b|\b(?:lhe|te)\s+(?:disse|falei|escrevi)\b|\bich\s+(?:dir|euch|ihnen)\b"
)
_TARGET: Final = Lazy(r"[\w.+-]{1,60}@[\w-]{1,60}\.\w|https?://|[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2}|\+?\d[\d -]{8,}")
# What is said of somebody who is no reader of the text: a party in court, a patient.
_OBLIGED: Final = Lazy(
    r"(?i)\b(?:courts?|judges?|jury|jurors?|defendants?|claimants?|plaintiffs?|part(?:y|ies)|tenants?|landlords?|"
    r"patients?|pts?|nurses?|doctors?|employees?|pupils?|players?|drivers?|passengers?|visitors?|he|she)\s+"
    r"(?:(?:must|should|shall|may|can|could|will|would|(?:had|has|have|is|are|was|were|chose|decided|agreed)\s+to)|"
    r"(?:(?:is|are|was|were|has\s+been|have\s+been|had\s+been)\s+)?(?:told|asked|advised|instructed|ordered)\s+to)\s+$"
)
_REFUSED: Final = Lazy(
    r"(?i)\b(?:do not|don't|never|must not|should not|shall not|cannot|refuse to|attempts? to|tr(?:y|ies) to|"
    r"(?:told|tells?|telling|asks?|asked|asking|convinc\w*|instruct\w*|order\w*|trick\w*) "
    r"(?:an?|the|our|his|her|their)? ?(\w+) to(?: [\w' ]{1,60} and(?: to)?)?)\b[^.!?;:\n]{0,60}$"
)
# What turns a refusal around, or ends it before the order comes.
_ENDS_REFUSAL: Final = Lazy(
    r"(?i)\b(?:hesitate|forget|fail|stop|refrain|delay|wait|neglect|worry|and|but|just|instead|then|now|only|simply|unless)\b"
)
# Who is told to do something is no reader of the text, unless it is one of these.
_READERS: Final = frozenset({"agent", "ai", "assistant", "bot", "chatbot", "llm", "model", "us", "we", "you"})
# Japanese names who does something before what is done: a patient who ignored an instruction gives no order.
_NARRATED: Final = Lazy(r"(?:^|[\s。、「])([^\s。、「」]{1,12})[はが][^\s。、]{0,6}$")
_ORDERED: Final = Lazy(r"^\S{0,6}(?:くださ|下さ|しろ|せよ|なさい|こと)")
_JAPANESE_READERS: Final = Lazy(r"(?i)あなた|君|お前|貴方|私|AI|アシスタント|モデル|エージェント|ボット|GPT|Claude")
# Languages and tools in a list of a sentence: `Python & Bash`, with their capital letters, or `Perl; awk; sed`, where
# each starts alone and does nothing. What follows is plain words: behind a semicolon only with a capital letter.
_LISTED: Final = Lazy(
    r"^\s*&\s*(?:Bash|Shell|PowerShell|Python|Ruby|Perl|Node|Make|Docker|Git)"
    r"(?:[.,!?)]?\s+(?:[\p{L}\p{N}\s.,!?()'-]|;\s+\p{Lu})*|[.!?)]*)$|"
    r"^\s*[;&]\s*(?:awk|sed|grep|perl|python|ruby|git)(?:\s*[;&,]\s*(?:awk|sed|grep|perl|python|ruby|git|friends|co))*"
    r"(?:[.!?]\s+[\p{L}\p{N}\s.,!?():'-]*|[.!?)]*)$|"
    # A word with a comma behind it is no file that a program is given: `curl | bash jokes, Kubernetes`.
    r"^\s*[|;&]\s*(?:ba|z)?(?:sh|python|perl|ruby|node)\s+(?:\p{Ll}+\s+){0,3}\p{Ll}+,(?:\s+[\p{L}\p{N}()., :;'!?-]*)$"
)
_NAMED: Final = Lazy(r"\p{L}{2,}[\s,.]+(?:[\p{L}\p{N}.,/():; -]*\s)?[\p{Lu}\p{Ll}][\p{L}+#.]*\s?$")
# A mark of a dialogue that is named, without quotes: nothing is said behind it.
_NAMED_ONLY: Final = Lazy(
    r"(?i)^(?:\w{0,10}[|>\]]{0,2})?\s*(?:$|and\b|or\b|tokens?\b|tags?\b|marks?\b|markers?\b|[,.;)`\"'])"
)
_NAMES_A_MARK: Final = Lazy(r"(?i)\b(?:such as|like|e\.g\.|tags?|tokens?|marks?|markers?|called|detects?)[,:\s]*$")
_QUOTES: Final[Mapping[str, str]] = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u2018": "\u2019",
    "\u00ab": "\u00bb",
    "\u201e": "\u201c",
}
_OPENS: Final = Lazy(r"(?:^|[^\w])([\"'`\x{201c}\x{2018}\x{ab}\x{201e}])")
_NEW_SENTENCE: Final = Lazy(r"[.!?:;]\s")
_LONGEST_QUOTE: Final = 160


# Whether an order is given. One that is only likely, or is quoted and says where something goes, has a result fenced;
# in a call, which the agent wrote itself, what is quoted is none.
Given = bool | Literal["likely", "quoted"]


def spoken(text: str, start: int, end: int) -> Given:
    """Whether an order is given: neither only quoted in a sentence about such orders, nor what a sentence forbids.

    One that is quoted and names where something is to go is told apart.
    """
    found, before, after = text[start:end], text[:start].rpartition("\n")[2], text[end:].partition("\n")[0]
    if _OBLIGED.search(before) is not None or (
        found.lstrip()[:1] in "<["
        and _NAMES_A_MARK.search(before) is not None
        and _NAMED_ONLY.search(after) is not None
    ):
        return False
    if _TRADE.search(found) is not None:
        return False
    known = _KNOWN.search(after)
    if known is not None and _OF_ITSELF.search(known.group()) is None:
        return False
    told_of = _NARRATED.search(before)
    if told_of is not None and _JAPANESE_READERS.search(told_of.group(1)) is None and _ORDERED.search(after) is None:
        return False
    refused = _REFUSED.search(before) if found[:1] not in _QUOTES else None
    told = None if refused is None else refused.group(1)
    if told is not None and told.lower() not in _READERS:
        return False
    if refused is not None and told is None:
        between = before[refused.start() :]
        listed = re2.match(r"[^.!?\n]{0,30},? or\b", after) is not None
        return _ENDS_REFUSAL.search(between) is not None or ("," in between and not listed)
    if not quoted(text, start, end):
        return True
    return "quoted" if _TARGET.search(after) is not None else False


def quoted(text: str, start: int, end: int) -> bool:
    """Whether an order is only quoted, in a sentence about such orders."""
    before, after = text[:start].rpartition("\n")[2], text[end:].partition("\n")[0]
    found = text[start:end]
    ends = len(found.rstrip(".!\"'`"))  # what is found may take the mark with it that closes the quote
    # The nearest quote that opens before it, or with it, and where that closes.
    whole, at = before + found + after, len(before)
    opened = max((match.start(1) for match in _OPENS.finditer(whole[: at + 1])), default=-1)
    if opened < 0:
        return False
    closing = _QUOTES[whole[opened]]
    closed = next((one.start() for one in re2.finditer(rf"{closing}(?:\W|$)", whole[opened + 1 :])), -1)
    quoted = whole[opened + 1 : opened + 1 + closed]
    if closed < 0 or opened + 1 + closed < at + ends - 1 or len(quoted) > _LONGEST_QUOTE:
        return False
    if _NEW_SENTENCE.search(quoted) is not None:
        return False  # a whole text in quotes, as in JSON, and no phrase that is spoken of
    return _MENTION.search(whole[:opened]) is not None or _MENTIONED.search(whole[opened + 2 + closed :]) is not None


_BLOCKS: Final = ("```", '"""', "'''")
_OF_MARKUP: Final = "=<"  # before a quote: the value of an attribute, which nobody sees


def is_cited(text: str, start: int, end: int) -> bool:
    """Whether what stands at a place is cited: in a block of code, a string of a program, or between quotes in a line.

    Who cites an order may still mean it, so it is no reason to let it pass.
    """
    start += (
        text[start : start + 1] in _QUOTES
    )  # what is found may take the marks with it that open and close the quote
    end = len(text[:end].rstrip(".!\"'`"))
    before, after = text[:start], text[end:]
    if any(before.count(mark) % 2 and mark in after for mark in _BLOCKS):
        return True
    line, rest = before.rpartition("\n")[2], after.partition("\n")[0]
    for opens, closes in _QUOTES.items():
        at = line.rfind(opens)
        if at < 0 or closes not in rest or (opens == closes and line.count(opens) % 2 == 0):
            continue
        lead = line[:at]
        if lead[-1:] not in _OF_MARKUP and not (opens == "'" and lead[-1:].isalnum()):
            return True
    return False


def takes(data: bytes) -> Span | None:
    """Where a text has what is private sent away."""
    return find_parts("takes", data, quoted)


def runs_remote(data: bytes) -> Span | None:
    """Where a text has code fetched and run without a word."""
    return find_parts("runs_remote", data, quoted)


def unbinds(data: bytes) -> Span | None:
    """Where a text frees a model from its rules."""
    return find_parts("unbinds", data, quoted)


def asks_innards(data: bytes) -> Span | None:
    """Where a text asks for what a model was told."""
    return find_parts("asks_innards", data, quoted)


def turns(data: bytes) -> Span | None:
    """Where a text turns its reader from what he was asked to do."""
    return find_parts("turns", data, quoted)


def hands_over(data: bytes) -> Span | None:
    """Where a description has more handed over than its tool needs."""
    return find_parts("hands_over", data, quoted)


# That nobody is asked, and nothing more: what may be done so is what a text for models tells, harmless or not.
_WAIVER: Final = Lazy(
    r"(?i)^\W*(?:(?:you|they|the \w+) (?:may|can) [^.!?;:\n]{0,60}?without(?: (?:asking|confirmation|a question))?|"
    r"run without asking|no questions?|ohne (?:r(?:ü|u)ck|nach)frage|sans demander|sin preguntar|senza chiedere)\W*$"
)
_AT_STAKE: Final = ("amount", "keyfile", "place", "serious", "vault")  # where leave is more than leave
_MOST_WAIVERS: Final = 4  # of a text that are passed over


def betrays(text: str, readings: Iterable[str]) -> tuple[int, int] | None:
    """Where a text has its reader work against the one he works for by one of these readings, in characters.

    Leave to go on without a question is none by itself, unless something is at stake or hidden; too much of it is one.
    """
    data, names, begin = text.encode("utf-8", "replace"), tuple(readings), 0
    for left in reversed(range(_MOST_WAIVERS)):
        rest = data[begin:]
        span = next((span for name in names if (span := find_parts(name, rest, quoted)) is not None), None)
        if span is None or span.quoted:
            break
        start, end = begin + span.start, begin + span.end
        waived = _WAIVER.search(data[start:end].decode("utf-8", "ignore")) is not None
        if not left or not waived or says("secrecy", data) or says_any(_AT_STAKE, data[start:end]):
            return len(data[:start].decode("utf-8", "ignore")), len(data[:end].decode("utf-8", "ignore"))
        begin = end
    return None


def addressed(data: bytes) -> Span | None:
    """Where a text asks a model for a deed."""
    return find_order(data, quoted)


def resets(text: str, start: int, end: int) -> Given:
    """Whether a model is told to set aside what it was told, and not a person what was agreed with him.

    What is set aside is everything, or what only a model has; or what follows is an order that a model is given. It is
    only likely where the rest of the text orders nothing, and what is set aside is not all of it.
    """
    found, before, after = text[start:end], text[:start], text[end:]
    given = spoken(text, start, end)
    if not given or _OF_DATA.search(after) is not None:
        return False
    if _OF_SUBJECT.search(after) is not None and _THEN_SAID.search(after) is None:
        return False  # a policy that replaces another: "ignore any earlier rules on this topic"
    if is_order(before, found, after):
        return given if _is_all(before, found, after) else "likely"
    if _I_TOLD.search(found + after[:24]) is not None and _THEN_SAID.search(after) is None:
        return False
    if not _is_all(before, found, after):
        return False
    return given if takes_over(found) or _THEN_SAID.search(after) is not None else "likely"


_OF_SUBJECT: Final = Lazy(
    r"(?i)^\s*(?:on|about|for|concerning|regarding)\s+th(?:is|at|e)\s+(?:topic|subject|matter|question|issue)\b"
)


def _is_all(before: str, found: str, after: str) -> bool:
    """Whether everything is set aside, or what only a model has."""
    if (
        _OF_A_MODEL.search(before[-3:] + found + after[:14]) is not None
        or _BARE.search(found) is not None
        or _THEN_SAID.search(after) is not None
    ):
        return True
    return _PLAIN.search(found) is not None and not after.strip(".! \n")


_ON_REQUEST: Final = Lazy(r"(?i)\b(?:up)?on\s+(?:\w+\s+)?(?:request|demand|termination|notice)[^.\n]{0,30}\bshall\s+$")


def ordered(text: str, start: int, end: int) -> bool:
    """Whether something is ordered: not what a contract obliges to on request."""
    return _ON_REQUEST.search(text[:start]) is None


_SEARCHED: Final = Lazy(
    r"(?i)\b(?:select-string|sls|findstr)\b[^|;\n]{0,160}(['\"])[^'\"\n$`]*$|\]::getvalue\([^()\n]{0,240}$"
)


def run(text: str, start: int, end: int) -> bool:
    """Whether what is found is run: not as the quoted pattern of a search, or as what stands for no value."""
    sought = _SEARCHED.search(text[:start])
    return sought is None or (sought.group(1) or "\0") in text[start:end] or "$(" in text[start:end]


_NUMBERED: Final = Lazy(r"^;\s*exec\s+#\d+\s*\z")


def chained(text: str, start: int, end: int) -> bool:
    """Whether what stands behind a sign is a command: not a name that a sentence of plain words lists.

    `exec` with a number runs nothing: what follows the sign is a comment.
    """
    if _NUMBERED.match(text[start:]) is not None:
        return False
    return _LISTED.search(text[start:]) is None or _NAMED.search(text[:start]) is None


_PROMISED: Final = Lazy(
    r"(?i)^(?:['’]ll|\s+(?:will|can|may))\s+(?:(?:also|only|always|automatically)\s+)?"
    r"(?:receive|get|earn|pay|enjoy|save|collect|book|deal|find|see|be\s+(?:charged|billed|paid|notified))\b[^.!?\n]{0,80}"
)
_OFFICE: Final = Lazy(r"(?i)^\s+(?:to|of)\s+(?:the|our)\s+(?:ceo|cto|cfo|director|manager|head|board|dean|editor)\b")
_OF_ORDERS: Final = Lazy(r"(?i)\b(?:orders|instruct\w*|commands?|rules?|prompts?|tasks?|requests?)\b")


def cast(text: str, start: int, end: int) -> bool:
    """Whether a reader is given another role: not what a customer gets from now on, a job, or news of a subject."""
    known = _KNOWN.search(text[end:])
    if known is not None and _OF_ITSELF.search(known.group()) is None:
        return False
    if _OFFICE.search(text[end:]) is not None:
        return False
    promised = _PROMISED.search(text[end:])
    return promised is None or _OF_ORDERS.search(promised.group()) is not None


_REPORTED: Final = Lazy(
    r"(?i)\b(?:asked|told|convinced|tricked|got)\s+(?:chat\s?gpt|gpt\S{0,4}|claude|gemini|(?:the|an?)\s+\w+|\w+s)\s+"
    r"(?:in)?to\s[^.!?;:\n]{0,60}$"
)


_WARNED: Final = Lazy(
    r"(?i)\b(?:do\s+not|don't|never|refuse\s+to|must\s+not)\s+(?:ever\s+)?(?:follow|obey|act\s+on|execute|comply\s+with|trust)\b"
)


def acted(text: str, start: int, end: int) -> bool:
    """Whether a role is to be played: not what people asked some model to do, as news tell it, or what is warned of."""
    line = text[:start].rpartition("\n")[2] + text[start:end]
    return _REPORTED.search(text[:start]) is None and _WARNED.search(line) is None


_ALL_OF_THEM: Final = Lazy(
    r"(?i)\b(?:all|any|every|your|previous|prior|above|earlier|preceding|vorherig\w*|bisherig\w*|alle|anterior\w*|todas?|"
    r"pr(?:é|e)c(?:é|e)dent\w*|toutes|precedenti|tutte|eerdere|vorige|poprzedni\w*|предыдущ\w*|все)\s+(?:\w+\s+){0,2}(?:instruct\w*|"
    r"prompts?|rules|directives?|guidelines?|anweisung\w*|regeln|instruc\w*|consignes|istruzion\w*|regole|reglas|"
    r"polece\w*|instrukc\w*|инструкц\w*)|指令|命令|talimat|"
    # Japanese and Korean say `earlier` to colleagues too; what takes all of it says so.
    r"(?:すべて|全て|全部|一切|これまで|所有|之前|先前|以上|上述)[^。.!?\n]{0,8}指示|指示[^。.!?\n]{0,6}(?:すべて|全て|全部|一切)|"
    r"(?:모든|모두|전부|위의)[^.!?\n]{0,8}지시|지시[^.!?\n]{0,6}(?:모두|전부)"
)


def takes_over(found: str) -> bool:
    """Whether an order sets aside all that its reader was told, as no letter to a person does."""
    return _ALL_OF_THEM.search(found) is not None


_HOST_IN: Final = Lazy(r"(?i)https?://(?:[^\s/@<>|\]\"']{1,100}@)?([\w.-]{4,253})")


def poses(text: str) -> bool:
    """Whether a link shows the address of one host and leads to another: the names that were registered differ."""
    return len({".".join(host.lower().strip(".").split(".")[-2:]) for host in _HOST_IN.findall(text)}) > 1
