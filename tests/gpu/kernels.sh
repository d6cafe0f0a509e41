#!/usr/bin/env bash
# Checks and times the Triton kernels on a machine with a GPU, in under 5 minutes; nothing is fetched.
# kernels.sh [REPORT]: writes the JSON report there, else to $OUT/kernels.json, else to ./kernels.json.
# Fails where a check failed. PYTHON: an interpreter that has torch with CUDA, triton and numpy.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
report=${1:-${OUT:-.}/kernels.json}

# With the C++ kernels the GPU is compared with them too; without them with the reference alone.
if ! PYTHONPATH=python "$PYTHON" -c 'from dsi_native._core import verify' 2>/dev/null; then
  built=$(mktemp -d)
  trap 'rm -rf "$built"' EXIT
  if timeout 80 "$PYTHON" -m pip install -q --no-build-isolation --no-deps --no-index \
    --target "$built" . >"$built/log" 2>&1; then
    export PYTHONPATH=$built
  else
    echo "no C++ kernels: $(tail -n 1 "$built/log")" >&2
  fi
fi
export PYTHONPATH=${PYTHONPATH:-python}
timeout 215 "$PYTHON" tests/gpu/kernels.py --report "$report"
