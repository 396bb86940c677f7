#!/usr/bin/env bash
# Makes .venv and installs requirements.lock and labkit (editable) into it.
# Does nothing and prints nothing if that is done.
#
#   scripts/setup.sh        PYTHON=/path/to/python3.11 names the interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0

venv=.venv
python=$venv/bin/python
stamp=$venv/.labkit-stamp # the fingerprint of the finished set-up
made=$venv/.labkit-made   # exists if this script made .venv and may remove it
log=$venv/setup.log

no_python() {
    cat >&2 <<TEXT
$1
Do one of the following:
  Debian, Ubuntu   apt install python3-venv     (or python3.11-venv), then run make again
  conda, mamba     conda env create -f environment.yml && conda activate labkit
  uv               uv venv --python 3.11 .venv, then run make again
  elsewhere        make setup PYTHON=/path/to/python3.11
TEXT
    exit 1
}

give_up() {
    echo "$1" >&2
    exit 1
}

is_311() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate candidates=(python3.11 python3)
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        if is_311 "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# Runs a step with its output in the log; shows the end of the log if it fails.
logged() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 15 "$log" | cut -c -200 >&2
        give_up "Set-up failed; $log has the complete output. Run make again to retry."
    fi
}

fingerprint() {
    echo "$PWD"
    cksum requirements.lock
    cksum pyproject.toml
}

make_venv() {
    local base output
    base=$(find_python) || no_python "labkit needs Python 3.11 (dm-reverb has no wheels for newer ones); found none as ${PYTHON:-python3.11 or python3 on PATH}."
    mkdir "$venv"
    touch "$made"
    if ! output=$("$base" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        case $output in
            *ensurepip* | *"No module named venv"*) no_python "$base cannot make virtual environments: its venv package is missing." ;;
            *) give_up "$base -m venv $venv failed: $output" ;;
        esac
    fi
}

# Installs pip if it is missing, as in an environment made by uv.
ensure_pip() {
    "$python" -m pip --version >/dev/null 2>&1 && return
    "$python" -m ensurepip >>"$log" 2>&1 && return
    command -v uv >/dev/null || give_up "$venv has no pip, and there is no uv to install it; remove $venv, then run make again."
    logged uv pip install --python "$python" pip
}

install_lock() {
    # gym is a source distribution: the locked setuptools and wheel build it, not the newest ones.
    grep -E '^(setuptools|wheel)==' requirements.lock >"$venv/build-tools.txt"
    logged "$python" -m pip install -c requirements.lock -r "$venv/build-tools.txt"
    logged "$python" -m pip install --no-compile --no-build-isolation -r requirements.lock
    # pip would compile on one core. Files for other Python versions fail to compile; ignore that.
    "$python" -m compileall -q -j 0 "$venv"/lib/python3.11/site-packages >>"$log" 2>&1 || true
}

install_labkit() {
    logged "$python" -m pip install --no-deps --no-build-isolation -e .
}

# --- is it done already?

wanted=$(fingerprint)
found=$(cat "$stamp" 2>/dev/null || true)
if [ "$found" = "$wanted" ] && [ -x "$python" ]; then
    exit 0
fi
rm -f "$stamp"

# Folder and lock are unchanged: only pyproject.toml changed.
if [ "$(head -n 2 <<<"$found")" = "$(head -n 2 <<<"$wanted")" ] && [ -x "$python" ]; then
    install_labkit
    echo "$wanted" >"$stamp"
    exit 0
fi

# Interrupted, or the lock changed: replace an environment made by this script, keep any other.
if [ -e "$made" ]; then
    rm -rf "$venv"
fi
if [ -e "$venv" ]; then
    is_311 "$python" || give_up "$venv exists and is no Python 3.11 environment; remove it, then run make again."
else
    make_venv
fi

# --- install

echo "Setting up $venv: about three minutes on two cores, 0.8 GB to download, 3.6 GB on disk ..." >&2
trap 'give_up "Interrupted; run make again to retry."' INT TERM
started=$SECONDS
: >"$log"
ensure_pip
install_lock
install_labkit
echo "$wanted" >"$stamp"
echo "Set up in $((SECONDS - started)) s." >&2
