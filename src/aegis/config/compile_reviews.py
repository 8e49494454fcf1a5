"""How calls are looked at before they run, compiled: the sections `judges`, `judging` and `previews`.

Every judge that an entry names is read here, or is an error."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct, field
from pydantic import ValidationError

from aegis.config.config import Config, read_text
from aegis.config.document import from_model, origins, plain, read
from aegis.config.judges import JudgeModelSettings, JudgeSettings, ValidatorSettings
from aegis.config.sections import ToolPreviewSettings
from aegis.config.settings import Settings
from aegis.core.approval import PreviewRules, ToolPreview
from aegis.core.extensions import load_extension
from aegis.core.judging import (
    Ceiling,
    JudgeLimits,
    JudgeRules,
    JudgeSelect,
    JudgeSpec,
    JudgeTools,
    ModelSpec,
    Validator,
)
from aegis.core.names import Selector, SelectorMap
from aegis.core.outcome import risk_of
from aegis.errors import ConfigError, ExtensionError, Problem


class ToolLook(Struct, frozen=True, kw_only=True):
    """How one tool is looked at; `dryrun` says that it can tell by itself."""

    preview: ToolPreview | None = None
    dryrun: bool = False


_NOTHING = ToolLook()


class Previews(Struct, frozen=True, kw_only=True):
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


MICRO: Final = 1_000_000


def compile_judges(config: Config, problems: list[Problem]) -> JudgeRules:
    """What the configuration says about judges; everything that is wrong is added to `problems`."""
    section = config.settings.judging
    validators: list[Validator] = []
    for position, entry in enumerate(config.settings.judges):
        where = ("judges", position)
        judges = _judges(config, entry, where, problems)
        if judges:
            validators.append(_validator(entry, judges))
    return JudgeRules(
        validators=tuple(validators),
        mode=section.mode,
        feedback=section.feedback,
        truncated=section.truncated,
        on_unavailable=section.on_unavailable,
        budget_bytes=section.payload,
        recent=section.recent,
        concurrency=section.concurrency,
        probes=section.probes,
        breaker_failures=section.breaker_failures,
        breaker_seconds=float(section.breaker_pause),
        ceilings={
            kind: Ceiling(tokens=one.tokens, cost=None if one.cost is None else round(one.cost * MICRO))
            for kind, one in section.ceilings.items()
        },
    )


def judge_versions(rules: JudgeRules) -> list[str]:
    """The versions of all judges, in order: their files are part of what a policy means."""
    return [judge.version for validator in rules.validators for judge in validator.judges]


def read_judge(path: Path) -> JudgeSpec:
    """The judge that a file describes; raises `ConfigError` with every problem found."""
    node = read(read_text(path), file=str(path))
    places = dict(origins(node))
    try:
        settings = JudgeSettings.model_validate(plain(node))
    except ValidationError as error:
        raise ConfigError(from_model(error.errors(include_url=False), places, JudgeSettings)) from error
    return judge_spec(settings, path.parent)


def judge_spec(settings: JudgeSettings, folder: Path) -> JudgeSpec:
    """The judge, with the digest of everything that makes it what it is: its settings, and its program's bytes."""
    command = tuple(settings.command or ())
    # A member that nobody wrote makes no judge another one.
    unwritten = {"extension", "options"} if settings.extension is None else set[str]()
    meaning = settings.model_dump(mode="json", by_alias=True, exclude=unwritten)
    whole = hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS))
    if settings.extension is not None:
        extension = load_extension("judge", settings.extension)
        extension.made(settings.options, needs=("judge",))  # what is wrong with it is wrong now, and not at a call
        whole.update(f"{extension.package} {extension.version}".encode())
    for word in command:
        file = Path(folder, word)
        if file.is_file():
            whole.update(file.read_bytes())
    tools, limits = settings.tools, settings.limits
    return JudgeSpec(
        name=settings.name,
        version="sha-256:" + whole.hexdigest(),
        model=None if settings.model is None else _model(settings.model),
        command=command,
        extension=settings.extension or "",
        options=settings.options,
        instruction=settings.instruction,
        tools=JudgeTools(
            commands=tuple(tools.cmd_run),
            ast_grep=tools.ast_grep_search,
            read=tools.fs_read,
            listing=tools.fs_list,
            sql=tools.sql_query or "",
        ),
        limits=JudgeLimits(
            turns=limits.turns,
            tokens=limits.tokens,
            seconds=float(limits.timeout),
            tool_seconds=float(limits.tool_timeout),
            memory_bytes=limits.memory * 1_048_576,
            processes=limits.processes,
        ),
        hosts=tuple(settings.network),
        programs=tuple(settings.programs),
        folder=str(folder.absolute()),
    )


