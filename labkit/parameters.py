"""Checked parameters: fields of a configuration, single values, and the parameters of a notebook.

Nothing here imports TensorFlow, so that a wrong value is rejected before any work starts.
"""

import ast
import difflib
import functools
import itertools
import math
import re
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
    try:
        shown = re.sub(r"\s*\n\s*", " ", repr(value))  # an array's has several lines
    except Exception:  # an integer of more than 4 300 digits, lists nested too deeply, a user's own
        return f"a value of type {type(value).__name__} that cannot be printed"
    return shown if len(shown) <= MAX_ECHO else f"{shown[:MAX_ECHO]}…"


def unknown(name: object, known: Collection[str]) -> ParameterError:
    """The error for a parameter that does not exist; it names the closest one that does."""
    short = isinstance(name, str) and len(name) <= MAX_ECHO
    shown = name if short and str(name).isidentifier() else echo(name)
    hint = did_you_mean(str(name), known) if short else ""
    return ParameterError(f"`{shown}` is not a parameter{hint}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


# --- single values


def grouped(number: float) -> str:
    """A number with its digits in groups of three: `1 000 000`."""
    return f"{number:,}".replace(",", " ")


def brief(value: Any) -> str:
    """A value for a table. Three or more equal neighbours of a tuple are counted: `(4 × 1, 5)`."""
    if isinstance(value, tuple):
        runs = [[*equal] for _, equal in itertools.groupby(value)]
        shown = [
            [f"{len(run)} × {brief(run[0])}"] if len(run) > 2 else [*map(brief, run)]
            for run in runs
        ]
        return f"({', '.join(itertools.chain(*shown))})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def literal(text: str, otherwise: Any = None) -> Any:
    """The Python literal that a text spells; `otherwise` if it spells none."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return otherwise


def _number(value: Any) -> float | int | None:
    """A finite number from a number or from text, else None. Truth values are not numbers."""
    value = literal(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _in_range(
    value: object, low: float, high: float, *, above: bool, whole: bool
) -> float | int | None:
    number = _number(value)
    if number is None or (whole and not isinstance(number, int)):
        return None
    inside = (low < number if above else low <= number) and number <= high
    return number if inside else None


def check_int(name: str, value: object, low: int, high: int, unit: str) -> int:
    """A notebook's parameter as a whole number; papermill passes `1e4` as `10000.0`.

    Raises:
        ParameterError: it is not a whole number, or out of range.
    """
    number = _in_range(value, low, high, above=False, whole=True)
    if number is None:
        raise invalid(name, value, _whole_number(low, high, unit))
    return int(number)


def check_real(
    name: str, value: object, low: float, high: float, unit: str, *, above: bool = False
) -> float:
    """A notebook's parameter as a number; `above`: `low` itself is not allowed.

    Raises:
        ParameterError: it is not a number, or out of range.
    """
    number = _in_range(value, low, high, above=above, whole=False)
    if number is None:
        raise invalid(name, value, _real_number(low, high, unit, above=above))
    return float(number)


def check_no_wildcards(name: str, path: object) -> None:
    """Rejects a path that TensorFlow would take for a pattern.

    Raises:
        ParameterError: it has * ? [ or a backslash.
    """
    if set(str(path)) & set("*?[\\"):
        allowed = "a path without * ? [ and backslash, which TensorFlow takes for wildcards"
        raise invalid(name, str(path), allowed)


def _whole_number(low: int, high: int, unit: str) -> str:
    return f"a whole number from {grouped(low)} to {grouped(high)} ({unit})"


def _real_number(low: float, high: float, unit: str, *, above: bool) -> str:
    bound = f"above {low:g} and up to {high:g}" if above else f"from {low:g} to {high:g}"
    return f"a number {bound} ({unit})"


# --- fields of a configuration


def _field(default: Any, convert: Callable[[Any], Any], allowed: str) -> Any:
    """An attrs field whose converter checks the value and names the field in its error.

    `convert` returns the checked value, or None for a value that is not allowed. A default of None
    is not checked. Returns `Any`, so that a class can annotate the field with the checked type.
    """

    def converter(value: Any, field: attrs.Attribute) -> Any:
        converted = convert(value)
        if converted is None and not (value is None and default is None):
            raise invalid(field.name, value, allowed)
        return converted

    return attrs.field(default=default, converter=attrs.Converter(converter, takes_field=True))


def integer(default: int, low: int, high: int, unit: str) -> Any:
    """A whole number from `low` to `high`."""
    convert = functools.partial(_in_range, low=low, high=high, above=False, whole=True)
    return _field(default, convert, _whole_number(low, high, unit))


def real(default: float | None, low: float, high: float, unit: str, above: bool = False) -> Any:
    """A number from `low` to `high`; with `above`, `low` itself is not allowed."""

    def convert(value: Any) -> float | None:
        number = _in_range(value, low, high, above=above, whole=False)
        return None if number is None else float(number)

    return _field(default, convert, _real_number(low, high, unit, above=above))


def numbers(
    default: tuple[float, ...], length: int, low: float, high: float, unit: str, *, whole: bool
) -> Any:
    """A tuple of at most `length` numbers from `low` to `high`; whole ones are at least one."""

    def convert(value: Any) -> tuple[float, ...] | None:
        value = literal(value) if isinstance(value, str) else value
        value = value.tolist() if hasattr(value, "tolist") else value  # a NumPy array
        items = tuple(value) if isinstance(value, list | tuple) else (value,)
        checked = [_in_range(item, low, high, above=False, whole=whole) for item in items]
        found = [number for number in checked if number is not None]
        if len(found) < len(items) or len(items) > length or (whole and not items):
            return None
        return tuple(found) if whole else tuple(map(float, found))

    kind = f"{'1' if whole else '0'} to {length} {'whole numbers' if whole else 'numbers'}"
    example = "(256, 256)" if whole else "(3.14, 20)"
    allowed = f"{kind} from {low:g} to {high:g} ({unit}), such as {example}"
    return _field(default, convert, allowed)


def text(default: str, pattern: str, allowed: str) -> Any:
    """Text that matches a regular expression as a whole."""

    def convert(value: Any) -> str | None:
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else None

    return _field(default, convert, allowed)


def switch(default: bool, unit: str) -> Any:
    """True or False, also as text or as 1 and 0."""

    def convert(value: Any) -> bool | None:
        text = value if isinstance(value, str) else echo(value)
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())

    return _field(default, convert, f"True or False ({unit})")


def check_capacity(capacity: int, batch_size: int, unit: str) -> None:
    """Rejects a replay buffer that is smaller than one batch.

    Raises:
        ParameterError: names both.
    """
    if capacity < batch_size:
        allowed = f"at least `batch_size` = {grouped(batch_size)} ({unit})"
        raise invalid("replay_buffer_capacity", capacity, allowed)


# --- a notebook's parameters


def from_notebook(
    namespace: Mapping[str, Any], fields: Collection[str], others: Collection[str] = ()
) -> dict[str, Any]:
    """Reads a notebook's parameters: `from_notebook(globals(), names of the fields)`.

    Returns name → value of the fields that the namespace holds. A mistyped name would silently
    leave the default in place. So every name that a parameters cell assigns must be a field or one
    of `others`: in the cell that papermill injects, and in the notebook's own. A cell that was
    executed again counts in its last version only.

    Raises:
        ParameterError: a parameters cell assigns a name that is neither a field nor another.
    """
    known, later = {*fields, *others}, set[str]()
    for source in reversed(namespace.get("In", ())):
        names = assigned_parameters(source, known)
        right = known.intersection(names)
        if right and right <= later:  # a later cell has replaced this one
            names = [name for name in names if name in later]
        for name in names:
            if name not in known:
                raise unknown(name, known)
        later.update(names)
    return {name: namespace[name] for name in fields if name in namespace}


def assigned_parameters(source: str, known: Collection[str]) -> list[str]:
    """The names that a cell assigns, if it is a parameters cell; else nothing.

    papermill's injected cell begins with `# Parameters`. A notebook's own consists of nothing but
    assignments, most of them to known names.
    """
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
    recognised = len(set(names) & {*known})
    own = recognised >= 3 and 2 * recognised >= len(names)
    return names if own or source.startswith("# Parameters") else []
