#!/bin/sh
# Every table and figure: experiments/run_all.sh --quick takes minutes each, all of them less than 45 on
# two cores; without --quick hours to days. Started again, it goes on where it stopped. What a script prints
# is left in build/experiments/<script>.txt, beside its results.
#     PRIVMIX_DATA=data PYTHON=.venv/bin/python experiments/run_all.sh --quick
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build/experiments/attacks
failed=
while read -r script arguments; do
    case $script in '' | '#'*) continue ;; esac
    echo "== $script" >&2
    printed=build/experiments/$script.txt
    # shellcheck disable=SC2086 # arguments are words
    "${PYTHON:-python}" -m "experiments.$script" $arguments "$@" > "$printed" < /dev/null || failed="$failed $script"
    cat "$printed"
done < experiments/all.txt
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
