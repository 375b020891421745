#!/usr/bin/env bash
# Build wheel and sdist into dist/, check both, and run the README's first command with the wheel of
# the sdist in a fresh environment, from another folder. Needs build, twine and check-wheel-contents.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf dist
python3 -m build # the wheel is built from the sdist: what the sdist lacks shows
twine check --strict dist/*
check-wheel-contents dist/*.whl

environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment/venv"
"$environment/venv/bin/pip" install --quiet --disable-pip-version-check dist/*.whl
wheel=$PWD/dist
cd "$environment"
# Specs come from the wheel, not from a checkout: there is none here.
"$environment/venv/bin/planner" --version
"$environment/venv/bin/planner" search --model llama-65b --gpus 2048 | tee answer
grep -q RECOMMENDED answer
"$environment/venv/bin/python" -P -c 'import planner; print(planner.__file__)'
echo "good: $(ls "$wheel")"
