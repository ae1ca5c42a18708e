#!/bin/sh
# Not run: Debian 12 and 13 have no Apptainer.
# A GPU in a container of Apptainer, in place of --nv, which looks for the driver at every start:
#   run.sh IMAGE.sif COMMAND...
# Apptainer runs no hooks, so the spec is one without, and has each library under the names that programs load it by:
#   cdigen generate --kind nvidia.com/gpu --layout files --hook none --output /run/apptainer-gpu.json
# Apptainer 1.5 and later read specs themselves. Give it a kind without hooks, by a profile of /etc/cdigen/config.yaml,
# "{name: files, class: gpu-files, layout: files, hook: none}", and then:
#   apptainer exec --device nvidia.com/gpu-files=0 IMAGE.sif COMMAND...
set -eu
options=$("$(dirname "$0")/../cdi-options" apptainer "${SPEC:-/run/apptainer-gpu.json}" "${DEVICE:-0}")
# One option a line, and no path of a driver has blanks.
# shellcheck disable=SC2086
exec apptainer exec --cleanenv $options "$@"
