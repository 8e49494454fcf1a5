"""Deployments for tests: real stores, real keys, a configuration given as text."""

from __future__ import annotations

from pathlib import Path

from aegis.bootstrap import Deployment, open_deployment

TOOLS = """
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send]}
  deploy: {risk: critical}
"""


def deployment(home: Path, config: str = "", *, agent: str = "bot") -> Deployment:
    """A deployment under `home`, rate limiting off unless `config` says otherwise."""
    text = config or f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = home / "aegis.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return open_deployment(file, home, agent=agent)
