"""The steps of a run, in their order; the first line of a docstring is the result that the step proves."""

import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_gpu.image import lay, make_image, offered
from real_gpu.run import REPOSITORY, Failed, Run, Skipped, needed, running, same, until

# The kind of the specs for the containers; no other program uses it.
KIND = "cdigen-real-gpu.test/gpu"
# Limits that podman need not raise: to raise limits, it needs a capability that root of a container lacks.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
CONTAINER = ("--rm", "--network=none", "--security-opt=label=disable", *LIMITS)
# A driver's libcuda has at least 20 MB. The libcuda of a test's fake host has some hundred bytes.
SMALLEST_LIBCUDA = 1_000_000
UUID = re.compile(r"\(UUID: (GPU-[0-9a-f-]+)\)")
NVML_PARTS = ("identity", "health", "links", "memory", "stats")


def prepare(run: Run) -> None:
    """Write the configuration into the output folder, and install the hook below `run.work`."""
    run.on_host(run.work).mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "state_dir": f"{run.work}/state",
        "spec_dirs": [f"{run.work}/specs"],
        "hook": f"{run.work}/usr/libexec/cdigen/cdigen-hook",
        "nvml": str(run.nvml or "auto"),
        "daemon": {"run_dir": f"{run.work}/run", "settle_timeout_s": 5},
        # The nodes of a fake host have no driver.
        "health": {"ignore": ["node-unusable"] if run.root else []},
    }
    (run.out / "config.yaml").write_text(json.dumps(settings))
    destination = f"DESTDIR={run.on_host(run.work)}"
    run.call("install-hook", "make", "--silent", "install-hook", destination, f"HOOK_PYTHON={sys.executable}")


def machine(run: Run) -> None:
    """The kernel has NVIDIA's driver loaded; the versions of kernel, driver and podman are recorded."""
    run.call("uname", "uname", "-a")
    version = run.on_host("/proc/driver/nvidia/version")
    if not version.exists():
        raise Failed(f"no NVIDIA driver is loaded: {version} is missing")
    run.call("driver", "grep", "-r", "", version, version.with_name("params"), run.on_host("/proc/devices"))
    if shutil.which("podman"):
        run.call("podman-version", "podman", "--version")


def inspect(run: Run) -> None:
    """`cdigen inspect` finds as many GPUs as the kernel module lists, with their minor numbers and UUIDs."""
    run.cdigen("inspect-text", "inspect")
    run.inventory = json.loads(run.cdigen("inspect", "inspect", "--json"))["vendors"].get("nvidia", {})
    listed = {}
    for folder in run.on_host("/proc/driver/nvidia/gpus").iterdir():
        rows = (line.partition(":") for line in (folder / "information").read_text().splitlines())
        values = {key.strip(): value.strip() for key, _, value in rows}
        listed[folder.name] = (values["GPU UUID"], values["Device Minor"])
    same(
        "address, UUID and minor",
        {gpu["address"]: (gpu["uuid"], str(gpu["minor"])) for gpu in run.gpus},
        "/proc/driver/nvidia/gpus",
        listed,
    )


def nvidia_smi(run: Run) -> None:
    """`nvidia-smi -L` lists the UUIDs of the inventory in the same order."""
    listed = run.call("nvidia-smi-L", needed(run.smi, "nvidia-smi"), "-L")
    run.call("nvidia-smi", needed(run.smi, "nvidia-smi"), timeout_s=90)
    same("UUIDs", uuids(run), "nvidia-smi -L", UUID.findall(listed))


def nvml_child(run: Run) -> None:
    """The child process that loads NVML returns the inventory's UUIDs, and each part for each GPU."""
    expected = uuids(run)
    found = [row["host_path"] for row in run.inventory["files"] if "libnvidia-ml.so.1" in row["names"]]
    library = run.nvml or run.on_host(needed(next(iter(found), None), "libnvidia-ml.so.1"))
    child = REPOSITORY / "cdigen/vendors/nvidia/nvml/child"
    answer = json.loads(run.call("nvml", sys.executable, "-I", child, library, *NVML_PARTS))
    same("UUIDs", expected, "NVML", [gpu["uuid"] for gpu in answer["gpus"]])
    errors = [
        f"{part}: {gpu[part]['error']}"
        for gpu in answer["gpus"]
        for part in NVML_PARTS[1:]
        if gpu[part]["error"]
    ]
    if errors:
        raise Failed(f"errors of NVML: {'; '.join(errors)}")
    run.cdigen("stats", "inspect", "--stats", "--json")


