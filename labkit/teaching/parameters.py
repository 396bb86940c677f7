"""Checks of the parameters of notebooks that have no `SACConfig` (notebooks 01, 04, 05 and 06)."""

from collections.abc import Mapping
from typing import Any

from labkit.parameters import from_notebook, invalid


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
