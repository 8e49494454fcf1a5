"""The metrics, from the exposition itself."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from aegis.server import table as watching
from aegis.server.telemetry import Metrics
from reference.markdown import page, table


def render() -> str:
    """The page."""
    counted = (
        (f"`{one.name}{'_total' if one.type == 'counter' else ''}`", one.type, one.documentation)
        for one in Metrics().collect()
    )
    return page(
        "Metrics",
        "`GET /metrics` with an auditor's key, in the Prometheus text format. No label holds a word of a call.",
        table(["metric", "type", "is"], [*counted, *_gauges()]),
    )


def _gauges() -> Iterator[tuple[str, str, str]]:
    """The gauges are values of a moment: their names and words stand in one dictionary of the source."""
    for node in ast.walk(ast.parse(inspect.getsource(watching))):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if isinstance(name, str) and name.startswith("aegis_") and isinstance(value, ast.Tuple):
                yield f"`{name}`", "gauge", str(ast.literal_eval(value.elts[0]))
