"""The gate as a developer opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from aegis.bootstrap import open_deployment
from aegis.gate.gate import Gate as PartsGate


class Gate(PartsGate):
    """A policy decision point in this process, over its own durable log."""

    @classmethod
    def open(
        cls, config: str | Path | None = None, *, home: str | Path | None = None, agent: str | None = None
    ) -> Self:
        """Open a gate under the configuration file `config`, with its state in `home`.

        Without them: `AEGIS_CONFIG` or `aegis.yaml` in the home, else the profile `standard`;
        `AEGIS_HOME` or `~/.aegis`. Raises `ConfigError`, `KeyFileError` or `StoreError`.
        """
        deployment = open_deployment(
            None if config is None else Path(config), None if home is None else Path(home), agent=agent
        )
        return cls(deployment.gate.parts, deployment.gate.principal)
