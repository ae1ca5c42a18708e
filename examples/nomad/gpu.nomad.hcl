# Not run: Debian 12 and 13 have no Nomad.
# A task of Nomad in a container with a GPU, by podman's own command: the drivers docker and podman take host paths as
# devices, and no CDI names. raw_exec has to be enabled on the client.
#   nomad job run gpu.nomad.hcl
job "gpu" {
  type = "batch"

  group "gpu" {
    task "cuda" {
      driver = "raw_exec"

      config {
        command = "podman"
        args = [
          "run", "--rm", "--device", "nvidia.com/gpu=0",
          "docker.io/library/debian:stable", "find", "/dev", "-name", "nvidia*",
        ]
      }
    }
  }
}