def uuids(run: Run) -> list[str]:
    """Return the UUIDs of the inventory's GPUs."""
    return [gpu["uuid"] for gpu in run.gpus]


def health(run: Run) -> None:
    """The daemon becomes ready, probes the GPUs, and reports none as unhealthy."""
    status = run.on_host(run.work / "run/status.json")
    with running(run, "daemon", "run"):
        until(lambda: status.exists() and json.loads(status.read_text())["state"] == "ready", "ready", 60)
        time.sleep(5)
        run.cdigen("status", "status", "--json")
        rows = json.loads(run.cdigen("health", "health", "--json"))
    unhealthy = [f"{row['device']}: {row['causes']}" for row in rows if row["health"] == "unhealthy"]
    if unhealthy or not rows:
        raise Failed("; ".join(unhealthy) or "no device in the output of cdigen health")


def generate(run: Run) -> None:
    """Device nodes of the spec are character devices with the kernel's numbers; mounted files exist."""
    document = run.generate("spec-files", "--layout", "files", "--hook", "none")
    edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
    nodes = {node.get("hostPath", node["path"]) for edit in edits for node in edit.get("deviceNodes", ())}
    devices = run.on_host("/proc/devices").read_text()
    majors = {int(number) for number in re.findall(r"^ *(\d+) nvidia(?:-frontend)?$", devices, re.MULTILINE)}
    expected = {f"/dev/nvidia{gpu['minor']}": int(gpu["minor"]) for gpu in run.gpus}
    faults = [f"{path} is not in the spec" for path in expected if path not in nodes]
    for path in sorted(nodes):
        found = run.on_host(path).lstat()
        if not stat.S_ISCHR(found.st_mode):
            faults.append(f"{path} is not a character device")
        elif path in expected and os.minor(found.st_rdev) != expected[path]:
            faults.append(f"{path} has the minor number {os.minor(found.st_rdev)}")
        elif path in expected and os.major(found.st_rdev) not in majors:
            faults.append(f"{path} has the major number {os.major(found.st_rdev)}, not of {majors}")
    mounts = {mount["hostPath"] for edit in edits for mount in edit.get("mounts", ())}
    faults += [f"{path} is missing" for path in sorted(mounts) if not run.on_host(path).exists()]
    if faults:
        raise Failed("; ".join(faults))


def written(run: Run, name: str) -> Path:
    """Return the file of a spec that an earlier step has written; raise Skipped if it is missing."""
    file = run.out / f"{name}.json"
    if not file.exists():
        raise Skipped(f"no {file.name} from an earlier step")
    return file


def validate(run: Run) -> None:
    """`cdigen validate --host` accepts the spec."""
    run.cdigen("validate", "validate", "--host", "--json", written(run, "spec-files"))


def topology(run: Run) -> None:
    """The links between GPUs are those of `nvidia-smi topo -m`."""
    run.cdigen("topology-text", "topology")
    links = json.loads(run.cdigen("topology", "topology", "--json"))["links"]
    pairs = {tuple(row["between"]): row["level"] for row in links}
    table = run.call("nvidia-smi-topo", needed(run.smi, "nvidia-smi"), "topo", "-m")
    same("links", {ends: level for ends, level in pairs.items() if is_gpus(ends)}, "topo -m", matrix(table))


def is_gpus(ends: tuple[str, ...]) -> bool:
    """Return whether both ends of a link are GPUs."""
    return all(end.startswith("GPU") for end in ends)


