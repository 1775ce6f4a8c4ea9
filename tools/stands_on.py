"""What a failing test stands on: the functions that it names, and the formulas they cite.

They are found in the test's text, the nearest to the failing line first, then in that of the
helpers, classes and fixtures of its file that it names; methods, by the types of what its frames
and fixtures hold. A check of scikit-learn's names nothing but the estimator.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

SHOWN = 12  # lines,
CALLERS = 4  # of them of functions that were running when something was raised
OURS = ("bayesloss", "bayesloss_book")
PLACE = r"(?:\([0-9]+\)|[0-9A-Z](?:\.?[0-9]+)*[a-z]?)(?: \(i+\))?(?!\w)"
CITED = re.compile(
    r"(?:W&N |LHG |GPML |MP92, )?\b(?i:eqs?\.|sections?|theorems?|lemmas?|corollary|appendix|"
    rf"appendices|definitions?|algorithms?|tables?|figures?) {PLACE}(?:(?:,| and| to) {PLACE})*"
)
BREAK = re.compile(r"\s*\n[\s#]*")  # of a line in a docstring or a comment


def _ours(thing: Any) -> bool:
    """Whether it is a function or a class of the library or the book."""
    if not isinstance(thing, FunctionType | type):
        return False
    return thing.__module__ in sys.modules and thing.__module__.partition(".")[0] in OURS


def _source(thing: Any) -> str:
    """Its text with each sentence on one line, though a comment or a docstring breaks it."""
    try:
        return BREAK.sub(" ", inspect.getsource(thing))
    except (OSError, TypeError):
        return ""


def _citations(thing: Any, module: Any) -> list[str]:
    """What it cites, then what functions of its module that it calls do; or else its module."""
    ring: list[Any] = [thing]
    found: dict[str, str] = {}
    for each in ring:
        found |= {place.casefold(): place for place in CITED.findall(_source(each))}
        called = () if isinstance(each, type) else re.findall(r"(?<![.\w])\w+(?=\()", _source(each))
        for other in (vars(module).get(name) for name in called):
            if isinstance(other, FunctionType) and other.__module__ == module.__name__:
                ring += [other] if other not in ring else []
    return list(found.values()) or CITED.findall(" ".join((module.__doc__ or "").split()))


def told(thing: FunctionType | type | CodeType, module: Any = None) -> str:
    """Name, first line of the docstring and at most four citations, in one line."""
    thing = thing if isinstance(thing, CodeType) else inspect.unwrap(thing)
    module = module or sys.modules[thing.__module__]
    name = thing.co_qualname if isinstance(thing, CodeType) else thing.__qualname__
    text = thing.co_consts[:1] if isinstance(thing, CodeType) else [thing.__doc__]
    head = "".join(each for each in text if isinstance(each, str)).strip().partition("\n")[0]
    places = [place for place in _citations(thing, module) if place not in head][:4]
    also = f" [{'; '.join(places)}]" if places else ""
    return f"{module.__name__.rpartition('.')[2]}.{name}: {head}{also}"


def _named(node: ast.AST, room: dict[str, Any], kinds: list[type], called: bool) -> Iterator[Any]:
    """What of ours a name, or an attribute, in a test can be."""
    if isinstance(node, ast.Name):
        yield room.get(node.id)
    elif isinstance(node, ast.Attribute):
        holder = room.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(holder, ModuleType):
            yield getattr(holder, node.attr, None)
        imported = [kind for kind in room.values() if isinstance(kind, type) and _ours(kind)]
        for among in ([holder],) if isinstance(holder, type) else (kinds, imported):
            found = [inspect.getattr_static(kind, node.attr, None) for kind in among]
            if among is imported and not called:  # of what the test does not hold, only methods
                break
            # Of a property, its function.
            found = [getattr(each, "func", getattr(each, "fget", each)) for each in found if each]
            yield from found
            if found:
                break


def stands_on(item: pytest.Function, failure: pytest.ExceptionInfo[Any]) -> list[str]:
    """What a test that failed stands on, a line each, the nearest first."""
    held = list(item.funcargs.values())
    if "check" in item.funcargs:  # scikit-learn's
        return [told(type(thing)) for thing in held if _ours(type(thing))]
    frames = [entry.frame.raw for entry in failure.traceback]
    here = [frame for frame in frames if Path(frame.f_code.co_filename) == item.path]
    modules = [frame.f_globals.get("__name__", "") for frame in frames]
    inside = [
        told(frame.f_code, sys.modules[name])
        for frame, name in zip(frames, modules, strict=True)
        if name.partition(".")[0] in OURS
    ]
    inside = list(dict.fromkeys(inside[::-1]))[:CALLERS]
    lines = [f"{'called by' if at else 'raised in'} {each}" for at, each in enumerate(inside)]
    held += [value for frame in here for value in frame.f_locals.values()]
    types = [thing if isinstance(thing, type) else type(thing) for thing in held]
    kinds = list(filter(_ours, dict.fromkeys(types)))
    places = [entry.lineno + 1 for entry in failure.traceback if Path(entry.path) == item.path]
    tree = ast.walk(ast.parse(item.path.read_text("utf-8")))
    kept = [node for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    # Of several with one name, the one that failed.
    kept.sort(key=lambda node: any(node.lineno <= at <= (node.end_lineno or 0) for at in places))
    defined = {node.name: node for node in kept}
    room, found = vars(item.module), dict[Any, None]()
    ring = [item.originalname or item.name, *item.fixturenames]
    for name in ring:
        whole = list(ast.walk(defined[name])) if name in defined else []
        calls = {id(node.func) for node in whole if isinstance(node, ast.Call)}
        nodes = [node for node in whole if isinstance(node, ast.Name | ast.Attribute)]
        nodes.sort(key=lambda node: min((abs(place - node.lineno) for place in places), default=0))
        for node in nodes:
            found |= dict.fromkeys(filter(_ours, _named(node, room, kinds, id(node) in calls)))
            other = node.id if isinstance(node, ast.Name) else node.attr
            ring += [other] if other not in ring else []
    return (lines + [told(thing) for thing in dict.fromkeys((*found, *kinds))])[:SHOWN]
