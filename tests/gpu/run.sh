#!/usr/bin/env bash
# Checks and times engines on a machine with a GPU, in under 8 minutes; nothing is fetched.
# run.sh [REPORT] [OPTION...]: the JSON report goes there, else to $OUT/gpu.json, else to ./gpu.json.
# Options: those of suite/__main__.py; --eager does without CUDA graphs, --device cpu --tiny without a
# GPU. Exit status 1 where a check failed, 2 where nothing could be run.
# PYTHON: an interpreter that has torch, transformers, triton, rich, and what builds the package.
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

# Without the native module there is no engine: the one that is installed, else the checkout's, else
# one that is built.
there() { PYTHONPATH=$1 "$PYTHON" -c 'import dsi_native._core' 2>/dev/null; }
paths=${PYTHONPATH:-}
if ! there "$paths"; then
  paths=python
  if ! there "$paths"; then
    paths=$(mktemp -d)
    trap 'rm -rf "$paths"' EXIT
    if ! timeout 180 "$PYTHON" -m pip install -q --no-build-isolation --no-deps --no-index \
      --target "$paths" . >"$paths/log" 2>&1; then
      echo "the package cannot be built: $(tail -n 1 "$paths/log")" >&2
      exit 2
    fi
  fi
fi
export PYTHONPATH=tests/gpu:$paths
left=$((465 - SECONDS + begun))
timeout $((left + 5)) "$PYTHON" -m suite --report "$report" --seconds $((left - 10)) "$@"
