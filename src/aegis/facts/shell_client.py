"""SQL on the command line of a database's client."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from aegis.facts.shell_tree import Command

_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "psql": frozenset({"-c", "--command"}), "mysql": frozenset({"-e", "--execute"}),
    "mariadb": frozenset({"-e", "--execute"}), "cockroach": frozenset({"-e", "--execute"}),
    "sqlcmd": frozenset({"-Q", "-q"}), "clickhouse-client": frozenset({"-q", "--query"}),
    "duckdb": frozenset({"-c"}), "bq": frozenset({"query"}), "snowsql": frozenset({"-q", "--query"}),
}  # fmt: skip


def statements(command: Command) -> list[str]:
    """The statements that a command hands to a database; empty for every other command."""
    options = _OPTIONS.get(command.name)
    if options is not None:
        joined = [arg.partition("=")[2] for arg in command.args if arg.partition("=")[0] in options and "=" in arg]
        return joined + [following for option, following in pairwise(command.args) if option in options]
    if command.name == "sqlite3":
        plain = [arg for arg in command.args if not arg.startswith("-")]
        return [plain[1]] if len(plain) > 1 and not plain[1].startswith(".") else []
    return []
