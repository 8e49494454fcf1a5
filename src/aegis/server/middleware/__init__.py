"""What surrounds every route but the decision path, from the outside in; one class, one small file.

The decision path does the same by itself, in one coroutine.
"""

from __future__ import annotations

from typing import Final

from aegis.server.middleware.access import AccessLog
from aegis.server.middleware.failures import Failures
from aegis.server.middleware.headers import AnswerHeaders

MIDDLEWARE: Final = (AnswerHeaders, AccessLog, Failures)
