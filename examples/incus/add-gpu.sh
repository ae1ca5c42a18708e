#!/bin/sh
# Not run: the tests boot no host with Incus. It was tried by hand with Incus 6.0, in a privileged container.
# A GPU for a container of Incus (or of LXD: COMMAND=lxc), which read no CDI specs: cdi-options makes devices of one.
#   incus stop CONTAINER; add-gpu.sh CONTAINER; incus start CONTAINER
# The spec has no hooks, and each library under the names that programs load it by:
#   cdigen generate --kind nvidia.com/gpu --layout files --hook none --output /run/incus-gpu.json
# Their own device, 'incus config device add CONTAINER gpu gpu', brings the nodes alone; with nvidia.runtime=true they
# run libnvidia-container, which is what this is in place of. To take it back, remove the devices that begin with cdi-.
set -eu
"$(dirname "$0")/../cdi-options" incus "${SPEC:-/run/incus-gpu.json}" "${DEVICE:-0}" |
    while read -r name kind source path rest; do
        # shellcheck disable=SC2086
        "${COMMAND:-incus}" config device add "$1" "$name" "$kind" "$source" "$path" $rest
    done
