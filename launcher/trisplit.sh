#!/bin/sh
# `trisplit` for where no C compiler was found: hands everything to Python.
case $0 in
/*) door=${0%/*} ;;
*/*) door=$PWD/${0%/*} ;;
*) door=$(command -v -- "$0") && door=${door%/*} ;;
esac
[ -x "$door/trisplit-py" ] || door=$(dirname -- "$(readlink -f -- "$door/${0##*/}")") # we were a link
exec "$door/trisplit-py" "$@"
