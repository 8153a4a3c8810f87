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

wanted_stamp() { # scripts of an environment contain its path, so a moved one is stale too
  echo "$repository"
  cat "$repository/pyproject.toml" "$repository/recipes/constraints.txt" | cksum
  choose_extra
}

install_environment() {
  local python target=".[$(choose_extra),dev]"
  cd "$repository"
  if [ -f .venv/recipe-stamp ] && [ "$(head -n 1 .venv/recipe-stamp)" != "$repository" ]; then
    rm -rf .venv
  fi
  if uv --version >/dev/null 2>&1; then
    echo "environment: installing vlcpctl$target into .venv with uv, about a minute" >&2
    if [ ! -x .venv/bin/python ]; then
      python=$(find_python) || return
      uv venv --quiet --python "$(command -v "$python")" .venv
    fi
    uv pip install --quiet --python .venv/bin/python -c recipes/constraints.txt -e "$target"
  else
    echo "environment: installing vlcpctl$target into .venv with pip, about two minutes" >&2
    if [ ! -x .venv/bin/python ]; then
      python=$(find_python) || return
      "$python" -m venv .venv
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
      -c recipes/constraints.txt -e "$target"
  fi
  wanted_stamp >.venv/recipe-stamp
}

if [ "$(wanted_stamp)" != "$(cat "$repository/.venv/recipe-stamp" 2>/dev/null)" ]; then
  (install_environment)
fi

export PATH="$repository/.venv/bin:$PATH"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
echo "environment: $repository/.venv, OMP_NUM_THREADS=$OMP_NUM_THREADS" >&2
