"""The section `previews` and the tools' own words, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aegis.config.sections import ToolPreviewSettings
from aegis.config.settings import Settings
from aegis.core.names import SelectorMap
from aegis.core.previewing import PreviewRules, ToolPreview


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolLook:
    """How one tool is looked at; `dryrun` says that it can tell by itself."""

    preview: ToolPreview | None = None
    dryrun: bool = False


_NOTHING = ToolLook()


@dataclass(frozen=True, kw_only=True, slots=True)
class Previews:
    """What a policy says about previews."""

    rules: PreviewRules = field(default_factory=lambda: PreviewRules(enabled=False))
    tools: SelectorMap[ToolLook] = field(default_factory=lambda: SelectorMap({}))

    def find(self, server: str | None, tool: str) -> ToolLook:
        """How a call of this tool is looked at."""
        return self.tools.find(server, tool) or _NOTHING


def compile_previews(settings: Settings) -> Previews:
    """What the configuration says about previews; the settings were checked where they were read."""
    section = settings.previews
    looks: Mapping[str, ToolLook] = {
        name: ToolLook(preview=None if tool.preview is None else _preview(tool.preview), dryrun=tool.dryrun_supported)
        for name, tool in settings.tools.items()
        if tool.preview is not None or tool.dryrun_supported
    }
    return Previews(
        rules=PreviewRules(
            enabled=section.enabled,
            workspace=section.workspace,
            programs=tuple(section.programs),
            database=section.database,
            statements=frozenset(section.statements),
            seconds=float(section.timeout),
            memory_bytes=section.memory * 1_048_576,
            output_bytes=section.output,
            mounts=tuple(section.mounts),
            resolve=section.resolve,
            private=frozenset(section.private),
        ),
        tools=SelectorMap(looks),
    )


def _preview(own: ToolPreviewSettings) -> ToolPreview:
    return ToolPreview(
        kind=own.kind,
        operation=own.operation,
        arguments={str(name): pointer for name, pointer in own.arguments.items()},
        title=own.title,
        fields=own.fields,
        url=own.url,
    )
