#!/usr/bin/env bash
# Checks and times engines on a machine with a GPU, in under 8 minutes; nothing is fetched.
# run.sh [REPORT] [OPTION...]: writes the JSON report there, else to $OUT/gpu.json, else to ./gpu.json.
# Options: those of suite/__main__.py; --device cpu --tiny needs no GPU. Exit status 1 where a check failed.
# PYTHON: an interpreter that has torch, transformers, triton and rich, and what builds the package.
set -euo pipefail
begun=$SECONDS
report=${OUT:-.}/gpu.json
if [[ $# -gt 0 && $1 != -* ]]; then
  report=$1
  shift
fi
report=$(realpath -m "$report")
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}

# Without the native module there is no engine.
export PYTHONPATH=${PYTHONPATH:-python}
if ! "$PYTHON" -c 'import dsi_native._core' 2>/dev/null; then
  built=$(mktemp -d)
  trap 'rm -rf "$built"' EXIT
  if ! timeout 180 "$PYTHON" -m pip install -q --no-build-isolation --no-deps --no-index \
    --target "$built" . >"$built/log" 2>&1; then
    echo "the package cannot be built: $(tail -n 1 "$built/log")" >&2
    exit 2
  fi
  export PYTHONPATH=$built
fi
export PYTHONPATH=tests/gpu:$PYTHONPATH
left=$((465 - SECONDS + begun))
timeout $((left + 5)) "$PYTHON" -m suite --report "$report" --seconds $((left - 10)) "$@"
