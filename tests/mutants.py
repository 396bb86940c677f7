"""Applies small, wrong changes to copies of labkit; its tests must notice them: `make mutants`.

`mutants.toml` lists them. A mutant is caught if its tests fail; one that passes them survives, and
the command then exits with status 1. First the same tests run on the unchanged copy: they must
pass, or every mutant would look caught.

    python tests/mutants.py --jobs 2 --only alpha
"""

import argparse
import concurrent.futures
import os
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 400  # for the tests of one mutant; tests that no longer end have noticed it


def load() -> list[dict[str, str]]:
    """The mutants, each checked: its old text is in the file exactly once."""
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["mutant"]
    for mutant in mutants:
        changed(mutant)
    return mutants


def changed(mutant: dict[str, str]) -> str:
    """The text of a mutant's file with its change."""
    text = (ROOT / mutant["file"]).read_text()
    pairs = [("old", "new")] + [("and_old", "and_new")] * ("and_old" in mutant)
    for old, new in pairs:
        count = text.count(mutant[old])
        if count != 1:
            found = f"{mutant['file']} has this text {count} times, not once: {mutant[old]!r}"
            raise SystemExit(f"mutant {mutant['what']!r}: {found}")
        text = text.replace(mutant[old], mutant[new])
    compile(text, mutant["file"], "exec")
    return text


def copy_checkout(target: Path) -> None:
    """Copies what git tracks, or would track, with the changes that are not committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_tests(checkout: Path, arguments: str) -> tuple[int, str]:
    """pytest's exit status and output; 1 also if the tests reach the time limit."""
    env = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not browser"]
    try:
        done = subprocess.run(
            [*command, *shlex.split(arguments)],
            cwd=checkout,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end within {LIMIT_SECONDS} s"
    return done.returncode, done.stdout


def catch(mutant: dict[str, str], copies: "queue.SimpleQueue[Path]") -> tuple[bool, float]:
    """Whether a mutant's tests fail, and the seconds that they took."""
    checkout, begin = copies.get(), time.monotonic()
    file = checkout / mutant["file"]
    original = file.read_text()
    try:
        file.write_text(changed(mutant))
        status, output = run_tests(checkout, mutant["tests"])
    finally:
        file.write_text(original)
        copies.put(checkout)
    if status not in (0, 1, 2):  # 2: they cannot be collected; 5: no test was selected
        raise SystemExit(f"mutant {mutant['what']!r}: pytest ended with {status}\n{output[-2000:]}")
    return status != 0, time.monotonic() - begin


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time")
    parser.add_argument("--only", default="", help="mutants whose description contains this text")
    parser.add_argument("--trust", action="store_true", help="leave the unchanged tests out")
    options = parser.parse_args()
    mutants = [one for one in load() if options.only in one["what"]]
    with tempfile.TemporaryDirectory() as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(options.jobs):
            copy_checkout(Path(folder) / str(number))
            copies.put(Path(folder) / str(number))
        pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
        if not options.trust:
            suites = sorted({one["tests"] for one in mutants})
            for suite, (status, output) in zip(
                suites, pool.map(lambda suite: unchanged(suite, copies), suites), strict=True
            ):
                if status:
                    raise SystemExit(f"without any change fails: {suite}\n{output[-3000:]}")
        print(f"{len(mutants)} mutants", flush=True)
        survivors = 0
        results = pool.map(lambda one: catch(one, copies), mutants)
        for mutant, (caught, seconds) in zip(mutants, results, strict=True):
            survivors += not caught
            word = "caught  " if caught else "SURVIVED"
            print(f"{word} {seconds:4.0f} s  {mutant['what']}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} caught")
    return 1 if survivors else 0


def unchanged(suite: str, copies: "queue.SimpleQueue[Path]") -> tuple[int, str]:
    """Runs tests on a copy as it is."""
    checkout = copies.get()
    try:
        return run_tests(checkout, suite)
    finally:
        copies.put(checkout)


if __name__ == "__main__":
    sys.exit(main())
