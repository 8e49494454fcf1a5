"""One endpoint as a value: from it come its route, its checks and its page in the API description.

The API and the cockpit have the same type. What differs is the `Surface`: the kind of credential that it takes (a key,
a session of a browser) and the kind of answer that it gives (JSON, a page).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import ASGIApp

from aegis.core.principal import Principal
from aegis.server.admission import Permission
from aegis.server.services import Services
from aegis.server.wire import Shape

Schema = dict[str, Any]
RequestT = TypeVar("RequestT", bound="CheckedRequest")
RequestT_contra = TypeVar("RequestT_contra", bound="CheckedRequest", contravariant=True)

NOBODY = Principal(id="", roles=frozenset())


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedRequest:
    """One request after every check of its surface: who asks (`NOBODY` where no credential is asked for), and what.

    `path` holds the names in the path, `query` the parameters by their declared types.
    """

    services: Services
    request_id: str
    headers: Mapping[str, str]
    principal: Principal = NOBODY
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRequest(CheckedRequest):
    """One request of the API.

    `body` is the parsed body of an endpoint that declares a JSON one, `text` the raw one otherwise, and
    `pieces` one that is taken as it arrives; `slow` tells the server that this may take its time. `apart` are the
    canonical bytes of members that a large body's `body` was read without.
    """

    body: Any = None
    text: bytes = b""
    pieces: AsyncIterator[bytes] | None = None
    slow: Callable[[], None] | None = None
    apart: Sequence[bytes | None] | None = None


class Handler(Protocol[RequestT_contra]):
    """Answers one checked request; every failure is an exception."""

    def __call__(self, request: RequestT_contra, /) -> Coroutine[Any, Any, Response]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """One parameter of the query or the path; `schema` is JSON Schema over its parsed value."""

    name: str
    schema: Schema
    text: str = ""
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Endpoint(Generic[RequestT]):
    """One method on one path. `permission` is `None` where no credential is asked for.

    Path members are written `{name}`; `{name:path}` takes slashes too. An endpoint without a handler is
    answered in front of the router. One that `waits` for judges, people or models is given up once its caller goes
    away. The API description is made of `operation`, `summary`, `tag` and `replies`, which pages do without.
    """

    method: Literal["GET", "POST", "PUT"]
    path: str
    permission: Permission | None  # without a default: what is open to everybody says so
    handler: Handler[RequestT] | None = None
    path_params: tuple[Param, ...] = ()
    query: tuple[Param, ...] = ()
    body: Body | None = None
    waits: bool = False
    operation: str = ""
    summary: str = ""
    tag: str = ""
    replies: Mapping[int, Reply] = field(default_factory=dict)

    @property
    def endless(self) -> bool:
        """Whether its answer is a stream of events, which has no end of its own."""
        return 200 in self.replies and self.replies[200].media == "text/event-stream"


class Surface(Protocol[RequestT]):
    """One kind of client: how it shows who it is, how its requests are read, in what form it is answered."""

    def serve(self, endpoint: Endpoint[RequestT]) -> ASGIApp | None:
        """Put an endpoint behind the checks of this surface; `None` for one that is answered in front of the router."""
        ...

    def refuse_method(self, allow: str) -> ASGIApp:
        """Return what answers a method that a path does not take; `allow` lists those that it does."""
        ...


ApiEndpoint = Endpoint[ApiRequest]
