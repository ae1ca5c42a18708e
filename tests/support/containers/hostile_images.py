"""Containers of images that want out: prepared as root of the host, started by podman with the real hook.

`arm` makes a `Target` of a GPU host: its `start` starts such a container, and `untouched` says whether
anything of the host was written, read or executed meanwhile.
"""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.abilities import cannot_run
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import DEVICE

# What links out of a root lead to: a copy of what the hook works on, on a file system that keeps times of
# last access, which a read renews.
OUTSIDE = "/run/outside"
# What of an image was executed with the host's root as its own leaves a file here. Containers have no such
# folder, so their own processes leave none.
EXECUTED = "/run/executed"
EVIL = "/evil"  # in images
# The same spec with every step required, so that runc shows what the hook said (cdigen/hook/main.py).
STRICT = "example.com/strict=0"
SPEC = "/run/cdi/nvidia.com-gpu.json"

LINE = re.compile(r"cdigen-hook: [\w.-]+: \S.*")

# Where an image may put links, FIFOs and so on.
PLACES = (
    "/etc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.conf.d/00-cdigen.conf",
    "/etc/nvidia",
    "/etc/nvidia/nvidia-application-profiles-rc.d",
    "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
    "/usr",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/libcuda.so",
    "/usr/lib64",
    "/usr/local",
    "/usr/local/nvidia",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda",
    "/usr/local/cuda/compat",
    "/usr/local/cuda/compat/libcuda.so.999.1",
    "/usr/share",
)

# A program without libraries, and a library without any: what they do, they do wherever they run.
_CANARY = r"""
static long call(long number, const char *path, long flags, long mode) {
    long result;
    register long fourth __asm__("r10") = mode;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(-100L), "S"(path), "d"(flags), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}
static void leave(const char *name) { call(257, name, 0101, 0600); } /* openat, O_CREAT | O_WRONLY */
"""
PROGRAM = (
    _CANARY
    + r"""
void _start(void) {
    register long one __asm__("rax") = 1;
    leave("/run/executed/program");
    __asm__ volatile("syscall" : "+r"(one) : "D"(1L), "S"("started\n"), "d"(8L) : "rcx", "r11", "memory");
    __asm__ volatile("syscall" : : "a"(60L), "D"(0L));
}
"""
)
LIBRARY = _CANARY + '__attribute__((constructor)) static void run(void) { leave("/run/executed/library"); }\n'
MODULE = f"open('{EXECUTED}/module', 'w').close()\n"

Files = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A GPU host with canaries (`arm`), and the folder whose files nobody else changes meanwhile."""

    host: Host
    watched: str

    def start(
        self,
        script: str = "",
        *,
        device: str = DEVICE,
        options: str = "",
        command: str = f"{EVIL}/program",
        image: str = DEBIAN_IMAGE,
    ) -> subprocess.CompletedProcess[str]:
        """Make a container, run a bash script on the host in the folder of its root, and start it."""
        return self.host.attempt(
            f"""id=$(podman create --device {device} {options} {image} {command})
            trap 'podman rm --force --time 0 $id >/dev/null' EXIT
            cd "$(podman mount $id)"
            mkdir .{EVIL}; cp /run/canaries/* .{EVIL}
            {script}
            cd /; podman umount $id >/dev/null
            podman start --attach $id"""
        )

    def said(self, script: str, **how: str) -> str:
        """Start such a container, which must start; return what its hook says where no step may fail."""
        lenient = self.start(script, **how)
        assert (lenient.returncode, lenient.stdout) == (0, "started\n"), lenient.stderr
        strict = self.start(script, device=STRICT, **how)
        if strict.returncode == 0:
            return ""
        lines = hook_lines(strict.stderr)
        assert lines, strict.stderr
        return "\n".join(lines)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Make sure that nothing of the host is changed, read outside of an image, or executed from one."""
        before = self.files()
        yield
        after = self.files()
        changed = [
            (path, before.get(path), after.get(path))
            for path in sorted({*before, *after})
            if before.get(path) != after.get(path)
        ]
        assert not changed, changed
        assert self.host.run(f"ls {EXECUTED}") == ""

    def files(self) -> Files:
        """Map each path of the host to all that tells whether it was touched, of OUTSIDE the last read too.

        Not the number of links, nor the time of a change to it: the tree shares files with other hosts.
        """
        folders = r"-type d -printf '%p %y %m %U %G\n' -o -printf '%p %y %m %U %G %i %s %T@ %l"
        listed = self.host.run(
            f"find {self.watched} -xdev \\( -path /tmp -o -path /var/tmp -o -path /srv \\) -prune "
            f"-o {folders}\\n'\n"
            f"find {OUTSIDE} {folders} %n %C@ %A@\\n'"
        )
        return dict(line.split(" ", 1) for line in listed.splitlines())


def hook_lines(stderr: str) -> list[str]:
    """Return what the hook said of all that podman prints, which has it in quoted form."""
    return LINE.findall(stderr.replace("\\n", "\n").replace('"', "\n"))


def arm(host: Host, folder: Path, *, watched: str = "/") -> Target:
    """Put canaries and the strict spec into a host; FOLDER is for building."""
    host.run(
        f"""mkdir -p {EXECUTED} /run/canaries {OUTSIDE}
        chmod 1777 {EXECUTED}
        cd {OUTSIDE}
        for path in {" ".join(PLACES)}; do
            case $path in
            *.conf | *.cache | *.so | *.so.[0-9]*) mkdir -p .${{path%/*}}; cp /etc/ld.so.cache .$path ;;
            *) mkdir -p .$path ;;
            esac
        done
        cp /usr/lib/x86_64-linux-gnu/libcuda.so.1 usr/local/cuda/compat/libcuda.so.999.1
        touch etc/mtab # which podman itself makes where a root has none, through whatever /etc is then
        find . -type f -exec touch --date=2001-01-01 {{}} +"""
    )
    for name, content in build(folder).items():
        path = f"/run/canaries/{name}"
        host.run(f"base64 -d >{path} && chmod 755 {path}", stdin=base64.b64encode(content).decode())
    spec = json.loads(host.run(f"cat {SPEC}"))
    host.put("/run/cdi/strict.json", json.dumps(strict(spec)))
    return Target(host=host, watched=watched)


def strict(spec: dict[str, object]) -> dict[str, object]:
    """Return SPEC as another kind whose hook may not fail in any step."""
    made = json.loads(json.dumps(spec))
    made["kind"] = STRICT.partition("=")[0]
    (hook,) = made["containerEdits"]["hooks"]
    for word in dict.fromkeys(word for word in hook["args"] if word.startswith("--")):
        hook["args"] += ["--require", word[2:]]
    return dict(made)


def build(folder: Path) -> dict[str, bytes]:
    """Compile the canaries."""
    compiler = shutil.which("cc")
    if compiler is None or os.uname().machine != "x86_64":
        cannot_run("needs a C compiler (gcc) on x86-64")
    bare = (compiler, "-x", "c", "-nostdlib", "-Os", "-fno-stack-protector", "-w")
    for name, source, how in (
        ("program", PROGRAM, ("-static",)),
        ("library.so", LIBRARY, ("-shared", "-fPIC")),
    ):
        subprocess.run([*bare, *how, "-o", folder / name, "-"], input=source, text=True, check=True)
    return {name: (folder / name).read_bytes() for name in ("program", "library.so")} | {
        "module.py": MODULE.encode()
    }


def quoted(path: str) -> str:
    """Return a path for a script that runs in the root: relative to it."""
    return shlex.quote(f".{path}")
