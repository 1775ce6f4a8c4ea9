"""What the parameters of a page may be: checked before anything is computed with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperledger.stores.tables import IN_ITS_FOLDER

# Beyond this NumPy's and scikit-learn's generators take no seed.
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Rule:
    """What a parameter may be, in words and as a test of a value; and what to do if it is not."""

    expected: str
    allows: Callable[[Any], bool]
    advice: str = ""

    def complaint(self, name: str, value: Any) -> str:
        """What is said of a value that is not allowed."""
        said = f"parameter {name}: expected {self.expected}, got {value!r}"
        return f"{said}; {self.advice}" if self.advice else said


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _between(low: float, high: float | None) -> str:
    return f"of at least {low:,}" if high is None else f"from {low:,} to {high:,}"


def real(low: float, high: float | None = None) -> Rule:
    """A number, from the lowest to the highest that a page can work with."""

    def allows(value: Any) -> bool:
        return _is_number(value) and low <= value and (high is None or value <= high)

    return Rule(f"a number {_between(low, high)}", allows)


def whole(low: int, high: int | None = None) -> Rule:
    """A number without a fraction, and of Python's type ``int``."""
    number = real(low, high)
    allows = lambda value: isinstance(value, int) and number.allows(value)  # noqa: E731
    return Rule(f"a whole number {_between(low, high)}", allows)


def one_of(*values: object) -> Rule:
    """One of a few values."""
    return Rule(f"one of {', '.join(map(repr, values))}", lambda value: value in values)


def several(rule: Rule, *, least: int = 1, among: tuple[object, ...] = ()) -> Rule:
    """A tuple, or a list as papermill gives it, of so many values or more, these among them."""

    def allows(values: Any) -> bool:
        if not isinstance(values, tuple | list) or len(values) < least:
            return False
        given = [tuple(value) if isinstance(value, list) else value for value in values]
        return all(map(rule.allows, values)) and all(value in given for value in among)

    expected = f"a tuple or list of {least} or more, each {rule.expected}"
    if among:
        expected += f", among them {', '.join(map(repr, among))}"
    return Rule(expected, allows)


def row(*rules: Rule) -> Rule:
    """A tuple or list with a value for each rule."""

    def allows(values: Any) -> bool:
        if not isinstance(values, tuple | list) or len(values) != len(rules):
            return False
        return all(rule.allows(value) for rule, value in zip(rules, values, strict=True))

    return Rule(f"({'; '.join(rule.expected for rule in rules)})", allows)


SEED = whole(0, LARGEST_SEED)


def _is_folder(value: Any) -> bool:
    return isinstance(value, str | Path) and Path(value).is_dir()


def _has_pages(value: Any) -> bool:
    return _is_folder(value) and any(Path(value).glob("learning/*.ipynb"))


# Those that mean the same on every page.
SHARED = {
    "scale": one_of("quick", "paper"),
    "results": Rule("the folder of stored results", _is_folder, IN_ITS_FOLDER),
    "book": Rule("the folder of the executed pages", _has_pages, IN_ITS_FOLDER),
    "seed": SEED,
    "n_jobs": Rule(
        "a number of workers other than 0, where -1 is one for each processor",
        lambda value: whole(-(2**31)).allows(value) and value != 0,
    ),
}


def check_parameters(values: Mapping[str, Any], **rules: Rule) -> None:
    """Check the parameters of a page, where they are given.

    Parameters
    ----------
    values : mapping
        The names that the page has bound so far and their values: ``globals()``.
    **rules : Rule
        What the parameters that only this page has may be, by their names.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range. The message names each such
        parameter, what was expected and what came.
    """
    wrong = [
        rule.complaint(name, values[name])
        for name, rule in (SHARED | rules).items()
        if name in values and not rule.allows(values[name])
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
