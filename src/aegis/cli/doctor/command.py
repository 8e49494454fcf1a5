"""`aegis doctor`: whether this installation, this home and its gateway are as they should be."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import structs

from aegis.cli import output
from aegis.cli.doctor import Check, Patient
from aegis.cli.options import ConfigFile, Home, Json, KeyFile, Url, api_key_of, home_of
from aegis.cli.output import columns, print_json, show_list

if TYPE_CHECKING:
    from pathlib import Path


_COLUMNS: Final = columns("check", "state", ("text", "FOUND"))


_PATHS: Final = columns("framework", "tool", "path", "state")
_REASONED: Final = columns("agent", ("principal", "CREDENTIAL"), "calls", ("reasoned", "WITH REASONING"), "signed")
Coverage = Annotated[
    bool, typer.Option("--coverage", help="fire a canary at every registered tool, over every path; no body runs")
]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="with --coverage: a module that registers tools; repeatable"),
]


def doctor(
    home: Home = None,
    config: ConfigFile = None,
    url: Url = None,
    key_file: KeyFile = None,
    coverage: Coverage = False,
    modules: Modules = None,
    as_json: Json = False,
) -> int:
    """Look for what is wrong; exit 1 if anything must be repaired. Nothing is changed."""
    if coverage:
        return _coverage(modules or [], home_of(home), config, as_json=as_json)
    patient = Patient(home=home_of(home), config=config, url=url, api_key=api_key_of(key_file))
    found = [one for check in _checks() for one in check(patient)]
    healthy = all(one.state != "fail" for one in found)
    if as_json:
        print_json({"healthy": healthy, "checks": [asdict(one) for one in found]})
    else:
        rows = [
            {"check": one.check, "state": one.state, "text": f"{one.found} ({one.hint})" if one.hint else one.found}
            for one in found
        ]
        show_list(rows, _COLUMNS, as_json=False, empty="")
    return output.DONE if healthy else output.REFUSED


def _coverage(modules: list[str], home: Path, config: Path | None, *, as_json: bool) -> int:
    """Whether every path to every tool leads through a decision; exit 1 where one does not.

    Which agents bring their model's reasoning is told from the receipts of this home: it depends on host and model.
    """
    import logging
    import sys

    from aegis.cli.doctor.home import reasoned
    from aegis.sdk.coverage.firing import coverage

    # As `python -m` would find them: the caller's own modules are in the working directory.
    sys.path.insert(0, "")
    # What packages tell of every call is no finding; their warnings and errors are told as ever.
    logging.disable(logging.INFO)
    try:
        found = [structs.asdict(one) for one in coverage(modules)]
    finally:
        logging.disable(logging.NOTSET)
    covered = all(one["state"] != "UNCOVERED" for one in found)
    brought = reasoned(home, config)
    if as_json:
        print_json({"covered": covered, "paths": found, "reasoning": brought})
    else:
        show_list(found, _PATHS, as_json=False, empty="no framework is installed that canaries can be fired at")
        if brought:
            show_list(brought, _REASONED, as_json=False, empty="")
    return output.DONE if covered else output.REFUSED


def _checks() -> tuple[Check, ...]:
    from aegis.cli.doctor.home import configuration, folder, keys, log, separation
    from aegis.cli.doctor.posture import clock, gateway, interpreter, pattern_engine, posture, system

    return (system, interpreter, pattern_engine, clock, folder, keys, configuration, posture, log, gateway, separation)
