"""Containers of hostile images, which podman starts with the real hook.

`arm` makes a `Target` from a GPU host. `Target.start` changes a container's files as root of the host, and
starts the container. `Target.untouched` checks that no file of the host was changed, no file in OUTSIDE was
read, and no program of the image was executed with the host's root.
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

# The targets of links that lead out of a container's root: copies of the files that the hook uses. Their file
# system has access times, so that the test detects a read.
OUTSIDE = "/run/outside"
# A program of an image that runs with the host's root writes a file here. Containers do not have this
# folder, so their own processes write none.
EXECUTED = "/run/executed"
EVIL = "/evil"  # in images
# A device of a copy of SPEC with every hook step required: runc prints the hook's messages (hook/main.py).
STRICT = "example.com/strict=0"
SPEC = "/run/cdi/nvidia.com-gpu.json"

LINE = re.compile(r"cdigen-hook: [\w.-]+: \S.*")

# The paths at which an image may have links, FIFOs and so on.
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

# A program without libraries, and a library without dependencies, so that both work in any root.
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
    """A GPU host with canaries. `untouched` checks the folder `watched`, which no program changes."""

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
        """Create a container, run a bash script in its root folder (on the host), and start the container."""
        return self.host.attempt(
            f"""id=$(podman create --device {device} {options} {image} {command})
            trap 'podman rm --force --time 0 $id >/dev/null' EXIT
            cd "$(podman mount $id)"
            mkdir .{EVIL}; cp /run/canaries/* .{EVIL}
            {script}
            cd /; podman umount $id >/dev/null
            podman start --attach $id"""
        )

    def hook_messages(self, script: str, **settings: str) -> str:
        """Return the hook's messages of a container with STRICT; a container without STRICT must start."""
        lenient = self.start(script, **settings)
        assert (lenient.returncode, lenient.stdout) == (0, "started\n"), lenient.stderr
        strict = self.start(script, device=STRICT, **settings)
        if strict.returncode == 0:
            return ""
        lines = hook_lines(strict.stderr)
        assert lines, strict.stderr
        return "\n".join(lines)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Check that `files` is the same after the body, and that no program of an image ran on the host."""
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
        """Return properties of each path of the host: a change alters them, in OUTSIDE also a read.

        Only paths in OUTSIDE have the number of links and the change time, because the host's tree shares its
        other files with other hosts.
        """
        folders = r"-type d -printf '%p %y %m %U %G\n' -o -printf '%p %y %m %U %G %i %s %T@ %l"
        listed = self.host.run(
            f"find {self.watched} -xdev \\( -path /tmp -o -path /var/tmp -o -path /srv \\) -prune "
            f"-o {folders}\\n'\n"
            f"find {OUTSIDE} {folders} %n %C@ %A@\\n'"
        )
        return dict(line.split(" ", 1) for line in listed.splitlines())


def hook_lines(stderr: str) -> list[str]:
    """Return the hook's messages from podman's output, which quotes them."""
    return LINE.findall(stderr.replace("\\n", "\n").replace('"', "\n"))


def arm(host: Host, folder: Path, *, watched: str = "/") -> Target:
    """Put canaries and the strict spec into HOST; the canaries are compiled in FOLDER."""
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
        touch etc/mtab # if a root has no such file, podman makes it, even if /etc is a link
        find . -type f -exec touch --date=2001-01-01 {{}} +"""
    )
    for name, content in build(folder).items():
        path = f"/run/canaries/{name}"
        host.run(f"base64 -d >{path} && chmod 755 {path}", stdin=base64.b64encode(content).decode())
    spec = json.loads(host.run(f"cat {SPEC}"))
    host.put("/run/cdi/strict.json", json.dumps(strict(spec)))
    return Target(host=host, watched=watched)


def strict(spec: dict[str, object]) -> dict[str, object]:
    """Return a copy of SPEC with the kind of STRICT, in which each step of the hook is required."""
    made = json.loads(json.dumps(spec))
    made["kind"] = STRICT.partition("=")[0]
    (hook,) = made["containerEdits"]["hooks"]
    for word in dict.fromkeys(word for word in hook["args"] if word.startswith("--")):
        hook["args"] += ["--require", word[2:]]
    return dict(made)


def build(folder: Path) -> dict[str, bytes]:
    """Compile the canaries in FOLDER; return their contents by file name."""
    compiler = shutil.which("cc")
    if compiler is None or os.uname().machine != "x86_64":
        cannot_run("needs a C compiler (gcc) on x86-64")
    bare = (compiler, "-x", "c", "-nostdlib", "-Os", "-fno-stack-protector", "-w")
    for name, source, options in (
        ("program", PROGRAM, ("-static",)),
        ("library.so", LIBRARY, ("-shared", "-fPIC")),
    ):
        subprocess.run([*bare, *options, "-o", folder / name, "-"], input=source, text=True, check=True)
    return {name: (folder / name).read_bytes() for name in ("program", "library.so")} | {
        "module.py": MODULE.encode()
    }


def quoted(path: str) -> str:
    """Return PATH, relative to a container's root and quoted, for a script that runs in this root."""
    return shlex.quote(f".{path}")
