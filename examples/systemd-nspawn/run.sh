#!/bin/sh
# A GPU in a container of systemd-nspawn, which reads no CDI specs: cdi-options makes its options of one.
#   run.sh DIRECTORY COMMAND...
# The spec has no hooks, and each library under the names that programs load it by:
#   cdigen generate --kind nvidia.com/gpu --layout files --hook none --output /run/nspawn-gpu.json
# Make it anew after an upgrade of the driver: nothing else does, as it lies in no spec directory.
set -eu
directory=$1
shift
options=$("$(dirname "$0")/../cdi-options" nspawn "${SPEC:-/run/nspawn-gpu.json}" "${DEVICE:-0}")
# One option a line, and no path of a driver has blanks.
# shellcheck disable=SC2086
exec systemd-nspawn --quiet --directory="$directory" ${NSPAWN_OPTIONS:-} $options "$@"
