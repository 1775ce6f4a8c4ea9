import ast
import importlib
import inspect
import pkgutil
import re

import pytest

import bayesloss

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(bayesloss.__path__, "bayesloss.")
    if not found.ispkg
]


def described(name, module=bayesloss):
    """A public function or class of a module, and its methods, as functions."""
    shown = getattr(module, name)
    methods = vars(shown).values() if inspect.isclass(shown) else ()
    methods = [getattr(method, "__func__", method) for method in methods]
    return shown, *filter(inspect.isfunction, methods)


def documented(shown):
    """The defaults that a docstring tells, by parameter."""
    found = re.findall(r"^(\w+(?:, \w+)*) : .*default=(.+)$", inspect.getdoc(shown) or "", re.M)
    return {name: ast.literal_eval(told) for names, told in found for name in names.split(", ")}


@pytest.mark.parametrize("name", bayesloss.__all__)
def test_defaults_are_documented(name):
    """Where they are, or by a relative: a base class, or its module, or all that have the name."""
    public = [each for other in bayesloss.__all__ for each in described(other)]
    for shown in described(name):
        kin = [*getattr(shown, "__mro__", [shown])]
        kin += [each for each in public if each.__module__ == shown.__module__]
        for parameter in inspect.signature(shown).parameters.values():
            if not isinstance(parameter.default, int | float | str | tuple):
                continue  # None and the like are told in words
            if parameter.name.startswith("_") or shown.__name__.startswith("_"):
                continue
            near, all_told = (
                {
                    documented(each)[parameter.name]
                    for each in among
                    if parameter.name in documented(each)
                }
                for among in (kin, public)
            )
            told = near or all_told
            assert told, f"{shown}: no docstring tells the default of {parameter.name}"
            assert parameter.default in told, f"{shown}: {parameter}, and told is {told}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_parameter_that_is_described_has_the_default_that_is_told(module):
    """Of what a module has for others, too; or else that of its relatives there."""
    public = [
        name
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", None) == module.__name__
    ]
    shown = [each for name in public for each in described(name, module) if callable(each)]
    kin = [(name, default) for each in shown for name, default in documented(each).items()]
    for each in shown:
        told = documented(each)
        text = inspect.getdoc(each) or ""
        assert told.keys() <= inspect.signature(each).parameters.keys() or inspect.isclass(each)
        for parameter in inspect.signature(each).parameters.values():
            default = parameter.default
            if not isinstance(default, int | float | str | tuple) or "inf" in repr(default):
                continue
            near = [value for name, value in kin if name == parameter.name]
            if re.search(rf"^{parameter.name} : ", text, re.M):
                assert parameter.name in told, f"{each}: no default={default!r} is told"
                assert default == told[parameter.name], f"{each}: {parameter}"
            elif near and not each.__name__.startswith("_"):
                assert default in near, f"{each}: {parameter}, and told is {near}"
