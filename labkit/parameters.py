"""Checked parameters: of a configuration, of a call and of a notebook, before TensorFlow loads."""

import ast
import difflib
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from labkit.errors import ParameterError

MANY = 10**9
MAX_ECHO = 80  # characters of a wrong value that its message repeats


def invalid(name: str, value: object, allowed: str) -> ParameterError:
    """The error for a wrong value, such as "`batch_size` must be a whole number …, got 0"."""
    return ParameterError(f"`{name}` must be {allowed}, got {echo(value)}")


def echo(value: object) -> str:
    """A value as its message repeats it: one line of at most `MAX_ECHO` characters and a `…`."""
    shown = re.sub(r"\s*\n\s*", " ", repr(value))  # an array's has several lines
    return shown if len(shown) <= MAX_ECHO else f"{shown[:MAX_ECHO]}…"


def unknown(name: object, known: Collection[str]) -> ParameterError:
    """The error for a parameter that does not exist; it names the closest one that does."""
    shown = name if isinstance(name, str) and name.isidentifier() else echo(name)
    match = difflib.get_close_matches(str(name)[:MAX_ECHO], known, n=1, cutoff=0.5)
    hint = f"; did you mean {match[0]!r}?" if match else ""
    return ParameterError(f"`{shown}` is not a parameter{hint}")


def grouped(number: float) -> str:
    """A number with its digits in groups of three: `1 000 000`."""
    return f"{number:,}".replace(",", " ")


def brief(value: Any) -> str:
    """A value for a table; a long tuple is cut short."""
    if isinstance(value, tuple):
        return reprlib.repr(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _checked(name: str, value: object, convert: Callable[[Any], Any], allowed: str) -> Any:
    """The converted value; rejects one that `convert` makes None."""
    converted = convert(value)
    if converted is None:
        raise invalid(name, value, allowed)
    return converted


def _field(default: Any, convert: Callable[[Any], Any], allowed: str) -> Any:
    """An attrs field. Returns `Any`, so that a class can annotate it with the checked type.

    A value that is not given, or None (`None` as text, too, from papermill), becomes the one that
    the instance's `defaults()` has for the field, if it has this method, else `default`.
    """

    def check(value: Any, instance: Any, field: attrs.Attribute) -> Any:
        if value is None or (isinstance(value, str) and value == "None"):
            special = instance.defaults() if hasattr(instance, "defaults") else {}
            value = special.get(field.name, default)
        return None if value is None else _checked(field.name, value, convert, allowed)

    converter = attrs.Converter(check, takes_self=True, takes_field=True)
    return attrs.field(default=None, converter=converter, metadata={"default": default})


def literal(text: str, otherwise: Any = None) -> Any:
    """The Python literal that a text spells; `otherwise` if it spells none."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return otherwise


def _number(low: float, high: float, unit: str, whole: bool = False, above: bool = False) -> Any:
    """Converts what is a number from `low` to `high`, and says what is allowed."""

    def convert(value: Any) -> float | None:
        value = literal(value) if isinstance(value, str) else value
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            return None
        try:
            number = float(value)  # papermill passes `1e4` as `10000.0`
        except (TypeError, ValueError, OverflowError):
            return None
        inside = low < number <= high if above else low <= number <= high  # never if NaN
        if not inside or (whole and not number.is_integer()):
            return None
        return int(number) if whole else number

    if whole:
        return convert, f"a whole number from {grouped(low)} to {grouped(high)} ({unit})"
    bound = f"above {low:g} and up to {high:g}" if above else f"from {low:g} to {high:g}"
    return convert, f"a number {bound} ({unit})"


def check_int(name: str, value: object, low: int, high: int, unit: str) -> int:
    """Rejects a notebook's parameter or an argument that is no whole number from low to high."""
    return _checked(name, value, *_number(low, high, unit, whole=True))


def check_real(
    name: str, value: object, low: float, high: float, unit: str, above: bool = False
) -> float:
    """Rejects what is no number from low to high; with `above`, low itself is not allowed."""
    return _checked(name, value, *_number(low, high, unit, above=above))


def check_no_wildcards(name: str, path: object) -> None:
    """Rejects a path that TensorFlow would take for a pattern."""
    if set(str(path)) & set("*?[\\"):
        raise invalid(name, str(path), "a path without * ? [ and backslash, TensorFlow's wildcards")


def check_path(name: str, value: object, what: str) -> str:
    """Rejects a notebook's parameter that is not the path of `what`, which need not exist."""
    if not isinstance(value, str) or not value.strip():
        raise invalid(name, value, f"the path of {what}")
    return value


def integer(default: int, low: int, high: int, unit: str) -> Any:
    """A field: a whole number from `low` to `high`."""
    return _field(default, *_number(low, high, unit, whole=True))


def real(default: float | None, low: float, high: float, unit: str, above: bool = False) -> Any:
    """A field: a number from `low` to `high`; with `above`, `low` itself is not allowed."""
    return _field(default, *_number(low, high, unit, above=above))


def numbers(
    default: tuple[float, ...], length: int, low: float, high: float, unit: str, whole: bool = False
) -> Any:
    """A field: a tuple of at most `length` numbers; if `whole`, at least one whole number."""
    one, _ = _number(low, high, unit, whole)

    def convert(value: Any) -> tuple[float, ...] | None:
        value = literal(value) if isinstance(value, str) else value
        value = value.tolist() if hasattr(value, "tolist") else value  # a NumPy array
        found = tuple(map(one, value if isinstance(value, list | tuple) else [value]))
        return None if None in found or not whole <= len(found) <= length else found

    kind, example = ("1 to {} whole", "(256, 256)") if whole else ("0 to {}", "(3.14, 20)")
    bounds = f"{kind.format(length)} numbers from {low:g} to {high:g}"
    return _field(default, convert, f"{bounds} ({unit}), such as {example}")


def text(default: str, pattern: str, allowed: str) -> Any:
    """A field: text that matches a regular expression as a whole."""

    def convert(value: Any) -> str | None:
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else None

    return _field(default, convert, allowed)


def switch(default: bool, unit: str) -> Any:
    """A field: True or False, also as text or as 1 and 0."""

    def convert(value: Any) -> bool | None:
        text = value if isinstance(value, str) else echo(value)
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())

    return _field(default, convert, f"True or False ({unit})")


