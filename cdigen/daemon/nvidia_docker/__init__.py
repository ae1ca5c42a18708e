"""What nvidia-docker-plugin 1.0.1 told over HTTP, of the devices of any vendor; all of it is pure.

- ``devices``: ``listed``, the devices as 1.0 knew them: numbered from 0, with what figures tell;
- ``documents``: /gpu/info/json, /gpu/status/json and /mesos/cli, fields and units as 1.0's;
- ``texts``: /gpu/info and /gpu/status, character by character;
- ``queries``: which devices ``?dev=`` names.

Source: NVIDIA/nvidia-docker, tag v1.0.1, src/nvidia-docker-plugin/remote_v1.go, src/nvml and src/cuda.
"""
