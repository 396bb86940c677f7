"""Checks of the parameters of notebooks that have no `SACConfig` (notebooks 01, 04, 05 and 06)."""

from collections.abc import Mapping
from typing import Any

from labkit.parameters import from_notebook, grouped, invalid, literal, whole_number


def check_ints(name: str, value: object, low: int, high: int, unit: str) -> list[int]:
    """A notebook's parameter as one or more whole numbers; papermill passes a tuple as text.

    Raises:
        ParameterError: a value is not a whole number, or out of range, or there is none.
    """
    given = literal(value) if isinstance(value, str) else value
    several = given if isinstance(given, list | tuple) else [given]
    numbers = [whole_number(low, high, unit).convert(one) for one in several]
    if not numbers or None in numbers:
        allowed = f"one or more whole numbers from {grouped(low)} to {grouped(high)} ({unit})"
        raise invalid(name, value, allowed)
    return [int(number) for number in numbers if number is not None]


def check_path(name: str, value: object, what: str) -> str:
    """A notebook's parameter as the path of `what`, which need not exist.

    Raises:
        ParameterError: it is not text, or empty.
    """
    if not isinstance(value, str) or not value.strip():
        raise invalid(name, value, f"the path of {what}")
    return value


def check_names(namespace: Mapping[str, Any]) -> None:
    """Rejects a mistyped parameter of a notebook without a configuration: `check_names(globals())`.

    The notebook's own parameters cell annotates each parameter, as in `seed: int = 0`. A cell that
    papermill injects may assign these names only.

    Raises:
        ParameterError: it assigns another name.
    """
    from_notebook(namespace, (), namespace.get("__annotations__", {}))
