# Sourced by the recipes: makes .venv from pyproject.toml and constraints.txt if it is missing or
# stale, and puts it first on PATH.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
  local name
  for name in python3.13 python3.12 python3.11 python3; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  echo "vlcpctl needs Python 3.11 or later; none of python3.13, python3.12, python3.11, python3 is" >&2
  return 1
}

choose_extra() { # faiss comes as one of two wheels that overwrite each other
  if [ "$(uname -sm)" = "Linux x86_64" ] && nvidia-smi >/dev/null 2>&1; then echo gpu; else echo cpu; fi
}

stamp_of() { # scripts of an environment contain its path, so a moved one is stale too
  echo "$repository"
  cat "$repository/pyproject.toml" "$repository/recipes/constraints.txt" | cksum
  echo "$1"
}

# With `with_dev=1` an environment needs what the tests need, too; one that has it serves every recipe.
has_environment() {
  local stamp extra
  stamp=$(cat "$repository/.venv/recipe-stamp" 2>/dev/null) && extra=$(choose_extra) || return
  [ "$stamp" = "$(stamp_of "$extra,dev")" ] && return
  [ -z "${with_dev:-}" ] && [ "$stamp" = "$(stamp_of "$extra")" ]
}

show_progress() { # a line for each package that pip or uv names
  sed -uEn 's/^Collecting ([A-Za-z0-9._-]+).*/  \1/p; s/^Installing collected packages.*/  unpacking/p' >&2
}

install_environment() {
  local python extras target
  extras=$(choose_extra)${with_dev:+,dev}
  target=".[$extras]"
  cd "$repository"
  if [ -f .venv/recipe-stamp ] && [ "$(head -n 1 .venv/recipe-stamp)" != "$repository" ]; then
    rm -rf .venv
  fi
  if uv --version >/dev/null 2>&1; then
    echo "environment: installing vlcpctl$target into .venv with uv" >&2
    if [ ! -x .venv/bin/python ]; then
      python=$(find_python) || return
      uv venv --quiet --python "$(command -v "$python")" .venv
    fi
    uv pip install --python .venv/bin/python -c recipes/constraints.txt -e "$target"
  else
    echo "environment: installing vlcpctl$target into .venv with pip" >&2
    if [ ! -x .venv/bin/python ]; then
      python=$(find_python) || return
      "$python" -m venv .venv
    fi
    # Modules are compiled when they are first imported: most of the 20,000 never are.
    .venv/bin/python -m pip install --no-compile --disable-pip-version-check \
      -c recipes/constraints.txt -e "$target" | show_progress
  fi
  stamp_of "$extras" >.venv/recipe-stamp
}

if ! has_environment; then
  (set -eo pipefail; install_environment)
fi

export PATH="$repository/.venv/bin:$PATH"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Images of containers often set this; without bytecode each start would compile torch again (7 s of CPU).
unset PYTHONDONTWRITEBYTECODE
echo "environment: $repository/.venv, OMP_NUM_THREADS=$OMP_NUM_THREADS" >&2
