"""What a report says about a period: counted from the log itself, receipt by receipt."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.sax.saxutils import escape

import orjson
from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from aegis.behaviour.digest import first_at
from aegis.cockpit import text as words
from aegis.cockpit.work import Verification
from aegis.core.ports import Entry, never_came
from aegis.core.times import rfc3339
from aegis.server.services import Services

LISTED: Final = 300  # approvals, changes and erasures that are listed one by one; all of them are counted
CHUNK: Final = 10_000  # leaves read in one view of the store: bounds how long it is held
MAX_NAMES: Final = 10_000  # different names that are counted apart: callers choose them


@dataclass(kw_only=True)
class PeriodReport:
    """The counts of one period; `first` and `last` are positions in the log, `None` where nothing was recorded."""

    log: str
    since: str
    until: str
    made: str
    first: int | None = None
    last: int | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    observed: int = 0
    approvals: list[dict[str, Any]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    changes: list[dict[str, Any]] = field(default_factory=list)
    verification: Verification = field(default_factory=Verification)

    @property
    def receipts(self) -> int:
        """How many receipts the period has."""
        return sum(self.kinds.values())


def compile_report(services: Services, *, since: int, until: int, verification: Verification) -> PeriodReport:
    """Return the report of `since` to `until` (microseconds, both included)."""
    report = PeriodReport(
        log=services.log,
        since=rfc3339(since),
        until=rfc3339(until),
        made=rfc3339(services.clock()),
        verification=verification,
    )
    with services.store.reader() as reader:
        size = reader.head().size
        at, stop = first_at(reader, since, size), first_at(reader, until + 1, size)
    while at < stop:
        with services.store.reader() as reader:
            for entry in reader.entries(at, min(at + CHUNK, stop)):
                _count(report, entry)
        at += CHUNK
    return report


def _count(report: PeriodReport, entry: Entry) -> None:
    report.first = entry.index if report.first is None else report.first
    report.last = entry.index
    report.kinds[entry.kind] += 1
    if entry.kind == "result":
        report.results[entry.decision] += not never_came(entry)
        return
    if entry.kind == "decision":
        body = orjson.loads(entry.body)
        report.outcomes[entry.decision] += 1
        report.verdicts[body["verdict"]] += 1
        report.policies[body["policy_digest"]] += 1
        report.observed += body.get("settings", {}).get("mode") == "observe"
        _name(report.agents, entry.agent)
        _name(report.tools, entry.tool)
        if entry.decision != "allow":
            report.reasons[entry.reason] += 1
            for guard in body["guards"]:
                for rule in guard["rules"]:
                    _name(report.rules, rule)
        return
    if entry.kind == "approval":
        body = orjson.loads(entry.body)
        if body["action"] == "previewed":  # the gateway's own look, and nobody's answer
            return
        report.answers[body["action"]] += 1
        _keep(report.approvals, body)
    elif entry.kind in ("config", "revocation", "grant", "erasure", "access"):
        _keep(report.changes, orjson.loads(entry.body))


def _name(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < MAX_NAMES else "(others)"] += 1


def _keep(rows: list[dict[str, Any]], body: dict[str, Any]) -> None:
    if len(rows) < LISTED:
        rows.append(body)


# The report as PDF: text of ours, and names of callers' with everything but plain letters spelled out.

TOP: Final = 25  # names of one table; the rest is counted
_INK: Final = colors.HexColor("#16202a")
_DIM: Final = colors.HexColor("#4a5763")
_LINE: Final = colors.HexColor("#dde2e6")
_TEXT: Final = ParagraphStyle("text", fontName="Helvetica", fontSize=9, leading=12, textColor=_INK)
_SMALL: Final = ParagraphStyle("small", parent=_TEXT, fontSize=7.5, leading=9.5, textColor=_DIM)
_NUMBER: Final = ParagraphStyle("number", parent=_TEXT, alignment=TA_RIGHT)
_TITLE: Final = ParagraphStyle("title", parent=_TEXT, fontName="Helvetica-Bold", fontSize=17, leading=21)
_HEAD: Final = ParagraphStyle(
    "head", parent=_TEXT, fontName="Helvetica-Bold", fontSize=11, leading=14, spaceBefore=9, spaceAfter=4
)
_VERDICTS: Final = {
    "never": "The log was not verified by this gateway since it started.",
    "running": "A verification of the log was under way.",
    "verified": "The log verified.",
    "broken": "THE LOG DID NOT VERIFY.",
    "failed": "The verification could not be run.",
}
_ACTIONS: Final = ("approved", "denied", "expired", "cancelled")


def pdf(report: PeriodReport, *, note: str, by: str) -> bytes:
    """Return the report as one PDF file; `note` is the checkpoint at the time it was made."""
    out = io.BytesIO()
    document = SimpleDocTemplate(
        out,
        pagesize=A4,
        leftMargin=18 * mm,
        rightMargin=18 * mm,
        topMargin=16 * mm,
        bottomMargin=16 * mm,
        title=f"Aegis report {report.since[:10]} to {report.until[:10]}",
        author="Aegis",
        lang="en",
    )
    document.build(list(_story(report, note, by)), onFirstPage=_footer, onLaterPages=_footer)
    return out.getvalue()


def _story(report: PeriodReport, note: str, by: str) -> Iterable[Flowable]:
    yield Paragraph("Decisions on the tool calls of AI agents", _TITLE)
    yield Paragraph(f"{report.since[:10]} to {report.until[:10]}, UTC. Log {_plain(report.log)}.", _TEXT)
    yield Paragraph(f"Made {report.made[:19].replace('T', ' ')} UTC for {_plain(by)}.", _SMALL)

    yield Paragraph("Coverage", _HEAD)
    span = "none" if report.first is None else f"{report.first} to {report.last}"
    yield _pairs(
        [
            ("Receipts", words.count(report.receipts)),
            ("Places in the log", span),
            ("Decisions", words.count(sum(report.outcomes.values()))),
            ("Results looked at", words.count(sum(report.results.values()))),
            ("Agents", words.count(len(report.agents))),
            ("Tools", words.count(len(report.tools))),
            ("Decided in observe mode", words.count(report.observed)),
            ("Could not be evaluated", words.count(report.verdicts["insufficient_evidence"])),
            ("Configurations in force", words.count(len(report.policies))),
        ]
    )
    yield Paragraph(
        "A receipt records what was decided about a call before it could run. It does not prove that a tool ran.",
        _SMALL,
    )

    yield Paragraph("Decisions", _HEAD)
    yield _counts(("Outcome", "Calls"), Counter({words.outcome(word): n for word, n in report.outcomes.items()}))
    if report.reasons:
        yield Spacer(1, 4)
        yield _counts(
            ("Why not simply allowed", "Calls"), Counter({words.reason(w): n for w, n in report.reasons.items()})
        )

    yield Paragraph("Violations", _HEAD)
    yield _counts(("Rule", "Calls"), report.rules)

    yield Paragraph("Approvals", _HEAD)
    told = ", ".join(f"{words.count(report.answers[word])} {word}" for word in _ACTIONS)
    yield Paragraph(f"{told}.", _TEXT)
    if report.approvals:
        yield Spacer(1, 4)
        yield _table(
            ("Time", "Answer", "Tool", "Agent", "By"),
            [
                (row["time"][:19].replace("T", " "), row["action"], row.get("tool", ""), row.get("agent", ""), _by(row))
                for row in report.approvals
            ],
            (32, 20, 44, 38, 40),
        )
        yield _rest(sum(report.answers.values()), len(report.approvals))

    yield Paragraph("Changes, accesses and retention", _HEAD)
    yield Paragraph(
        f"{words.count(report.kinds['config'])} of the configuration, {words.count(report.kinds['revocation'])} of the "
        f"switches of agents, {words.count(report.kinds['grant'])} of credentials and accounts; "
        f"{words.count(report.kinds['access'])} accesses and sign-ins; {words.count(report.kinds['erasure'])} payloads "
        "erased. Payloads are kept until they are erased; erasing one leaves its receipt, which still verifies.",
        _TEXT,
    )
    if report.changes:
        yield Spacer(1, 4)
        yield _table(
            ("Time", "Kind", "What", "By", "About"),
            [
                (row["time"][:19].replace("T", " "), row["kind"], row.get("action", ""), row["principal"], _about(row))
                for row in report.changes
            ],
            (32, 22, 28, 44, 48),
        )
        changes = sum(report.kinds[kind] for kind in ("config", "revocation", "grant", "erasure", "access"))
        yield _rest(changes, len(report.changes))

    yield Paragraph("Agents and tools", _HEAD)
    yield _counts(("Agent", "Calls"), report.agents)
    yield Spacer(1, 4)
    yield _counts(("Tool", "Calls"), report.tools)

    yield Paragraph("Chain and checkpoint", _HEAD)
    last = report.verification
    size = last.told.get("size")
    yield Paragraph(
        _VERDICTS[last.state]
        + (f" {words.count(size)} receipts" if size and last.state == "verified" else "")
        + (f", at {last.ended[:19].replace('T', ' ')} UTC, asked for by {_plain(last.by)}." if last.ended else ""),
        _TEXT,
    )
    if last.state == "broken":
        told = " ".join(str(last.told.get(name) or "") for name in ("break", "meaning", "detail"))
        yield Paragraph(_plain(told), _TEXT)
    yield Paragraph("Checkpoint of the log when this report was made:", _TEXT)
    yield Paragraph("<br/>".join(_plain(line) for line in note.strip().split("\n")), _SMALL)
    yield Paragraph("Verify it yourself: aegis log export, aegis log verify, with keys that came another way.", _SMALL)


def _pairs(rows: Sequence[tuple[str, str]]) -> Flowable:
    return _table((), rows, (70, 104))


def _counts(head: tuple[str, str], counts: Counter[str]) -> Flowable:
    rows: list[tuple[str, str]] = [(name or "(none)", words.count(count)) for name, count in counts.most_common(TOP)]
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(TOP))
    if rest:
        rows.append(("(others)", words.count(rest)))
    return _table(head, rows or [("none", "0")], (134, 40), numbers=True)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int], *, numbers: bool = False
) -> Flowable:
    first = [[Paragraph(_plain(name), _SMALL) for name in head]] if head else []
    cells = [
        [Paragraph(_plain(cell), _NUMBER if numbers and at == len(row) - 1 else _TEXT) for at, cell in enumerate(row)]
        for row in rows
    ]
    table = Table([*first, *cells], colWidths=[width * mm for width in widths], repeatRows=len(first), hAlign="LEFT")
    table.setStyle(
        TableStyle(
            [
                ("LINEBELOW", (0, 0), (-1, -1), 0.4, _LINE),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (-1, -1), 2),
                ("RIGHTPADDING", (0, 0), (-1, -1), 4),
                ("TOPPADDING", (0, 0), (-1, -1), 2),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 2),
            ]
        )
    )
    return table


def _rest(count: int, listed: int) -> Flowable:
    text = f"The first {LISTED} of {words.count(count)} are listed." if count > listed else ""
    return Paragraph(text, _SMALL)


def _by(row: dict[str, Any]) -> str:
    return ", ".join(row.get("approvers", ())) or str(row["principal"])


def _about(row: dict[str, Any]) -> str:
    key = row.get("key") or {}
    return str(row.get("agent") or key.get("holder") or row.get("policy_digest", "")[:24] or row.get("parent", ""))


def _plain(text: object) -> str:
    """Text for a paragraph: no markup, and every sign that the font lacks spelled out."""
    return escape("".join(map(_spelled, str(text))))


def _spelled(char: str) -> str:
    if char == "\u202f":  # the thin space between groups of digits
        return " "
    # The dash begins the signatures of a checkpoint, and the fonts have it.
    return char if " " <= char <= "~" or "\u00a1" <= char <= "\u00ff" or char == "\u2014" else f"\\u{ord(char):04x}"


def _footer(canvas: Any, document: Any) -> None:
    canvas.saveState()
    canvas.setFont("Helvetica", 7.5)
    canvas.setFillColor(_DIM)
    canvas.drawString(18 * mm, 9 * mm, "Aegis")
    canvas.drawRightString(A4[0] - 18 * mm, 9 * mm, f"page {document.page}")
    canvas.restoreState()
