"""Write the vectors that every implementation shares, as this package computes them.

    python scripts/vectors.py [--check]

`conformance/README.md` says what each file is. Nothing in them depends on a time or on chance: keys are made of
constants, and the clock of a vector is in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import vector_answers
import vector_exchanges
import vector_log
import vector_values

FOLDER: Final = Path(__file__).resolve().parents[1] / "conformance"
FILES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "canonical.json": vector_values.canonical_json,
    "digests.json": vector_values.digests,
    "masking.json": vector_values.masking,
    "words.json": vector_values.words,
    "requests.json": vector_answers.requests,
    "decisions.json": vector_answers.decisions,
    "results.json": vector_answers.results,
    "fail_closed.json": vector_answers.fail_closed,
    "holds.json": vector_exchanges.holds,
    "sessions.json": vector_exchanges.sessions,
    "streams.json": vector_exchanges.streams,
    "permits.json": vector_values.permit_cases,
    "redemptions.json": vector_exchanges.redemptions,
    "proofs.json": vector_values.proofs,
    "webhooks.json": vector_values.webhooks,
    "receipts.json": vector_log.receipts,
    "inclusion.json": vector_log.inclusion,
    "checkpoints.json": vector_log.checkpoints,
}


def written(name: str) -> str:
    """Make the text of one file."""
    return json.dumps({"v": 1, **FILES[name]()}, ensure_ascii=True, indent=1) + "\n"


def main() -> int:
    """Write every file; with `--check` answer 1 where one is not as it would be written."""
    wrong = 0
    for name in FILES:
        path, text = FOLDER / name, written(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="ascii")
        elif not path.exists() or path.read_text(encoding="ascii") != text:
            print(f"conformance/{name} is not what this package computes: run scripts/vectors.py", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
