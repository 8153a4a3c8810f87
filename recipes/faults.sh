#!/usr/bin/env bash
# Tries some 1,200 faults and hostile inputs against vlcpctl and prints those that end badly. About 10
# minutes on two cores.
#
#   bash recipes/faults.sh                   all cases
#   bash recipes/faults.sh "Two processes"   only the cases whose names contain it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source recipes/environment.sh

exec python recipes/faults "$@"
