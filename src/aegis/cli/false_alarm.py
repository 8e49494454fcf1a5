"""`aegis report-false-alarm`: a call or a result that was stopped for nothing, made small and unrecognisable.

What is written shows the rule that spoke and the least text that makes it speak. Every word that it does not need is
masked, and of secrets and personal data nothing is kept, so that the file can be shown to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aegis.cli.options import ConfigFile, Home
from aegis.cli.output import print_line
from aegis.core.patterns import Lazy
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.finding import Finding
    from aegis.policy.policy import Policy

MOST_TRIES: Final = 600  # evaluations of one case: bounds what a long call costs
_MOST_READ: Final = 4_194_304  # bytes of a file, as of a request
_WORD: Final = Lazy(r"[\p{L}\p{N}]+")
_DATA: Final = frozenset({"secret", "pii"})


def report_false_alarm(
    case: Annotated[
        str,
        typer.Argument(
            metavar="CASE",
            help="`last`, the index or id of a receipt, or a file with `{tool, arguments}` or `{tool, result}`; `-` "
            "reads standard input",
        ),
    ] = "last",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="where the case is added")] = Path(
        "false-alarms.yaml"
    ),
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="why it is none; written as it is")] = "",
    config: ConfigFile = None,
    home: Home = None,
) -> int:
    """Write the case of a false alarm to a file, minimised and masked, for a test or a report: look at it first."""
    import yaml

    from aegis._version import __version__
    from aegis.config.compile import compile_policy
    from aegis.config.config import load_config
    from aegis.detect.rules.cache import default_cache_folder

    policy = compile_policy(load_config(config), cache=default_cache_folder())
    given = _read(case) if case == "-" or Path(case).is_file() else _of_receipt(case, home, config)
    judged = JudgedCase(policy, given)
    rules = judged.rules(judged.value)
    if not rules:
        raise InvalidCall(
            "nothing of this policy stops that", hint="a call that a budget, a person or a mission stopped is no case"
        )
    entry = {"tool": given["tool"]}
    if given.get("server"):
        entry["server"] = given["server"]
    small = masked(minimised(judged.value, judged.tries(rules)), judged.tries(rules), judged.data)
    entry[judged.member] = small
    entry |= {"stopped_by": sorted(rules), "version": __version__, **({"note": note} if note else {})}
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    text = yaml.safe_dump([entry], allow_unicode=True, sort_keys=False, width=118)
    out.write_text(before + text, encoding="utf-8")
    print_line(text.rstrip())
    print_line(f"added to {out}; look at it before you show it to anybody")
    return 0


def _read(source: str) -> dict[str, Any]:
    import sys

    from aegis.core.json import parse

    data = sys.stdin.buffer.read(_MOST_READ + 1) if source == "-" else Path(source).read_bytes()[: _MOST_READ + 1]
    if len(data) > _MOST_READ:
        raise InvalidCall(f"the input is over {_MOST_READ} bytes", code="too_large", status=413)
    value = parse(data)
    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        raise InvalidCall("the input is no JSON object with `tool` and `arguments` or `result`")
    if not isinstance(value.get("arguments"), dict) and "result" not in value:
        raise InvalidCall("the input has neither `arguments` nor `result`")
    return value


def _of_receipt(name: str, home: Path | None, config: Path | None) -> dict[str, Any]:
    """The call or result of a receipt, whose payload is revealed, on record; `last` is the last that was stopped."""
    import orjson

    from aegis.cli.opening import existing, operator
    from aegis.cli.receipts import detail
    from aegis.core.ports import Search

    with existing(home, config) as state:
        if name == "last":
            with state.store.reader() as reader:
                stopped = [
                    orjson.loads(entry.body)
                    for decision in ("block", "require_approval", "sanitize")
                    for entry in reader.search(Search(decision=decision, limit=1))
                ]
            if not stopped:
                raise InvalidCall("the log holds no call that was stopped", code="not_found")
            name = max(stopped, key=lambda one: int(one["index"]))["receipt_id"]
        shown = detail(state, name, reveal=True, by=operator())
    receipt, payload = shown["receipt"], shown["payload"] or {}
    member = "result" if receipt["kind"] == "result" else "arguments"
    if member not in payload:
        raise InvalidCall("the receipt has no arguments and no result: they were erased, or never stored")
    return {"tool": receipt["tool"], "server": receipt.get("server"), member: payload[member]}


class JudgedCase:
    """A call or a result and the policy that stops it; `data` says that secrets or people are among the reasons."""

    def __init__(self, policy: Policy, given: dict[str, Any]):
        self._policy, self._given = policy, given
        self.member = "arguments" if isinstance(given.get("arguments"), dict) else "result"
        self.value = given[self.member]
        self.data = any(found.category in _DATA for found in self._findings(self.value))

    def rules(self, value: Any) -> frozenset[str]:
        """The rules that stop the value, in place of the real one."""
        return frozenset(found.rule for found in self._findings(value))

    def tries(self, rules: frozenset[str]) -> Callable[[Any], bool]:
        """Whether a value is stopped by one of `rules` still; no after so many tries."""
        left = MOST_TRIES

        def still(value: Any) -> bool:
            nonlocal left
            left -= 1
            return left >= 0 and not rules.isdisjoint(self.rules(value))

        return still

    def _findings(self, value: Any) -> list[Finding]:
        from aegis.core.outcome import Outcome
        from aegis.core.principal import Principal
        from aegis.policy.model import Incoming, IncomingResult

        who = Principal(id="local:report", roles=frozenset({"agent"}), agent="report")
        tool, server = self._given["tool"], self._given.get("server")
        if self.member == "arguments":
            combined = self._policy.evaluate(
                Incoming(
                    tool=tool, server=server, arguments=value, principal=who, agent="report", session="",
                    call_id="report", now=0, charge=False,
                )
            ).combined  # fmt: skip
        else:
            combined = self._policy.evaluate_result(
                IncomingResult(tool=tool, server=server, result=value, principal=who, agent="report", session="", now=0)
            ).combined
        return [found for found in combined.findings if found.outcome is not Outcome.ALLOW]


def minimised(value: Any, still: Callable[[Any], bool]) -> Any:
    """The least of a value that is stopped still: members, items and pieces of texts that do not matter are gone."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(value):
            if still(smaller):
                value, changed = smaller, True
                break
    return value