def _judges(
    config: Config, entry: ValidatorSettings, where: tuple[str | int, ...], problems: list[Problem]
) -> tuple[JudgeSpec, ...]:
    folder = Path(config.file).parent if config.file else Path.cwd()
    given = [name for name in ("judge", "judges", "model", "command", "extension") if getattr(entry, name) is not None]
    if len(given) != 1:
        message = f"the entry `{entry.name}` needs exactly one of `judge`, `judges`, `model`, `command` and `extension`"
        problems.append(config.problem(where, message))
        return ()
    if entry.options and entry.extension is None:
        problems.append(config.problem((*where, "options"), "`options` are for the judge that `extension` names"))
        return ()
    if (entry.type == "panel") != (entry.judges is not None) and entry.type is not None:
        problems.append(config.problem((*where, "type"), "a `panel` has `judges`, and nothing else has"))
        return ()
    if entry.judge is None and entry.judges is None:
        own = JudgeSettings(
            name=entry.name, model=entry.model, command=entry.command, extension=entry.extension, options=entry.options
        )
        try:
            return (judge_spec(own, folder),)
        except ExtensionError as error:
            problems.append(config.problem((*where, "extension"), str(error)))
            return ()
    found: list[JudgeSpec] = []
    for file in entry.judges or [entry.judge or ""]:
        path = folder / file
        if not path.is_file():
            known = sorted(one.name for one in folder.glob("*.y*ml") if one.name != Path(config.file).name)[:10]
            hint = f"files beside the configuration: {', '.join(f'`{one}`' for one in known)}" if known else ""
            problems.append(config.problem((*where, given[0]), f"there is no judge `{file}`", hint))
            continue
        try:
            found.append(read_judge(path))
        except ConfigError as error:
            problems.extend(error.problems)
        except ExtensionError as error:
            problems.append(config.problem((*where, given[0]), str(error)))
    names = [judge.name for judge in found]
    if len(set(names)) != len(names):
        problems.append(config.problem((*where, given[0]), "two judges of a panel have the same name"))
    if entry.min_judges is not None and entry.min_judges > len(entry.judges or [entry.judge]):
        problems.append(config.problem((*where, "min_judges"), "there are not so many judges"))
    return tuple(found)


def _validator(entry: ValidatorSettings, judges: Sequence[JudgeSpec]) -> Validator:
    select = entry.select
    return Validator(
        name=entry.name,
        judges=tuple(judges),
        select=JudgeSelect(
            tools=tuple(Selector(one) for one in select.tool or ()),
            servers=tuple(select.server or ()),
            category=select.category,
            effect=select.effect,
            tier=None if select.tier is None else risk_of(select.tier),
            unregistered=select.unregistered,
        ),
        criteria=entry.criteria,
        min_score=entry.min_score,
        min_confidence=entry.min_confidence,
        seconds=entry.timeout_seconds,
        consensus=entry.consensus,
        min_judges=entry.min_judges or len(judges),
        min_agreement=entry.min_agreement,
        cache_seconds=entry.cache,
    )


def _model(settings: JudgeModelSettings) -> ModelSpec:
    return ModelSpec(
        api=settings.api,
        url=settings.url,
        name=settings.name,
        key=settings.key or "",
        private=settings.private,
        max_tokens=settings.max_tokens,
        price_in=round(settings.price_in * MICRO),
        price_out=round(settings.price_out * MICRO),
    )
