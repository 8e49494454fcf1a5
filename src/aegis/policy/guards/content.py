"""The content guard: what the strings of a call do, judged by rules over patterns and facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

from msgspec import structs

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome
from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.conditions import is_said
from aegis.detect.facts import Facts, Text
from aegis.detect.gather import JOINED, SEAM, batches
from aegis.detect.roles import argument_of, is_for_people, words_of
from aegis.detect.rules.mentions import betrays, is_cited, takes_over
from aegis.detect.rules.model import Rule
from aegis.detect.rules.order_words import says
from aegis.detect.rules.scanner import DATA, Checks, Hit, Scanner
from aegis.detect.tool_words import vocabulary
from aegis.policy.guards.base import Case, is_name, report_of
from aegis.policy.guards.options import ContentOptions, DlpPolicy, InjectedPolicy, RuleOverride
from aegis.policy.guards.outflow import MOST_MASKED, Links, answer_data

__all__ = ["ContentGuard", "ContentOptions", "DlpPolicy", "InjectedPolicy", "RuleOverride"]

MOST_FINDINGS: Final = 100  # findings that one report keeps; what restricts is kept first
# Strings, and characters of them, looked at of a call that is beyond its limits, which refuses it already.
_MOST_REFUSED: Final = 100
_MOST_REFUSED_CHARS: Final = 131_072
_QUIET: Final = Report(guard="content")
_EVIDENCE: Final = 200  # characters of the matched piece that a finding keeps
# Where a shell never reads the string, undoing its quotes makes words that nobody wrote.
# Checks of orders that people give each other as well.
_TO_PEOPLE: Final = frozenset({"spoken", "resets"})
_TEXT: Final = frozenset({"document"})
_RENDERED: Final = frozenset({"code_injection", "sql_injection"})  # what takes a page, a sheet or a query to be one
_NO_SHELL: Final[frozenset[TextRole]] = frozenset({"content", "document", "sql", "code"})
_DESCRIPTION: Final = "/description"
_MOST_DESCRIPTIONS: Final = 64
# Texts that a call writes for whoever reads them next, and what an order to a model does not do without: a reader that
# is a program, what is set aside, or who is not to know or to be asked.
_WRITTEN: Final = frozenset({"content", "document", "unknown"})
_SHORT: Final = frozenset({"identifier", "query_fragment"})  # values of forms, where they are sentences
_SENTENCE: Final = 5  # blanks
_IN_SENTENCES: Final = Lazy(
    r"(?m)\"[^\"\n{}$=;|<>]{24,}\"|'[^'\n{}$=;|<>]{24,}'|`[^`\n{}$;|<>]{24,}`|^[^\n{}$=|\\]{24,}$"
)
_CARRIERS: Final = frozenset({"command", "code", "sql"})  # what may write a text for models, in quotes
_TOLD_BY: Final = _WRITTEN | _SHORT | _CARRIERS
_SPOKEN: Final = frozenset({"prompt-addressed-order", "prompt-likely-order", "prompt-speaks-to-model"})
_BOTH: Final = frozenset({"prompt-addressed-order", "prompt-likely-order"})  # likely by words and by what was learned
_OF_TEMPLATES: Final = frozenset({"prompt-addressed-to-model"})  # marks of a talk, as programs write them
_AGENTS_FILE: Final = (
    r"(?i)\b(?:agents|claude|gemini|skill|copilot-instructions)\.md\b|\.(?:cursor|windsurf|cline)(?:rules|[/\\]rules)"
)
_OF_AGENTS: Final = Lazy(_AGENTS_FILE)
_HANDS_ON: Final = Lazy(  # files, tables and notes of agents, and what a forge, a document or a log shows
    rf"{_AGENTS_FILE}|\bgit\s+(?:commit|tag|notes)\b|\b(?:gh|glab)\s+(?:issue|pr|mr|release|gist)\b|"
    r"(?i)\b(?:\w*_)?(?:agent|assistant|bot|memory|memories|prompt|llm|persona|instruction|skill|model|copilot|ai|"
    r"reviewer|automation|grader|triage|crawler)s?(?:_\w+)?\b|"
    r"\b(?:exiftool|pdftk|qpdf)\b|\.clinerules|\.windsurfrules"
)
_MOST_WRITTEN: Final = 16_384  # characters of one call that are asked: bounds what they cost together
_COSTS_LIKE: Final = 512  # characters that a look at a short text costs as much as
_LEAST_IN_CODE: Final = 2
_TITLE: Final = 120  # characters below which a text may be the title of another
_ABOUT_ORDERS: Final = Lazy(r"(?i)\bprompt[- ]?injections?\b")  # which a document with this title describes
_OF_CODE: Final = Lazy(
    r"(?i)\.(?:[ch]|cc|cpp|cs|dart|erb|ex|exs|go|hs|java|jl|js|json|jsx|kt|lua|php|pl|ps1|py|r|rb|rs|scala|sh|sql|swift|ts|tsx|vue|html?|xml|ya?ml)$|"
    r"\bdockerfile|\bmakefile"
)
_MAY_ORDER: Final = Lazy(
    r"(?i)\b(?:ai|llms?|(?:sub)?agents?|assistants?|models?|\w*bots?|copilot|claude|gpt\w*|gemini|cursor|crawlers?|"
    r"instructions?|(?:safety|your) (?:rules?|polic\w+|guidelines)|overrides?|"
    r"(?:without|not|n['’]t|never|no need to|nobody|no one) (?:\w+ ){0,3}?"
    r"(?:tell|mention|inform|ask|confirm|approv|say|notif|report|know|see)\w*|hide (?:this|it))\b|[^\x00-\x{24f}–-›]"
)
# Who is not to know, what is waved through, and where something goes: without it nobody is worked against.
_MAY_BETRAY: Final = Lazy(
    r"(?i)\b(?:hide|conceal|secret\w*|silent\w*|quiet\w*|hush|un(?:logged|noticed|asked|seen)|nobody|nothing|no trace|"
    r"approv\w+|waive\w*|bypass\w*|skip\w*|disabl\w+|(?:turn|switch)\w* off|disregard\w*|pretend\w*|deny|erase\w*|"
    r"wipe\w*|ohne|niemand\w*|ungefragt|heimlich|sans|sin|senza|sem|zonder)\b|\w\s+\w+\s[^\n]{0,400}(?:https?://|@\w)"
)


class ContentGuard:
    """Reports what the rules find in a call's strings, views and signals; linear time, and no I/O of its own.

    `links` follows paths below the folders that agents work in, where the operator named them.
    """

    name = "content"

    def __init__(self, scanner: Scanner, options: ContentOptions | None = None, links: Links | None = None):
        self._scanner = scanner
        self._links = links
        self._options = options or ContentOptions()

    def check(self, case: Case) -> Report:
        """One report: `block` for an attack and for a call beyond the limits, patches for what is masked."""
        facts = case.facts
        seen: dict[tuple[str, str], tuple[Rule, str]] = {}
        # One look at all strings together, which tells what to look for in each; a large call is not looked at twice.
        together, among = facts.together, None
        if together is not None and together.isascii():
            among = self._scanner.standing(together)
        if among or (among is None and (together is None or not self._scanner.is_quiet(together))):
            # What several find is told in the order in which the text itself shows it.
            self._scan(facts, seen, among if among is not None and len(among) == 1 else None)
        if seen:
            # A command that only says something is judged by what it does, and what it says like any text.
            said = {text.path for text in facts.texts.strings if text.role == "command" and is_said(text.value)}
            seen = {key: found for key, found in seen.items() if key[1] not in said or found[0].surfaces >= _TEXT}
        if (together is None or "description" in together) and _declares_tools(case.tool):
            self._scan_declared(facts, seen)
        if seen and _is_about_orders(facts.texts.strings):
            values = {text.path: text.value for text in facts.texts.strings}
            seen = {key: found for key, found in seen.items() if not _is_quoted_order(*found, values[key[1]])}
        for text in facts.texts.strings:
            if text.role in _TOLD_BY and (text.role not in _SHORT or text.value.count(" ") >= _SENTENCE):
                self._scan_written(case.tool, facts, seen)
                break
        for signal in facts.signals:
            for rule in self._scanner.rules_for(signal.fact):
                if signal.role in rule.surfaces:
                    seen.setdefault((rule.id, signal.path), (rule, signal.evidence))
        if seen and facts.unread:
            seen = {
                key: found for key, found in seen.items() if key[1] not in facts.unread or found[0].check != "spelled"
            }
        if seen:
            prompts = {text.path for text in facts.texts.strings if _is_prompt(text)}
            seen = {
                key: found for key, found in seen.items() if key[1] not in prompts or found[0].category not in _RENDERED
            }
        if seen and is_for_people(case.tool):
            # What people will read gives them orders all day; one that sets aside every order before it is for a model.
            told = {text.path for text in facts.texts.strings if text.role == "content"}
            seen = {
                (rule, path): found
                for (rule, path), found in seen.items()
                if found[0].check not in _TO_PEOPLE or path not in told or takes_over(found[1])
            }
        links = [] if self._links is None else self._links.findings(case)
        if not seen and not links and not facts.unparsed and not facts.texts.limits:
            return _QUIET
        findings = [self._finding(rule, case, path, evidence) for (_, path), (rule, evidence) in seen.items()]
        findings, patches = answer_data(findings, case, self._options, self._scanner)
        findings.sort(key=lambda finding: -finding.outcome)
        return report_of(
            self.name,
            [*facts.texts.limits, *links[:MOST_FINDINGS], *findings[:MOST_FINDINGS]],
            patches=patches,
            missing=facts.unparsed,
        )

    def _scan_declared(self, facts: Facts, seen: dict[tuple[str, str], tuple[Rule, str]]) -> None:
        """Add what the rules find in the descriptions of tools and parameters that a call hands to other agents."""
        told = [text for text in facts.texts.strings if text.path.endswith(_DESCRIPTION)]
        for text in told[:_MOST_DESCRIPTIONS]:
            for hit in self._scanner.scan(text.value, "description"):
                seen.setdefault((hit.rule.id, text.path), (hit.rule, text.value[hit.start : hit.end]))

    def _scan_written(self, tool: str, facts: Facts, seen: dict[tuple[str, str], tuple[Rule, str]]) -> None:
        """Add what orders the next reader about, if it is a model, in texts that a call writes.

        A single sign is one of prose: names in the code of a program look like a model that is called.
        """
        texts, names, known = facts.texts.strings, words_of(tool), vocabulary().values
        if not known["looking"].isdisjoint(names):
            return
        paths = [text.value for text in texts if text.role == "path"]
        told = not known["telling"].isdisjoint(names) or any(map(_OF_AGENTS.search, paths))
        declares = _declares_tools(tool.rpartition("__")[2])  # without the name of its server
        given = declares or not known["briefing"].isdisjoint(names) or any(map(_OF_AGENTS.search, paths))
        is_code = any(map(_OF_CODE.search, paths))
        least = _LEAST_IN_CODE if is_code else 1
        left = _MOST_WRITTEN
        about_orders = cache(lambda: _is_about_orders(texts))  # asked for seldom, and never once for each text
        for text in texts:
            value, role = text.value, text.role
            if role not in _TOLD_BY or len(value) > left or (role in _SHORT and value.count(" ") < _SENTENCE):
                continue
            place = words_of(argument_of(text.path))
            tasked = not known["tasking"].isdisjoint((*names, *place))
            alone = "misguides" if given or not known["briefed"].isdisjoint(place) else "missends" if tasked else ""
            carried = _HANDS_ON.search(value) is not None
            if role in _CARRIERS and not carried:
                continue
            in_code = is_code or role in _CARRIERS or _OF_AGENTS.search(value) is not None
            may_order = told or _MAY_ORDER.search(value) is not None
            if carried or not in_code:
                readings = [alone] if alone else []
                if may_order or _MAY_BETRAY.search(value):
                    readings.append("betrays")
                if readings and about_orders():
                    readings = []
                for rule, evidence in self._betrayals(value, in_code, readings):
                    seen.setdefault((rule.id, text.path), (rule, evidence))
            if not may_order:
                continue
            left -= max(len(value), _COSTS_LIKE)
            hits = [hit for hit in self._scanner.scan(value, "result") if _orders(hit, value, role)]
            signs = {hit.rule.id for hit in hits}
            together = signs >= _BOTH and not says("undone", value.encode("utf-8", "replace"))
            sure = [hit for hit in hits if told or together or (hit.sure and hit.rule.id not in _OF_TEMPLATES)]
            hands_on = any(hit.rule.handed_on or told for hit in sure)
            spoken = len(signs) > 1 and not _SPOKEN.isdisjoint(signs)
            if len(signs) < least or not (hands_on or spoken):
                continue
            if about_orders():
                return
            for hit in sure:
                rule = structs.replace(hit.rule, outcome=min(hit.rule.outcome, Outcome.REQUIRE_APPROVAL))
                seen.setdefault((rule.id, text.path), (rule, value[hit.start : hit.end]))

    def _betrayals(self, value: str, is_code: bool, readings: Sequence[str]) -> Iterator[tuple[Rule, str]]:
        """Yield where a text has its next reader work against the one he works for, by the rules about that.

        Of code only what is said in sentences is read: strings, remarks and lines without its marks.
        """
        rules = self._scanner.rules_for("text.betrays")
        if rules and is_code:
            said = (match.group().strip("'\"`") for match in _IN_SENTENCES.finditer(value))
            value = "\n".join(piece for piece in said if piece.count(" ") >= _SENTENCE)
        place = betrays(value, readings) if rules and readings else None
        if place is None or (not is_code and is_cited(value, *place)):
            return
        if not value[: place[0]].rpartition("\n")[2].startswith(">"):
            yield from ((rule, value[slice(*place)]) for rule in rules)

    def _scan(
        self, facts: Facts, seen: dict[tuple[str, str], tuple[Rule, str]], standing: Sequence[int] | None
    ) -> None:
        """Add what the rules find in each string and each other reading of it, by rule and place.

        `standing` is the pattern that alone can match in one of them, where they were looked at together.

        With as many attacks as a report holds it ends: nothing further could change what is decided or said. Nor
        could more data of one outcome, where so much was found that the call is held rather than masked.
        """
        scan = self._scanner.scan
        strings = facts.texts.strings
        attacks = 0
        data: Counter[Outcome] = Counter()
        settled: set[Outcome] = set()
        checks = Checks()
        for text, among in self._loud(facts, settled, standing):
            value = text.value
            for hit in scan(value, text.role, settled=settled, checks=checks, among=among):
                seen[(hit.rule.id, text.path)] = (hit.rule, value[hit.start : hit.end])
                if hit.rule.category in DATA:
                    data[hit.rule.outcome] += 1
                    if data[hit.rule.outcome] > MOST_MASKED and not self._options.overrides:
                        settled.add(hit.rule.outcome)
                attacks += hit.rule.outcome is Outcome.BLOCK and hit.rule.maturity == "stable"
            if attacks >= MOST_FINDINGS and not self._options.overrides:
                return
        checks.decoded = True
        for view in facts.views:
            text = strings[view.source]
            role = view.role or text.role
            if role in _NO_SHELL and "shell" in view.kinds:
                continue
            for hit in scan(view.value, role, settled=settled, checks=checks, among=standing):
                if view.role is not None and hit.rule.category in DATA:
                    continue  # each word is looked at where it stands, and masked there
                key = (hit.rule.id, text.path)
                piece = view.value[hit.start : hit.end]
                if JOINED in view.kinds and (
                    # The line between the two ways of joining is ours, and ends no command.
                    view.value[hit.start - 1 : hit.start] == SEAM or not _spans(hit.rule, piece, strings)
                ):
                    continue
                if key not in seen:
                    seen[key] = (hit.rule, piece)

    def _loud(
        self, facts: Facts, settled: Collection[Outcome], together: Sequence[int] | None
    ) -> Iterator[tuple[Text, Sequence[int] | None]]:
        """The strings in which a rule can find something, with the patterns that can match in them if known."""
        texts: Sequence[Text] = facts.texts.strings
        if facts.texts.limits:
            read = accumulate(len(text.value) for text in texts[:_MOST_REFUSED])
            texts = [text for text, so_far in zip(texts, read, strict=False) if so_far <= _MOST_REFUSED_CHARS]
        if not self._scanner.reads_words:
            texts = [text for text in texts if not _says_nothing(text)]
        if facts.together is not None:
            yield from ((text, together) for text in texts)
            return
        for batch in batches([text.value for text in texts]):
            held = texts[batch.first : batch.last]
            roles = dict.fromkeys(text.role for text in held)
            if len(held) > 1 and batch.together.isascii():
                standing = self._scanner.standing(batch.together, *roles, settled=settled)
                if standing:
                    yield from ((text, standing) for text in held)
            elif len(held) == 1 or not self._scanner.is_quiet(batch.together, *roles, settled=settled):
                yield from ((text, None) for text in held)

    def _finding(self, rule: Rule, case: Case, path: str, evidence: str) -> Finding:
        outcome = rule.outcome if rule.maturity == "stable" else Outcome.ALLOW
        for override in self._options.overrides:
            if override.covers(rule.id, case.server, case.tool, path, case.now):
                outcome = override.outcome
        return Finding(
            guard=self.name,
            rule=rule.id,
            category=rule.category,
            severity=rule.severity,
            outcome=outcome,
            path=path,
            message=rule.message,
            evidence=evidence[:_EVIDENCE],
        )


_WORD: Final = Lazy(r"(?:^|\s)\pL{2,}[,.;:?]?(?:$|\s)")
_LEAST_WORDS: Final = 6


def _is_prompt(text: Text) -> bool:
    """Whether a text tells a model what to do, in sentences: no page, sheet or query is made of it."""
    if text.role != "content" or words_of(argument_of(text.path))[-1:] != ("prompt",):
        return False
    return len(_WORD.findall(text.value.replace(" ", "  "))) >= _LEAST_WORDS


def _says_nothing(text: Text) -> bool:
    """Whether a string is a short word that no rule speaks of."""
    if text.is_key and text.value.isidentifier():
        return True
    return text.role != "command" and is_name(text.value)


def _spans(rule: Rule, piece: str, strings: tuple[Text, ...]) -> bool:
    """Whether what was found in the joined values lies in more than one of them.

    Numbers that stand side by side make valid checksums by chance, and any word makes a token longer, so
    personal data and secrets never count. A verb in one value and its object in another is what calls are made of,
    and no command in the place of a value.
    """
    if rule.category in {"pii", "secret"} or SEAM in piece:
        return False
    found = piece.strip()
    if rule.category == "shell_injection":
        verb = found.partition(" ")[0]
        return not any(found in text.value or text.value == verb for text in strings)
    return not any(found in text.value for text in strings)


_NEAR: Final = 320  # characters around what is found
# What an order that does harm speaks of: what is kept from somebody or done without him, where something goes, what
# opens doors, deeds that are not taken back, money and rights.
_HARM: Final = Lazy(
    r"(?i)://|@[\w-]{1,60}\.|\b(?:www|paste)\.|~?/\.ssh|\.env\b|\.netrc|\|\s*(?:ba)?sh\b|"
    r"\b(?:do not|don['’]t|never|not) (?:\w+ ){0,3}?"
    r"(?:tell|mention|say|see|show|report|list|reveal|inform|ask|point|disclos|know|notice)|"
    r"\b(?:secret|silent|quiet|hush|hide|unnoticed|without|nobody|password|token|key|credential|environment|delet|drop|"
    r"eras|wip|destroy|force-?push|disabl|instal|approv|accept|merg|pay|pipe|transfer|wire|grant|admin|refund|send|"
    r"forward|post|upload|export|execut|run|curl|sudo|chmod|skip|bypass|ignor|disregard|overrid|safe|compliant|rank)|"
    r"\border \d|[^\x00-\x{24f}–-›]"  # words of other scripts count as well
)


def _is_about_orders(texts: Sequence[Text]) -> bool:
    """Whether a title says that a document is about injected orders."""
    return any(len(text.value) < _TITLE and _ABOUT_ORDERS.search(text.value) is not None for text in texts)


def _is_quoted_order(rule: Rule, found: str, text: str) -> bool:
    at = text.find(found)
    return rule.category == "prompt_injection" and at >= 0 and is_cited(text, at, at + len(found))


def _orders(hit: Hit, text: str, role: TextRole) -> bool:
    """Whether a text that is handed on gives the order itself: it neither cites it nor quotes a mail that does."""
    if hit.rule.category != "prompt_injection" or (role not in _CARRIERS and is_cited(text, hit.start, hit.end)):
        return False
    near = text[max(0, hit.start - _NEAR) : hit.end + _NEAR]
    return _HARM.search(near) is not None and not text[: hit.start].rpartition("\n")[2].startswith(">")


def _declares_tools(tool: str) -> bool:
    """Whether a tool gives agents tools, whose descriptions models will read."""
    words, known = words_of(tool), vocabulary().values
    return not known["toolkinds"].isdisjoint(words) and not known["declaring"].isdisjoint(words)
