#!/usr/bin/env bash
# Everything that must hold: style, types, layers, tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
with_dev=1
source recipes/environment.sh

failed=()
check() {
  echo "== $*"
  "$@" || failed+=("$*")
}

check ruff check
check ruff format --check
check mypy
check lint-imports --no-logo
check codespell
check sphinx-build -W --keep-going -q docs runs/docs
check validate-pyproject pyproject.toml

lint=0
if [ ${#failed[@]} -gt 0 ]; then
  printf '== failed: %s\n' "${failed[@]}"
  lint=1
fi

echo "== pytest"
pytest -n 2 -m "not slow and not gpu and not net" "$@" || exit $?
exit "$lint"
