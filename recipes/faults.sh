#!/usr/bin/env bash
# Tries some 1,200 faults and hostile inputs against vlcpctl and writes docs/results/faults.md: what was
# tried, the exit code, and what was printed. About 10 minutes on two cores.
#
#   bash recipes/faults.sh                all cases; writes docs/results/faults.md
#   bash recipes/faults.sh --slips        slips of a first day; writes docs/results/slips.md
#   bash recipes/faults.sh "Two processes"   only the cases whose names contain it; writes nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source recipes/environment.sh

if [ "${*:-}" = --slips ]; then
  exec python recipes/faults --slips --out docs/results/slips.md
fi
if [ $# -gt 0 ]; then
  exec python recipes/faults "$@"
fi
exec python recipes/faults --out docs/results/faults.md
