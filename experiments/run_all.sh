#!/bin/sh
# Every table and figure: experiments/run_all.sh --quick takes minutes each, all of them less than 45 on
# two cores; without --quick hours to days. Started again, it goes on where it stopped.
#     PRIVMIX_DATA=data PYTHON=.venv/bin/python experiments/run_all.sh --quick
set -u
cd "$(dirname "$0")/.." || exit 1
failed=
for script in $(sed 's/#.*//' experiments/all.txt); do
    echo "== $script" >&2
    "${PYTHON:-python}" -m "experiments.$script" "$@" || failed="$failed $script"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
