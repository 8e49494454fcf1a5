"""Where the commands of a shell text stand: in which pipeline, at which place of it, inside of a substitution or not.

Found by the places of the nodes alone, each looked at once: to ask a node of the tree for its parent takes as long
as the tree is deep.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tree_sitter import Node


class Place(NamedTuple):
    """The number of a pipeline (0 outside of one), the place in it, whether inside of a substitution; its text."""

    pipe: int
    stage: int
    inside: bool
    pipeline: str


class Places:
    """The pipelines and substitutions of one tree; asked about its commands in the order of their beginnings.

    Pipelines are numbered from `before` on, the last number of the tree before.
    """

    def __init__(self, pipelines: Sequence[Node], substitutions: Sequence[Node], before: int = 0):
        around = [(node.start_byte, -node.end_byte, number, node) for number, node in enumerate(pipelines, before + 1)]
        around += [(node.start_byte, -node.end_byte, 0, node) for node in substitutions]
        self._waiting = sorted(around, key=_outermost_first, reverse=True)
        self._open: list[tuple[int, int, Node]] = []  # end, number of the pipeline or 0 for a substitution
        self._depth = 0  # substitutions among them
        self._stages: dict[int, tuple[list[int], str]] = {}

    def of(self, node: Node) -> Place:
        """The place of a command that begins no earlier than the one asked about before."""
        start, end = node.start_byte, node.end_byte
        while self._waiting and self._waiting[-1][0] <= start:
            _, ends, number, outer = self._waiting.pop()
            self._open.append((-ends, number, outer))
            self._depth += not number
        while self._open and self._open[-1][0] <= start:
            self._depth -= not self._open.pop()[1]
        depth = self._depth
        # A pipeline counts that lies between the command and the nearest substitution around it.
        for ends, number, outer in reversed(self._open):
            if ends < end:  # begins where the command does, and is a part of it
                depth -= not number
                continue
            if not number:
                break
            starts, text = self._of_pipeline(number, outer)
            return Place(number, max(0, bisect_right(starts, start) - 1), depth > 0, text)
        return Place(0, 0, depth > 0, "")

    def _of_pipeline(self, number: int, node: Node) -> tuple[list[int], str]:
        known = self._stages.get(number)
        if known is None:
            text = (node.text or b"").decode("utf-8", "replace")
            known = self._stages[number] = ([child.start_byte for child in node.named_children], text)
        return known


def _outermost_first(item: tuple[int, int, int, Node]) -> tuple[int, int]:
    return item[0], item[1]
