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

install_environment() {
  local python extras target uv=uv
  extras=$(choose_extra)${with_dev:+,dev}
  target=".[$extras]"
  cd "$repository"
  if [ -f .venv/recipe-stamp ] && [ "$(head -n 1 .venv/recipe-stamp)" != "$repository" ]; then
    rm -rf .venv
  fi
  echo "environment: installing vlcpctl$target into .venv" >&2
  python=$([ -x .venv/bin/python ] || find_python)
  if uv --version >/dev/null 2>&1; then
    [ -z "$python" ] || uv venv --quiet --python "$(command -v "$python")" .venv
  else # brought by pip, it takes a quarter of pip's time
    [ -z "$python" ] || "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check uv >&2 || true
    uv=.venv/bin/uv
  fi
  # Where only pip's own settings name the package index, pip can install what uv cannot.
  "$uv" pip install --python .venv/bin/python -c recipes/constraints.txt -e "$target" >&2 ||
    .venv/bin/python -m pip install --no-compile -c recipes/constraints.txt -e "$target" >&2
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
