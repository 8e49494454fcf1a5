"""Doing something to a module as soon as it is loaded, without loading it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

Act = Callable[[Any], None]


class _Watcher(MetaPathFinder):
    """Finds nothing itself: what the other finders give is told to those who wait for it."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Act]] = {}
        self.lock = threading.RLock()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, whose loading ends with those who wait for it; `None` where nobody does."""
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                self._tell(spec)
                return spec
        return None

    def _tell(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        load = loader.exec_module

        def load_and_tell(module: ModuleType) -> None:
            load(module)
            with self.lock:
                acts = self.waiting.pop(spec.name, [])
            for act in acts:
                act(module)

        loader.exec_module = load_and_tell


_watcher: Final = _Watcher()


def when_loaded(name: str, act: Act) -> Callable[[], None]:
    """Do `act` to the module `name`: now if it is loaded, else right after, whoever loads it.

    Gives what takes an act that has not been done back.
    """
    module = sys.modules.get(name)
    if module is not None:
        act(module)
        return lambda: None
    with _watcher.lock:
        _watcher.waiting.setdefault(name, []).append(act)
        if _watcher not in sys.meta_path:
            sys.meta_path.insert(0, _watcher)

    def forget() -> None:
        with _watcher.lock:
            acts = _watcher.waiting.get(name, [])
            if act in acts:
                acts.remove(act)
            if not acts:
                _watcher.waiting.pop(name, None)

    return forget