def _smaller(value: Any) -> Iterator[Any]:
    """Values that lack a part of this one, large parts first."""
    if isinstance(value, dict):
        for name in value:
            yield {other: inner for other, inner in value.items() if other != name}
        for name, inner in value.items():
            for less in _smaller(inner):
                yield {**value, name: less}
    elif isinstance(value, list):
        for at in range(len(value)):
            yield [*value[:at], *value[at + 1 :]]
        for at, inner in enumerate(value):
            for less in _smaller(inner):
                yield [*value[:at], less, *value[at + 1 :]]
    elif isinstance(value, str):
        size = len(value) // 2
        while size:
            for start in range(0, len(value), size):
                yield value[:start] + value[start + size :]
            size //= 2 if size > 8 else 8  # shorter pieces are masked, and leave a text that can be read


def masked(value: Any, still: Callable[[Any], bool], data: bool) -> Any:
    """The value with every word masked that it is stopped without; all of them where it holds secrets or people."""
    for path, text in list(_texts(value, ())):
        for match in reversed(list(_WORD.finditer(text))):
            word = match.group()
            text = text[: match.start()] + _shape(word) + text[match.end() :]
            tried = _with(value, path, text)
            if data or still(tried):
                value = tried
            else:
                text = text[: match.start()] + word + text[match.start() + len(word) :]
    return value


def _shape(word: str) -> str:
    return "".join("0" if char.isdigit() else "X" if char.isupper() else "x" for char in word)


def _texts(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _texts(inner, (*path, at))


def _with(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    inner = _with(value[path[0]], path[1:], text)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]
