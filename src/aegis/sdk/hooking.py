"""One line that puts every tool call of the installed frameworks behind a decision."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.extensions import load_extension, names_brought
from aegis.enforce.enforcement import OnApproval
from aegis.enforce.patching import Patches, Seams
from aegis.errors import ExtensionError, UnhookedFramework
from aegis.notices import notice
from aegis.sdk.runtime import Runtime, RuntimeSettings, open_runtime, replace_runtime

OnUnhooked = Literal["error", "warn"]

# What an adapter says of itself, beside the protocol.
_MEMBERS: Final = ("DISTRIBUTION", "SUPPORTED", "hook")
# One module a framework; each says which distribution it hooks and in which versions.
ADAPTERS: Final = (
    "aegis.adapters.openai", "aegis.adapters.anthropic", "aegis.adapters.langchain", "aegis.adapters.crewai",
    "aegis.adapters.google_genai", "aegis.adapters.bedrock", "aegis.adapters.mistral", "aegis.adapters.llama_index",
    "aegis.adapters.smolagents", "aegis.adapters.openai_agents", "aegis.adapters.pydantic_ai",
    "aegis.adapters.google_adk", "aegis.adapters.claude_agent", "aegis.adapters.mcp", "aegis.adapters.strands",
    "aegis.adapters.agent_framework", "aegis.adapters.autogen", "aegis.adapters.litellm",
)  # fmt: skip


class Hooked(Struct, frozen=True, kw_only=True):
    """One framework that is hooked: its version, where, which paths are refused, and which stay uncovered."""

    framework: str
    version: str
    supported: str
    seams: tuple[str, ...]
    barred: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """What `auto` did.

    `gateway` is the gateway's address or `embedded`. `authenticated` says whether the gateway proves
    that it is one; `None` where there is none to prove anything. `unhooked` holds the warnings.
    """

    gateway: str
    authenticated: bool | None
    hooked: tuple[Hooked, ...]
    unhooked: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = {None: "", True: ", authenticated", False: ", NOT authenticated"}[self.authenticated]
        lines = [f"aegis: decisions by {self.gateway}{known}"]
        for one in self.hooked:
            lines.append(f"  {one.framework} {one.version} (supported {one.supported}): {', '.join(one.seams)}")
            lines += [f"    refused, because it cannot be covered: {path}" for path in one.barred]
            lines += [f"    not covered: {path}" for path in one.uncovered]
        return "\n".join([*lines, *(f"  not hooked: {reason}" for reason in self.unhooked)])


def auto(
    url: str | None = None,
    api_key: str | None = None,
    agent: str | None = None,
    config: str | Path | None = None,
    *,
    home: str | Path | None = None,
    on_unhooked: OnUnhooked = "error",
    on_approval: OnApproval | None = None,
    approval_timeout: float | None = None,
) -> Report:
    """Hook every supported framework that is installed; from then on no call of theirs runs undecided.

    Calling it again puts new hooks in place of the old ones. One line says what was hooked and what decides; it is a
    warning where nothing was. `AEGIS_QUIET=1` leaves such lines out of standard error.

    Args:
        url: the gateway (or `AEGIS_URL`); without one a gate is opened in this process.
        api_key: the agent's key for the gateway (or `AEGIS_API_KEY`).
        agent: the agent's name (or `AEGIS_AGENT`).
        config: the configuration of the embedded gate (or `AEGIS_CONFIG`).
        home: the state of the embedded gate (or `AEGIS_HOME`, by default `~/.aegis`).
        on_unhooked: `error` raises for an installed framework that cannot be covered, `warn` warns.
        on_approval: (or `AEGIS_ON_APPROVAL`) `wait`, the default, lets a held call wait for its approval, `block`
            refuses it at once, `defer` refuses it until the same call is made again after its approval.
        approval_timeout: seconds that a held call waits at most; by default as long as its approval.

    Returns:
        What was hooked, by framework and version.

    Raises:
        UnhookedFramework: a framework cannot be covered; nothing is hooked then.
        ConfigError, KeyFileError, StoreError, InvalidCall: the gate or the client cannot be opened.
    """
    # What cannot be opened leaves the hooks that there are in force.
    runtime = open_runtime(
        RuntimeSettings(
            url=url,
            api_key=api_key,
            agent=agent,
            config=config,
            home=home,
            on_approval=on_approval,
            approval_timeout=approval_timeout,
        )
    )
    replace_runtime(None)
    try:
        report = _hook_all(runtime, on_unhooked)
    except BaseException:
        runtime.close()
        raise
    replace_runtime(runtime)
    _tell(report, runtime.described)
    return report


def _tell(report: Report, described: str) -> None:
    """Say in one line what is hooked and what decides; that nothing is hooked is a warning."""
    hooked = ", ".join(f"{one.framework} {one.version}" for one in report.hooked)
    if hooked:
        proved = ", which does not prove that it is one" if report.authenticated is False else ""
        notice(f"hooked {hooked}; decisions by {described}{proved}", level=logging.INFO)
    else:
        notice(
            "nothing is hooked: no supported framework is installed here, so only calls of functions under"
            f" `aegis.protect` are looked at; decisions by {described}"
        )


def unhook() -> None:
    """Put every hooked method back and release the decider."""
    replace_runtime(None)


class Adapter(Struct, frozen=True, kw_only=True):
    """One adapter: its name, its module, and the package that brings it, which is empty for those of Aegis."""

    name: str
    module: Any
    package: str = ""

    @property
    def version(self) -> str | None:
        """The version of the framework that is installed, if it is."""
        try:
            return metadata.version(self.module.DISTRIBUTION)
        except metadata.PackageNotFoundError:
            return None


def installed_adapters() -> Iterator[Adapter]:
    """Give the adapters of Aegis whose frameworks are installed."""
    for name in ADAPTERS:
        adapter = Adapter(name=name.rpartition(".")[2], module=import_module(name))
        if adapter.version is not None:
            yield adapter


def load_adapter(name: str) -> Adapter:
    """Load an adapter that an installed package brings; raises `UnhookedFramework` with the package's name."""
    try:
        found = load_extension("adapter", name)
    except ExtensionError as error:
        raise UnhookedFramework(str(error)) from error
    called = f"the adapter `{name}` of the package `{found.package}`"
    missing = [member for member in _MEMBERS if not hasattr(found.make, member)]
    if missing:
        raise UnhookedFramework(f"{called} has no `{missing[0]}`")
    if found.make.DISTRIBUTION in {import_module(one).DISTRIBUTION for one in ADAPTERS}:
        raise UnhookedFramework(f"{called} is for `{found.make.DISTRIBUTION}`, which Aegis hooks itself")
    return Adapter(name=name, module=found.make, package=found.package)


