"""What an operator can set for the content guards, compiled; the section `guards.content` of aegis.yaml.

guards:
  content:
    egress: mask                  # secrets and personal data that leave: mask | hold | note
    inside: note                  # the same where they stay inside: mask | hold | note
    injected: block               # instructions found in results: block (only likely ones are fenced) | remove | fence
    workspace: fence              # the same in what a coding agent reads of the folder that it works in
    inside_hosts: ["*.corp.example"]
    exceptions:
      - {rule: sql-tautology, tool: run_report, path: /query, reason: "reviewed", expires: 2027-01-01}
    overrides:
      - {rule: secret-*, tool: vault_write, outcome: allow, reason: "the vault stores secrets"}
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from aegis.core.names import Selector, glob_match
from aegis.core.outcome import Outcome

DlpPolicy = Literal["mask", "hold", "note"]
InjectedPolicy = Literal["block", "remove", "fence"]


class RuleOverride(Struct, frozen=True, kw_only=True):
    """Sets the outcome of findings of `rule` on `tool` at `path`; `allow` is an exception.

    `rule` and `path` may hold `*`; an empty `path` covers the whole call. `expires` is microseconds
    since the epoch; afterwards the override is as if it were not there. `reason` is required, so that
    the next reader knows why.
    """

    rule: str
    tool: Selector
    reason: str
    outcome: Outcome = Outcome.ALLOW
    path: str = ""
    expires: int | None = None

    def covers(self, rule: str, server: str | None, tool: str, path: str, now: int) -> bool:
        """Whether this override speaks about a finding of `rule` at `path` of a call to `tool` at `now`."""
        if self.expires is not None and now >= self.expires:
            return False
        if not glob_match(self.rule, rule) or not self.tool.matches(server, tool):
            return False
        return not self.path or path == self.path or path.startswith(self.path + "/") or glob_match(self.path, path)


class ContentOptions(Struct, frozen=True, kw_only=True):
    """How the content guards answer what they find; the defaults are those of the profile `standard`."""

    egress: DlpPolicy = "mask"
    inside: DlpPolicy = "note"
    injected: InjectedPolicy = "block"
    workspace: InjectedPolicy = "fence"
    inside_hosts: tuple[str, ...] = ()
    overrides: tuple[RuleOverride, ...] = ()
