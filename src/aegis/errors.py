"""Every exception that Aegis raises, in one tree.

    AegisError
    ├── InvalidCall            the caller misused the API (HTTP 4xx other than 409 and 429)
    │   ├── TokenInvalid       a signed token is malformed, of another type, or signed by nobody who is trusted
    │   ├── PermitInvalid      a permit does not cover this call, or was used
    │   └── MissionInvalid     a mission, a proof or a delegation that does not hold; names the member
    ├── ConfigError            a configuration that cannot be enforced; names file, line and pointer
    ├── ToolCallBlocked        a call was refused where no refusal can be handed to the model
    ├── CallRefused            a tool was not run, in a framework that makes a result of what a tool raises
    ├── StreamCut              a streamed result was cut; nothing more of it may be used
    ├── UnhookedFramework      `auto()` could not cover an installed framework
    ├── ForeignAnswer          a model provider's answer is not of the format that it claims
    ├── ModelFailed            a model did not answer, or not as its API says
    ├── StoreError
    │   ├── StoreUnavailable   the store is gone, full, locked or slow: nothing was recorded that it did not confirm
    │   │   ├── StoreBusy      another writer holds the store: nothing was begun
    │   │   └── StoreInDoubt   the answer to a commit was lost: whether it took place is not known
    │   ├── StoreConflict      a compare-and-set lost: another writer was first
    │   └── StoreCorrupt       the store answered something that it never stored
    ├── GatewayUnavailable     the gateway gave no usable answer, and no decision can stand for it
    ├── EgressError
    │   ├── EgressRefused      a request that policy does not let out: scheme, address, header
    │   └── EgressFailed       the other side is gone, slow, too long, or does not speak HTTP
    ├── SandboxUnavailable     this machine cannot make a sandbox, so nothing was run
    ├── WorkspaceError         a folder cannot be read or copied as it stands: too large, gone, changing
    ├── KeyFileError           a key file is missing, readable by others, or not a key
    ├── SignatureInvalid       an Ed25519 signature that its key did not make over this message
    └── LogInvalid             an export or log failed verification; carries a typed break

Foreign exceptions are wrapped at the seam where they enter.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aegis.core.breaks import Break
    from aegis.core.decision import Decision, ResultDecision


class AegisError(Exception):
    """Base of everything that Aegis raises on purpose."""


class InvalidCall(AegisError):
    """A call that can never be decided as it stands: malformed, or outside the caller's rights.

    `code` is the stable word of the error shape, `status` the HTTP status that stands for it.
    """

    def __init__(self, message: str, *, code: str = "malformed", hint: str = "", status: int = 422):
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.status = status


class TokenInvalid(InvalidCall):
    """A compact JWS that is malformed, of another type, or not signed by a key that is trusted; `member` is wrong."""

    def __init__(self, message: str, *, member: str = ""):
        super().__init__(message, code="token_invalid", hint=f"see `{member}`" if member else "")
        self.member = member


class PermitInvalid(InvalidCall):
    """A permit that opens nothing: 403 for another call, signature or audience; 409 when used, expired or revoked."""

    def __init__(self, message: str, *, code: str = "permit_invalid", hint: str = "", status: int = 403):
        super().__init__(message, code=code, hint=hint, status=status)


class MissionInvalid(InvalidCall):
    """A mission, a proof or a delegation that does not hold; `member` names what is wrong with it."""

    def __init__(
        self, message: str, *, member: str = "", code: str = "mission_invalid", status: int = 422, hint: str = ""
    ):
        super().__init__(message, code=code, hint=hint or (f"see `{member}`" if member else ""), status=status)
        self.member = member


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong in a configuration file, and where (lines count from 1; 0 is unknown)."""

    message: str
    file: str = ""
    line: int = 0
    pointer: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        where = f" (at `{self.pointer}`)" if self.pointer else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{place}{self.message}{where}{hint}"


class ConfigError(AegisError):
    """A configuration that does not compile; nothing of it is in force."""

    def __init__(self, problems: tuple[Problem, ...]):
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class ExtensionError(AegisError):
    """A guard, judge or store of an installed package that cannot be used; the message names the package."""


class ToolCallBlocked(AegisError):
    """A call was refused and its framework has no way to hand the model a refusal."""

    def __init__(self, decision: Decision):
        super().__init__(decision.message)
        self.decision = decision


class CallRefused(AegisError):
    """A tool was not run, or its result withheld; the framework hands the message to the model as the result."""


class StreamCut(AegisError):
    """A result was cut while it was streamed; `decision` says why, and is on record."""

    def __init__(self, decision: ResultDecision):
        super().__init__(decision.message)
        self.decision = decision


class UnhookedFramework(AegisError):
    """`auto()` found a framework that it cannot cover; the message names the supported range."""


class ForeignAnswer(AegisError):
    """A model provider's answer is not of the format that it claims; nothing of it is passed on."""


class ModelFailed(AegisError):
    """A model did not answer, or not as its API says; the message holds nothing of request, key or answer."""


class StoreError(AegisError):
    """Base of what a store can answer instead of rows."""


class StoreUnavailable(StoreError):
    """The store is gone, full, locked or slow; the transaction left nothing behind."""


class StoreBusy(StoreUnavailable):
    """Another writer holds the store; the transaction was not begun."""


class StoreInDoubt(StoreUnavailable):
    """The answer to a commit was lost; the transaction took place or left nothing behind, and only a look can tell."""


class StoreConflict(StoreError):
    """A compare-and-set lost; the transaction left nothing behind."""


class StoreCorrupt(StoreError):
    """The store answered rows that no version of Aegis wrote; appending stops."""


_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN})


def is_exhausted(error: BaseException) -> bool:
    """Whether `error` says that this process has no memory, files, room on a disk or threads left, and nothing else."""
    if isinstance(error, OSError):
        return error.errno in _EXHAUSTED
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error))


class GatewayUnavailable(AegisError):
    """The gateway is gone, slow or answers what the contract does not allow; nothing may be concluded from it."""


class EgressError(AegisError):
    """Base of what a request that leaves the machine can end in; the message never holds the URL's path or query."""


class EgressRefused(EgressError):
    """The request may not leave: its scheme, host, resolved address or a header is not allowed; nothing was sent."""


class EgressFailed(EgressError):
    """The other side is gone, slow, answers more than is taken, or does not speak HTTP; it may have acted."""


class SandboxUnavailable(AegisError):
    """No sandbox can be made on this machine; nothing was run."""


class WorkspaceError(AegisError):
    """A folder that a sandbox should see cannot be read or copied as it stands."""


class KeyFileError(AegisError):
    """A key file is missing, is readable by others, or does not hold a key of its purpose."""


class SignatureInvalid(AegisError):
    """A key did not make this signature over this message, or one of the two is no Ed25519 key or signature at all."""


class LogInvalid(AegisError):
    """An export, a checkpoint, a proof or a receipt failed verification; `broken` says how and where."""

    def __init__(self, broken: Break):
        super().__init__(str(broken))
        self.broken = broken
