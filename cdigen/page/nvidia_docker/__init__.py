"""The HTTP API of nvidia-docker-plugin 1.0.1, for devices of any vendor. All functions are pure.

- ``devices``: ``listed`` returns the devices in the plugin's form, numbered from 0, with their stats;
- ``documents``: /gpu/info/json, /gpu/status/json and /mesos/cli, with the plugin's fields and units;
- ``texts``: /gpu/info and /gpu/status, identical to the plugin's texts in every character.

Source: NVIDIA/nvidia-docker, tag v1.0.1, src/nvidia-docker-plugin/remote_v1.go, src/nvml and src/cuda.
"""
