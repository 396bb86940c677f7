"""The configuration in a run directory's `config.json`."""

import json
import os
from pathlib import Path
from typing import Any

from labkit.config import SACConfig
from labkit.errors import ParameterError

FORMAT = 1


def read_config(path: str | os.PathLike[str]) -> SACConfig:
    """The configuration of a run directory.

    Raises:
        ParameterError: `config.json` is missing, damaged, or of another format.
    """
    try:
        return SACConfig.parse(_fields(path))
    except (ParameterError, TypeError, AttributeError) as error:
        raise ParameterError(f"{Path(path) / 'config.json'} is damaged: {error}") from None


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
