#!/usr/bin/env bash
# Starts every process of the plan on this node, and ends with the first.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
{{starts}}
wait -n
