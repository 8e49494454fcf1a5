"""A climb towards the call of one MiB that costs most: shapes are mixed, changed, and the dearest changed again.

    python -m benchmarks.climb [SECONDS] [SEED]

Beside it what ordinary large calls cost: prose, rows, and runs that only look encoded.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.hostile import PIECES, PROSE, ROLES, SIZE, Judge, filled

_LENGTHS: Final = (40, 99, 300, 511, 1_000, 1_900, 4_096, 8_192, 16_380, 65_000, SIZE)
_NESTINGS: Final = ("values", "keys", "objects", "deep")
_MOST: Final = 9_900  # strings of a call, a little below what a call may hold
_KEPT: Final = 12
_FRAGMENT: Final = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A call: fragments that are repeated to texts of one length, in the argument of one role."""

    fragments: tuple[str, ...]
    length: int
    role: str
    nesting: str

    def call(self) -> tuple[str, dict[str, Any]]:
        """The tool and the arguments."""
        piece = "".join(self.fragments)
        size = SIZE * len(piece) // len(piece.encode("utf-8", "replace"))
        length = min(self.length, size)
        count = max(1, min(_MOST, size // length))
        texts = [f"{filled(piece, max(1, length - 4))}{number}"[:length] for number in range(count)]
        match self.nesting:
            case "keys":
                value: Any = dict.fromkeys(texts[: _MOST // 2], 1)
            case "objects":
                value = [{"name": text} for text in texts[: _MOST // 2]]
            case "deep":
                value = texts
                for _ in range(20):
                    value = {self.role: value}
            case _:
                value = texts
        return ROLES[self.role], {self.role: value}


def shapes(seed: int) -> Generator[Shape, float, None]:
    """Shapes without end; what is sent back as their cost decides which are changed."""
    chance = random.Random(seed)
    kept: list[tuple[float, Shape]] = []
    while True:
        if len(kept) < _KEPT or chance.random() < 0.2:
            shape = Shape(
                fragments=tuple(_fragment(chance) for _ in range(chance.randint(1, 3))),
                length=chance.choice(_LENGTHS),
                role=chance.choice(sorted(ROLES)),
                nesting=chance.choice(_NESTINGS),
            )
        else:
            shape = _changed(chance.choice(kept)[1], chance)
        cost = yield shape
        kept = sorted([*kept, (cost, shape)], key=lambda one: -one[0])[:_KEPT]


def _fragment(chance: random.Random) -> str:
    piece = chance.choice(sorted(PIECES.values()))
    start = chance.randrange(max(1, len(piece) - _FRAGMENT))
    return piece[start : start + chance.randint(1, _FRAGMENT)]


def _changed(shape: Shape, chance: random.Random) -> Shape:
    match chance.randrange(5):
        case 0:
            return replace(shape, length=chance.choice(_LENGTHS))
        case 1:
            return replace(shape, role=chance.choice(sorted(ROLES)))
        case 2:
            return replace(shape, nesting=chance.choice(_NESTINGS))
        case 3:
            return replace(shape, fragments=(*shape.fragments[-3:], _fragment(chance)))
        case _:
            at = chance.randrange(len(shape.fragments))
            cut = shape.fragments[at][: chance.randint(1, _FRAGMENT)]
            return replace(shape, fragments=(*shape.fragments[:at], cut, *shape.fragments[at + 1 :]))


def ordinary() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Large calls as people make them: a name, the tool and the arguments."""
    for name in ("prose", "base64", "base64 of text", "hex", "digits"):
        yield f"one text of {name}", "write_note", {"text": filled(PIECES[name], SIZE)}
    yield f"{_MOST} rows of prose", "write_note", {"rows": [f"{filled(PROSE, 95)}{row}" for row in range(_MOST)]}


def main() -> None:
    """Print what ordinary calls cost, and the dearest calls that were found."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    judge = Judge()
    for name, tool, arguments in ordinary():
        print(f"{judge.milliseconds(tool, arguments, 5):8.1f} ms of CPU  {name}")
    found: list[tuple[float, Shape]] = []
    source = shapes(seed)
    shape = next(source)
    end = time.process_time() + seconds
    while time.process_time() < end:
        cost = judge.milliseconds(*shape.call())
        found.append((cost, shape))
        shape = source.send(cost)
    found.sort(key=lambda one: -one[0])
    print(f"{len(found)} shapes were tried; the dearest:")
    for cost, shape in found[:10]:
        words = " ".join(fragment[:24] for fragment in shape.fragments)
        print(f"{cost:8.1f} ms of CPU  {shape.length} {shape.role} {shape.nesting} {words!r}")


if __name__ == "__main__":
    main()