def _hook_all(runtime: Runtime, on_unhooked: OnUnhooked) -> Report:
    hooked: list[Hooked] = []
    unhooked: list[str] = []
    everything: list[Adapter | str] = [*installed_adapters(), *names_brought("adapter")]
    for found in everything:
        try:
            adapter = load_adapter(found) if isinstance(found, str) else found
            if adapter.version is not None:
                hooked.append(_hook(adapter, adapter.version, runtime, bar=on_unhooked == "error"))
        except UnhookedFramework as error:
            if on_unhooked == "error":
                raise
            warnings.warn(f"aegis: {error}", stacklevel=3)
            unhooked.append(str(error))
    return Report(
        gateway=runtime.gateway,
        authenticated=runtime.authenticated,
        hooked=tuple(hooked),
        unhooked=tuple(unhooked),
    )


def _hook(adapter: Adapter, version: str, runtime: Runtime, *, bar: bool) -> Hooked:
    framework = adapter.module.DISTRIBUTION
    low, high = adapter.module.SUPPORTED
    supported = f">={_dotted(low)},<{_dotted(high)}"
    if not low <= _numbers(version) < high:
        raise UnhookedFramework(f"`{framework}` {version} is not supported; supported is {supported}")
    hook: Callable[..., Seams] = adapter.module.hook
    patches = Patches()
    try:
        seams = hook(runtime.enforcer, runtime.memory, patches, bar=bar)
    except (ImportError, AttributeError) as error:
        patches.undo()
        raise UnhookedFramework(f"`{framework}` {version} does not have the expected seams{_of(adapter)}") from error
    except UnhookedFramework:
        patches.undo()
        raise
    except Exception as error:
        patches.undo()
        if not adapter.package:
            raise
        raise UnhookedFramework(f"`{framework}` cannot be hooked{_of(adapter)}: {type(error).__name__}") from error
    except BaseException:
        patches.undo()
        raise
    runtime.patches.append(patches)
    return Hooked(
        framework=framework,
        version=version,
        supported=supported,
        seams=seams.seams,
        barred=seams.barred,
        uncovered=seams.uncovered,
    )


def _of(adapter: Adapter) -> str:
    """Whose adapter it is, where that is not Aegis."""
    return f" (adapter `{adapter.name}` of the package `{adapter.package}`)" if adapter.package else ""


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers of a version; what is not a number ends them."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