def from_notebook(
    namespace: Mapping[str, Any], fields: Collection[str], others: Collection[str] = ()
) -> dict[str, Any]:
    """Reads a notebook's parameters: `from_notebook(globals(), names of the fields)`.

    Returns name → value of the fields that the namespace holds. A mistyped name would silently
    leave a default in place, so two cells may assign to `fields` and `others` only: the cell that
    papermill injects, which begins with `# Parameters`, and the notebook's own parameters cell, the
    newest one that has assignments only, at least three of them to known names.
    """
    known = {*fields, *others}
    for source in reversed(namespace.get("In", ())):
        names = _assigned(source)
        own = len(known.intersection(names)) >= 3
        for name in names if own or source.startswith("# Parameters") else ():
            if name not in known:
                raise unknown(name, known)
        if own and not source.startswith("# Parameters"):
            break
    return {name: namespace[name] for name in fields if name in namespace}


def check_names(namespace: Mapping[str, Any]) -> None:
    """Rejects a mistyped parameter of a notebook without a configuration: `check_names(globals())`.

    The notebook's own parameters cell annotates each parameter, as in `seed: int = 0`. A cell that
    papermill injects may assign these names only.
    """
    from_notebook(namespace, (), namespace.get("__annotations__", {}))


def _assigned(source: str) -> list[str]:
    """The names that a cell assigns, if it consists of nothing but assignments; else nothing."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a cell with a line magic
        return []
    names = []
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            return []
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names
