#!/usr/bin/env bash
# First inputs of pretrained_fuzz, from the golden tokenizers: tests/fuzz/make_pretrained_corpus.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$1"
for file in tests/golden/tokenizers/*.json; do
  [[ $file == */golden.json ]] || { printf j && cat "$file"; } >"$1/${file##*/}"
done
for file in tests/golden/tokenizers/*.model; do { printf s && cat "$file"; } >"$1/${file##*/}"; done
printf 'm{"a":0,"b":1,"ab":2}\n\n#version: 0.2\na b\n' >"$1/merges"
printf 'v[UNK]\n[CLS]\n[SEP]\nthe\n##a\n' >"$1/vocab"
