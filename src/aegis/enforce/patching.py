"""Replacing methods of foreign classes, and putting them back."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from aegis.errors import UnhookedFramework

# Doing something to a module as soon as it is loaded, without loading it.

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
            for act in [*self.waiting.get(spec.name, ())]:  # what it raises ends the import, and the next one as well
                act(module)
            with self.lock:
                self.waiting.pop(spec.name, None)

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


Method = Callable[..., Any]
# What gives the replacement of an original.
Make = Callable[[Method], Method]
_MISSING: Final = object()


class Patches:
    """The replaced methods of one hooking. After `undo` nothing of them acts any more.

    A replacement that somebody else has wrapped meanwhile stays in the chain and passes calls on.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._waiting: list[Callable[[], None]] = []
        self._bases: list[tuple[Any, Any]] = []
        self._active = True

    def when(self, module: str, act: Callable[[Any], None]) -> None:
        """Do `act` to a module when it is loaded; a framework that nobody uses is not loaded for its hooks.

        Raises `UnhookedFramework`, here or out of the import, where the module is not what it was.
        """

        def checked(loaded: Any) -> None:
            try:
                act(loaded)
            except (AttributeError, ImportError) as error:
                raise UnhookedFramework(f"`{module}` does not have the expected seams") from error

        self._waiting.append(when_loaded(module, checked))

    def replace(self, owner: Any, name: str, make: Make) -> None:
        """Put `make(original)` in place of a method that the class `owner` itself defines, or a module's function.

        Raises `UnhookedFramework` where there is no such method: the seam is not what it was.
        """
        found = owner.__dict__.get(name)
        static = isinstance(found, staticmethod)
        original = found.__func__ if static else found
        if not inspect.isfunction(original):
            raise UnhookedFramework(f"`{_named(owner)}` has no method `{name}` to hook")
        wrapped = make(original)

        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def areplacement(*args: Any, **kwargs: Any) -> Any:
                return await (wrapped if self._active else original)(*args, **kwargs)

            replacement: Any = areplacement
        else:

            @functools.wraps(original)
            def plain(*args: Any, **kwargs: Any) -> Any:
                return (wrapped if self._active else original)(*args, **kwargs)

            replacement = plain
        if static:
            replacement = staticmethod(replacement)
        setattr(owner, name, replacement)
        self._done.append((owner, name, found, replacement))

    def methods(self, module: str, owner: str, /, **makers: Make) -> None:
        """Replace methods of the class `owner` when its module is loaded; without an owner, the module's functions."""

        def act(loaded: Any) -> None:
            for name, make in makers.items():
                self.replace(getattr(loaded, owner) if owner else loaded, name, make)

        self.when(module, act)

    def families(self, module: str, base: str, /, **makers: Make) -> None:
        """Replace methods of a class and of all classes under it when its module is loaded."""
        self.when(module, lambda loaded: self.family(getattr(loaded, base), makers))

    def bar(self, owner: Any, name: str) -> None:
        """Refuse a path that is not covered, by raising `UnhookedFramework` in place of its method."""
        self.replace(owner, name, _refusing)

    def family(self, base: Any, makers: Mapping[str, Make]) -> None:
        """Put replacements in place of these methods wherever a class under `base` defines one, now or later."""
        waiting = [base]
        while waiting:
            owner = waiting.pop()
            waiting += owner.__subclasses__()
            self._members(owner, makers)
        before = base.__dict__.get("__init_subclass__")

        def subclassed(cls: Any, /, **options: Any) -> None:
            if before is None:
                super(base, cls).__init_subclass__(**options)
            else:
                before.__func__(cls, **options)
            if self._active:
                self._members(cls, makers)

        base.__init_subclass__ = classmethod(subclassed)
        self._bases.append((base, before))

    def held(
        self, owner: Any, name: str, make: Callable[[Any, Any], Any], unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Give `make(object, function)` in place of the function that objects of a class hold, `unless` that is true.

        The objects themselves stay as they are, so those that were made before are covered as well. Raises
        `UnhookedFramework` where a class keeps its attributes in no dictionary.
        """
        if any("__slots__" in vars(one) and name in vars(one)["__slots__"] for one in owner.__mro__):
            raise UnhookedFramework(f"`{_named(owner)}` keeps no `{name}` that can be watched")
        before = owner.__dict__.get(name, _MISSING)
        watching = _Held(name, before, make, lambda: self._active and not unless())
        setattr(owner, name, watching)
        self._done.append((owner, name, before, watching))

    @property
    def active(self) -> bool:
        """Whether the replacements act."""
        return self._active

    def _members(self, owner: Any, makers: Mapping[str, Make]) -> None:
        for name, make in makers.items():
            found = owner.__dict__.get(name)
            if inspect.isfunction(found) and not getattr(found, "__isabstractmethod__", False):
                self.replace(owner, name, make)

    def undo(self) -> None:
        """Put every original back, and make the replacements that cannot be removed inert."""
        self._active = False
        for forget in self._waiting:
            forget()
        self._waiting.clear()
        for base, before in reversed(self._bases):
            if before is None:
                del base.__init_subclass__
            else:
                base.__init_subclass__ = before
        self._bases.clear()
        for owner, name, original, replacement in reversed(self._done):
            if owner.__dict__.get(name) is not replacement:
                continue
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._done.clear()


class _Held:
    """An attribute that objects keep in their dictionaries, read through `make`."""

    def __init__(self, name: str, default: Any, make: Callable[[Any, Any], Any], acts: Callable[[], bool]) -> None:
        self._name = name
        self._default = default
        self._make = make
        self._acts = acts
        # Some packages know a function again by its identity, so an object's is made once.
        self._made: dict[int, tuple[weakref.ref[Any], Any, Any]] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        value = self._default if instance is None else vars(instance).get(self._name, self._default)
        if value is _MISSING:
            raise AttributeError(self._name)
        return value if instance is None or not self._acts() else self._watched(instance, value)

    def _watched(self, instance: Any, value: Any) -> Any:
        known = self._made.get(id(instance))
        if known is not None and known[0]() is instance and known[1] is value:
            return known[2]
        key, made = id(instance), self._make(instance, value)
        self._made[key] = (weakref.ref(instance, lambda _: self._made.pop(key, None)), value, made)
        return made

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value

    def __delete__(self, instance: Any) -> None:
        if vars(instance).pop(self._name, _MISSING) is _MISSING:
            raise AttributeError(self._name)


def _refusing(original: Method) -> Method:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnhookedFramework(f"`{original.__qualname__}` is not covered, so it is refused while the hooks are on")

    return refuse


def _named(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)


# What hooking a framework comes to.


class Seams(Struct, frozen=True, kw_only=True):
    """The places at which a framework is hooked.

    `barred` are paths that have no such place and are refused; `uncovered` those that have none and
    stay open, because what arrives over them cannot be told from other data.
    """

    seams: tuple[str, ...]
    barred: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
