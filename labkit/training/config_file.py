"""The configuration in a run directory's `config.json`, also that of earlier versions."""

import json
import os
from pathlib import Path
from typing import Any

from labkit.config import ADDED, ADDED_IN, SACConfig
from labkit.errors import ParameterError
from labkit.parameters import REMOVED

FORMAT = 1


def read_config(path: str | os.PathLike[str]) -> SACConfig:
    """The configuration of a run directory, without the fields that were removed since.

    Raises:
        ParameterError: `config.json` is missing, damaged, or of another format.
    """
    fields = {name: value for name, value in _fields(path).items() if name not in REMOVED}
    try:
        return SACConfig.parse({**_added(fields), **fields})
    except (ParameterError, TypeError, AttributeError) as error:
        raise ParameterError(f"{Path(path) / 'config.json'} is damaged: {error}") from None


def read_removed(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Removed fields whose values differ from what the present code does.

    Raises:
        ParameterError: as `read_config`.
    """
    fields = _fields(path)
    return {
        name: fields[name] for name, (same, _) in REMOVED.items() if fields.get(name, same) != same
    }


def _added(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that earlier versions lack, with the values that they used."""
    return ADDED | ADDED_IN.get(fields.get("env_name", ""), {})


def _fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    file = Path(path) / "config.json"
    try:
        content = json.loads(file.read_text())
        version, fields = content["format"], dict(content["config"])
    except OSError as error:
        raise ParameterError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ParameterError(f"{file} is damaged: it is not the JSON that labkit writes") from None
    if version != FORMAT:
        raise ParameterError(f"{file} has format {version!r}; this labkit reads format {FORMAT}")
    return fields
