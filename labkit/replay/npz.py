"""NPZ files, written so that a full disk raises one error and prints nothing."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt


def write(file: Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Writes arrays by name for `np.load`; raises an OSError if the disk is full or gone.

    `np.savez` leaves its archive open when a write fails, and Python prints a traceback when it
    deletes that archive.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