def matrix(table: str) -> dict[tuple[str, str], str]:
    """Return the links between GPUs in nvidia-smi's matrix, by pairs such as ("GPU0", "GPU1")."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", table)
    rows = {cells[0]: cells[1:] for line in plain.splitlines() if (cells := line.split()) and "X" in cells}
    gpus = [name for name in rows if re.fullmatch(r"GPU\d+", name)]
    return {
        (name, other): rows[name][at]
        for first, name in enumerate(gpus)
        for at, other in enumerate(gpus)
        if at > first
    }


def hook(run: Run) -> None:
    """The start-up hook, called as a runtime calls it, puts libcuda.so.1 into the image's loader cache."""
    document = run.generate("spec-view", "--layout", "view", "--hook", "cdigen")
    edits = document["containerEdits"]
    if not edits.get("hooks"):
        raise Failed("the spec has no hook: see spec-view.err")
    image = make_image(run.image)
    mounts = ((mount["hostPath"], mount["containerPath"]) for mount in edits["mounts"])
    lay((run.on_host(source), Path(f"{image}{target}")) for source, target in mounts)
    bundle = {"ociVersion": "1.1.0", "root": {"path": image.name}}
    (image.parent / "config.json").write_text(json.dumps(bundle))
    state: dict[str, str | int] = {
        "ociVersion": "1.1.0",
        "id": "real-gpu",
        "status": "creating",
        "pid": os.getpid(),
    }
    state["bundle"] = str(image.parent)
    for row in edits["hooks"]:
        # With --root, the hook's path is valid only on the host, and its Python may need another libc.
        arguments = [word.replace(str(run.work), str(run.on_host(run.work))) for word in row["args"][1:]]
        program = sys.executable if run.root else row["path"]
        run.call("hook", program, *arguments, stdin=json.dumps(state))
    if warned := (run.out / "hook.err").read_text().strip():
        raise Failed(f"warnings of the hook: {warned}")
    cache = run.call("ldconfig", "/sbin/ldconfig", "-p", "-C", image / "etc/ld.so.cache")
    run.libcuda = next(
        (Path(f"{image}{path}") for path in re.findall(r"libcuda\.so\.1 .* => (\S+)", cache)), None
    )
    if run.libcuda is None or not run.libcuda.exists():
        raise Failed(f"libcuda.so.1: not found by the image's ld.so.cache ({run.libcuda})")


def loading(run: Run) -> None:
    """A program in the image of `hook` loads libcuda.so.1, also after ldconfig has rewritten the cache."""
    if run.libcuda is None:
        raise Skipped("no image from the step hook")
    if run.libcuda.stat().st_size < SMALLEST_LIBCUDA:
        raise Skipped("libcuda.so.1 is a stand-in of a test")
    if os.geteuid() != 0:
        raise Skipped("chroot(2) needs root")
    for name, before in (("loading", "true"), ("loading-after-ldconfig", "/sbin/ldconfig")):
        run.call(name, "chroot", run.image, "/bin/sh", "-c", f"{before} && LD_PRELOAD=libcuda.so.1 /bin/true")
        if refused := (run.out / f"{name}.err").read_text().strip():
            raise Failed(f"libcuda.so.1 is not loaded: {refused}")


def containers(run: Run) -> None:
    """`nvidia-smi -L` in podman's containers lists all GPUs, with the layouts `files` and `view`."""
    podman = needed(shutil.which("podman"), "podman")
    if run.root:
        raise Skipped("with --root, the nodes are not in this machine's /dev")
    image = make_image(run.image.with_name("plain"))
    faults = []
    for layout in ("files", "view"):
        document = json.loads(written(run, f"spec-{layout}").read_text())
        try:
            with offered(run, podman, {**document, "kind": KIND}) as options:
                start = (podman, *options, "run", *CONTAINER, f"--device={KIND}=all", "--rootfs", str(image))
                name = f"container-{layout}"
                listed = run.call(name, *start, "nvidia-smi", "-L", timeout_s=90)
            same("UUIDs", uuids(run), "nvidia-smi -L", UUID.findall(listed))
        except Failed as failed:
            faults.append(f"layout {layout}: {failed}")
    if faults:
        raise Failed("; ".join(faults))


STEPS: tuple[Callable[[Run], None], ...] = (
    prepare, machine, inspect, nvidia_smi, nvml_child, health, generate, validate, topology, hook, loading,
    containers,
)  # fmt: skip
