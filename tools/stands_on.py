"""What a failing test stands on: the functions that it names, and the formulas they cite.

Those that were running come first, the innermost before its callers; then those that the test's
code and fixtures name, methods by the types of what the test held. pytest's traceback shows lines,
not which theorem they stand for.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

SHOWN = 12  # lines
OURS = ("bayesloss", "bayesloss_book", "paperledger")
PLACE = r"(?:\([0-9]+\)|[0-9A-Z](?:\.?[0-9]+)*[a-z]?)(?: \(i+\))?(?!\w)"
CITED = re.compile(
    r"(?:W&N |LHG |GPML |MP92, )?\b(?i:eqs?\.|sections?|theorems?|lemmas?|corollary|appendix|"
    rf"appendices|definitions?|algorithms?|tables?|figures?) {PLACE}(?:(?:,| and| to) {PLACE})*"
)
BREAK = re.compile(r"\s*\n[\s#]*")  # of a line in a docstring or a comment


def _source(thing: Any) -> str:
    """Its text; empty for what a test made up."""
    with suppress(OSError, TypeError):
        return inspect.getsource(thing)
    return ""


def _told(thing: Any, module: ModuleType) -> str:
    """Name, first line of the docstring and at most four citations, in one line."""
    name = thing.co_qualname if isinstance(thing, CodeType) else thing.__qualname__
    source = _source(thing)
    called = [vars(module).get(name) for name in re.findall(r"(?<![.\w])\w+(?=\()", source)]
    near = [each for each in called if isinstance(each, FunctionType) and _ours(each)]
    texts = [source, *map(_source, near), module.__doc__ or ""]
    head = next((line for line in re.findall(r'"""(.*)', source)), "").removesuffix('"""')
    cited = [found for text in texts for found in CITED.findall(BREAK.sub(" ", text))]
    places = [place for place in dict.fromkeys(cited) if place not in head][:4]
    also = f" [{'; '.join(places)}]" if places else ""
    return f"{module.__name__.rpartition('.')[2]}.{name}: {head}{also}"


def _is_ours(module: str) -> bool:
    """Whether a module is of the library or the book, and not one that a test made up."""
    return module.partition(".")[0] in OURS and module in sys.modules


def _ours(thing: Any) -> bool:
    """Whether it is a function or a class of such a module."""
    return isinstance(thing, FunctionType | type) and _is_ours(thing.__module__)


def _named(codes: list[CodeType], module: ModuleType, kinds: list[type]) -> Iterator[Any]:
    """What of ours the names and attributes in a test's code are, and in that of its helpers."""
    homes = [module, *filter(inspect.ismodule, vars(module).values()), *kinds]
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        found = [inspect.getattr_static(home, name, "") for name in code.co_names for home in homes]
        for each in found:
            thing = each.fget if isinstance(each, property) else getattr(each, "func", each)
            thing = getattr(thing, "__wrapped__", thing)  # of a cache, which is no function
            if _ours(thing):
                yield thing
            elif isinstance(thing, FunctionType) and thing.__module__ == module.__name__:
                codes += [thing.__code__] if thing.__code__ not in codes else []


def stands_on(item: pytest.Function, failure: pytest.ExceptionInfo[Any]) -> list[str]:
    """What a test that failed stands on, a line each, the nearest first."""
    frames = [entry.frame.raw for entry in failure.traceback]
    here = [frame.f_locals for frame in frames if frame.f_code is item.function.__code__]
    held = [thing for values in (*here, item.funcargs) for thing in values.values()]
    if item.cls is not None:  # what tests of a class share
        held += [thing for base in item.cls.__mro__ for thing in vars(base).values()]
    named = set(item.function.__code__.co_names)  # what the file's constants are
    held += [thing for name, thing in vars(item.module).items() if name in named]
    kinds = list(dict.fromkeys(type(thing) for thing in held if _ours(type(thing))))
    running = [frame for frame in frames if _is_ours(frame.f_globals.get("__name__", ""))]
    lines = [_told(f.f_code, sys.modules[f.f_globals["__name__"]]) for f in running[:-5:-1]]
    for thing in (*_named([item.function.__code__], item.module, kinds), *kinds):
        lines.append(_told(inspect.unwrap(thing), sys.modules[thing.__module__]))
    return list(dict.fromkeys(lines))[:SHOWN]
