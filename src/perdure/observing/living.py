"""Things that others keep alive, read from any thread while more are added."""

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """A set of what lives. Whoever reads it has what it was: the whole of it is replaced, never changed."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: tuple[weakref.ref[T], ...] = ()

    def add(self, one: T) -> None:
        others = (ref for ref in self._refs if ref() is not None and ref() is not one)
        self._refs = (*others, weakref.ref(one))

    def __iter__(self) -> Iterator[T]:
        for ref in self._refs:
            one = ref()
            if one is not None:
                yield one

    def __bool__(self) -> bool:
        return any(ref() is not None for ref in self._refs)
