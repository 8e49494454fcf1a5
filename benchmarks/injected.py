"""`python -m benchmarks.injected TITLE=FILE...`: the page of results, from what `aegis bench injected --json` said.

Sections of the page that no title names stay as they are, those that people wrote among them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_SUITES: Final = ("(all)", "(own)", "(agentdojo)")
_HEAD: Final = """# Injected agents, by profile

What an agent that obeys every attacker gets through each built-in profile, and what honest tasks pay for it: the 155
tasks of our own and the 97 of AgentDojo v1.2.2, as `aegis bench injected` runs them
([how to read and repeat it](howto/measure-injected-agents.md)). Written by `python -m benchmarks.injected`. What stands
under `strict` and `observe` is of the first 107 tasks of our own, and of the code before the last three suites.

`strict` lets no tool run that nobody declared, so it is shown a second time with the suites' tools declared by what
they do (`--declare`). What a deployment without the user's words gets is in the rows `hidden`. `template` is a known
wording that every detector knows; read the others."""


def main() -> None:
    """Write the page."""
    page = ROOT / "docs" / "injected.md"
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:]
    sections = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}
    for given in sys.argv[1:]:
        title, _, file = given.partition("=")
        answer = json.loads(Path(file).read_text(encoding="utf-8"))
        sections[title] = "\n".join(table(answer["rows"]))
    written = [_HEAD, *(f"## {title}\n\n{text}" for title, text in sections.items())]
    page.write_text("\n\n".join(written) + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows over all suites and over each source."""
    yield "| suites | words | attack | policy | cases | no hold | holds a task | stopped | fetches | hard | noticed |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if row["suite"] not in _SUITES or row["when"]:
            continue
        attack = row["variant"] or ("any" if row["stopped"]["of"] else "none")
        shares = [_share(row[name]) for name in ("stopped", "fetches", "hard", "noticed")]
        suite = row["suite"].strip("()")
        cells = [suite, row["prompt"], attack, row["policy"], str(row["utility"]["of"]), _share(row["utility"])]
        yield f"| {' | '.join([*cells, format(row['holds'], '.2f'), *shares])} |"


def _share(value: dict[str, Any]) -> str:
    return "" if value["share"] is None else f"{value['share'] * 100:.1f} %"


if __name__ == "__main__":
    main()
