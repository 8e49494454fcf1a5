"""One endpoint as a value: from it come its route, its checks and its page in the API description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from starlette.responses import Response

from aegis.core.principal import Principal
from aegis.server.permissions import Permission
from aegis.server.services import Services
from aegis.server.wire import Shape

Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request after every check: who asks, and what, in values of the declared types.

    `body` is the parsed body of an endpoint that declares a JSON one, `text` the raw one otherwise, and
    `pieces` one that is taken as it arrives; `slow` tells the server that this may take its time. `apart` are the
    canonical bytes of members that a large body's `body` was read without.
    """

    services: Services
    principal: Principal
    request_id: str
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any = None
    text: bytes = b""
    pieces: AsyncIterator[bytes] | None = None
    slow: Callable[[], None] | None = None
    apart: Sequence[bytes | None] | None = None


class Handler(Protocol):
    """Answers one checked request; every failure is an exception."""

    def __call__(self, asked: Asked) -> Coroutine[Any, Any, Response]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """One parameter of the query or the path; `schema` is JSON Schema over its parsed value."""

    name: str
    schema: Schema
    text: str
    required: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What an endpoint answers under one status."""

    text: str
    schema: Schema | None = None
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """What an endpoint takes; with `media` other than JSON it is handed over as it came.

    One that is `streamed` is handed over while it arrives, and may be of any length. `shape` says which members of a
    large one are read apart from it.
    """

    schema: Schema
    media: str = "application/json"
    required: bool = True
    streamed: bool = False
    shape: Shape | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One method on one path. `permission` is `None` where no credential is asked for.

    Path members are written `{name}`; `{name:path}` takes slashes too. An endpoint without a handler is
    answered in front of the router. One that `waits` for judges, people or models is given up once its caller goes
    away.
    """

    method: Literal["GET", "POST", "PUT"]
    path: str
    operation: str
    summary: str
    tag: str
    replies: Mapping[int, Reply]
    handler: Handler | None = None
    permission: Permission | None = None
    path_params: tuple[Param, ...] = ()
    query: tuple[Param, ...] = ()
    body: Body | None = None
    waits: bool = False
