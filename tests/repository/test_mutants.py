"""The list of mutants, which `make mutants` runs: each still fits the code and has tests."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]
import mutants  # noqa: E402


def test_every_mutant_fits_the_code_and_names_tests():
    every = mutants.load()  # ends with the name of the first that does not fit
    assert len(every) > 100
    for mutant in every:
        files = [word for word in mutant["tests"].split() if word.startswith("tests/")]
        assert files, mutant["what"]
        assert all((mutants.ROOT / file).exists() for file in files), mutant["what"]
