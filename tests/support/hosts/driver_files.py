"""Driver user-space trees of the distributions, written as small files below a fake root.

One function per layout (`debian_13`, `ubuntu`, ...) writes a whole driver of one version, links included, and
returns a `Laid`, which maps the files for containers to files on the host. Libraries are real ELF files of
some hundred bytes (`write_library`). nvidia_kernel.py writes the files in /proc, /sys and /dev.

Sources: `dpkg -L` of Debian 12 and 13, and of Ubuntu 24.04's nvidia-*-550; RPM Fusion's and negativo17's spec
files; Arch's nvidia-utils; nixpkgs' nvidia-x11/builder.sh; Container-Optimized OS's cos-gpu-installer; Talos'
extensions (siderolabs/extensions); Bottlerocket's kmod packages.
"""

import json
import os
import struct
import subprocess
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from support.hosts.driver_libraries import (
    BINARIES,
    COMMON,
    NVVM,
    OLD_NVVM,
    ONLY_OLD,
    PRODUCER,
    TLS,
    VERSIONED,
    Library,
)

X86_64, I386, AARCH64 = 62, 3, 183
V550, V535, V470 = "550.163.01", "535.261.03", "470.256.02"


CUDADEBUGGER, GPUCOMP = Library("libcudadebugger", "1"), Library("libnvidia-gpucomp")
PKCS11 = Library("libnvidia-pkcs11-openssl3")
DRIVER_550 = (*COMMON, NVVM, CUDADEBUGGER, GPUCOMP, PKCS11)
DRIVER_535 = (*COMMON, NVVM, PKCS11, PRODUCER)
DRIVER_470 = (*COMMON, OLD_NVVM, PRODUCER, *ONLY_OLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """The files of a layout: a library's name or a file's path in the container -> its file on the host."""

    libraries: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def write_library(
    path: Path,
    soname: str,
    needed: tuple[str, ...] = (),
    *,
    machine: int = X86_64,
    bits: int = 64,
    contains: bytes = b"",
) -> None:
    """Write a shared object: header, PT_LOAD, PT_DYNAMIC, dynamic section, names, then CONTAINS.

    If SONAME is empty, the file has no SONAME.
    """
    word, header_size, segment_size = ("Q", 64, 56) if bits == 64 else ("I", 52, 32)
    strings = [b"", os.fsencode(soname), *(os.fsencode(name) for name in needed)]
    offsets = [0, *accumulate(len(string) + 1 for string in strings)]
    names = b"\0".join(strings) + b"\0"
    tags = [*([(14, offsets[1])] if soname else []), *((1, offset) for offset in offsets[2:-1])]
    dynamic_at = header_size + 2 * segment_size
    dynamic_size = struct.calcsize(f"<2{word}") * (len(tags) + 3)
    tags += [(5, dynamic_at + dynamic_size), (10, len(names)), (0, 0)]
    size = dynamic_at + dynamic_size + len(names)
    ident = struct.pack("<4sBBB9x", b"\x7fELF", bits // 32, 1, 1)
    header = struct.pack(
        f"<HHI3{word}I6H", 3, machine, 1, 0, header_size, 0, 0, header_size, segment_size, 2, 0, 0, 0
    )
    segments = [(1, 0, size), (2, dynamic_at, dynamic_size)]
    if bits == 64:
        table = [struct.pack("<II6Q", kind, 4, at, at, at, long, long, 8) for kind, at, long in segments]
    else:
        table = [struct.pack("<8I", kind, at, at, at, long, long, 4, 4) for kind, at, long in segments]
    dynamic = b"".join(struct.pack(f"<2{word}", *tag) for tag in tags)
    put(path, b"".join((ident, header, *table, dynamic, names, contains)))


def put(path: Path, content: bytes = b"", mode: int = 0o644) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def link(path: Path, target: str) -> None:
    """Create a symbolic link, or replace an old link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


class _Tree:
    """A driver of one version that is written below a root."""

    def __init__(self, root: Path, version: str, machine: int = X86_64) -> None:
        self.root = root
        self.version = version
        self.machine = machine
        self.laid = Laid()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def link(self, path: str, target: str) -> None:
        link(self.at(path), target)

    def library(self, library: Library, folder: str) -> None:
        """Write a library and the links beside it."""
        file, soname = library.file(self.version), library.soname(self.version)
        needed = tuple(name.format(v=self.version) for name in library.needed)
        write_library(self.at(f"{folder}/{file}"), soname, needed, machine=self.machine)
        if soname != file:
            self.link(f"{folder}/{soname}", file)
        if library.dev:
            self.link(f"{folder}/{library.stem}.so", soname)
        self.laid.libraries.update(dict.fromkeys(library.names(self.version), f"{folder}/{file}"))

    def libraries(self, libraries: tuple[Library, ...], folder: str) -> None:
        """Write libraries as in most distributions: all in FOLDER, but VDPAU's library in a subfolder."""
        for library in libraries:
            self.library(library, f"{folder}/{library.folder}".rstrip("/"))
        self.link(f"{folder}/gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1")

    def file(self, path: str, target: str = "", *, content: bytes = b"laid\n", mode: int = 0o644) -> None:
        """Write a file that containers have at TARGET."""
        put(self.at(path), content, mode)
        self.laid.files[target or path] = path

    def binaries(self, folder: str) -> None:
        for name in BINARIES:
            self.file(f"{folder}/{name}", f"/usr/bin/{name}", content=b"\x7fELF", mode=0o755)

    def firmware(self, folder: str) -> None:
        for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
            below = f"nvidia/{self.version}/{name}"
            self.file(f"{folder}/{below}", f"/lib/firmware/{below}")

    def xorg(self, drivers: str, extensions: str, *, shown: str = "", versioned: bool = True) -> None:
        """Write the X server's modules; without VERSIONED (Red Hat), the GLX module's file has no version.

        SHOWN is the folder in which the X server finds the modules, if this folder is a link (Debian).
        """
        put(self.at(f"{drivers}/nvidia_drv.so"), self.version.encode())
        name, plain = f"libglxserver_nvidia.so.{self.version}", "libglxserver_nvidia.so"
        real = f"{extensions}/{name if versioned else plain}"
        write_library(self.at(real), "", (TLS.format(v=self.version),), machine=self.machine)
        if versioned:
            self.link(f"{extensions}/{plain}", name)
        tops = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules")
        for folder in (*(f"{top}/drivers" for top in tops), shown or drivers):
            self.laid.files[f"{folder}/nvidia_drv.so"] = f"{drivers}/nvidia_drv.so"
        for folder in (*(f"{top}/extensions" for top in tops), shown or extensions):
            self.laid.files.update(dict.fromkeys((f"{folder}/{plain}", f"{folder}/{name}"), real))

    def manifests(self, share: str, etc: str, *, libraries: str = "", icd: str = "nvidia_icd.json") -> None:
        """Write the manifests; LIBRARIES is the folder that NixOS puts before each library's name."""
        for name, library, target in (
            (
                "egl/egl_external_platform.d/10_nvidia_wayland.json",
                "libnvidia-egl-wayland.so.1",
                "/usr/share",
            ),
            ("egl/egl_external_platform.d/15_nvidia_gbm.json", "libnvidia-egl-gbm.so.1", "/usr/share"),
            ("glvnd/egl_vendor.d/10_nvidia.json", "libEGL_nvidia.so.0", "/usr/share"),
            (f"vulkan/icd.d/{icd}", "libGLX_nvidia.so.0", "/etc"),
            ("vulkan/implicit_layer.d/nvidia_layers.json", "libGLX_nvidia.so.0", "/etc"),
            ("OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1", "/etc"),
        ):
            part = "layer" if "layer" in name else "ICD"
            document = {"file_format_version": "1.0.0", part: {"library_path": libraries + library}}
            text = f"{libraries}{library}\n" if "OpenCL" in name else json.dumps(document)
            folder = etc if "OpenCL" in name else share
            self.file(f"{folder}/{name}", f"{target}/{name}", content=text.encode())
            if libraries:
                self.laid.files[libraries + library] = self.laid.libraries[library]

    def data(self, share: str) -> None:
        """Write the files that the libraries themselves read."""
        for name in ("nvoptix.bin", f"nvidia-application-profiles-{self.version}-rc"):
            self.file(f"{share}/nvidia/{name}", f"/usr/share/nvidia/{name}")

    def usual_files(self, icd: str = "nvidia_icd.json") -> None:
        self.firmware("/usr/lib/firmware")
        self.manifests("/usr/share", "/etc", icd=icd)
        self.data("/usr/share")


def debian_13(root: Path) -> Laid:
    """Write Debian 13's driver: libraries in two folders; update-alternatives has links to one of them."""
    return _debian(root, V550, "current", DRIVER_550)


def debian_12(root: Path) -> Laid:
    """Write Debian 12's driver."""
    return _debian(root, V535, "current", DRIVER_535)


def debian_tesla_470(root: Path) -> Laid:
    """Write Debian 12's legacy driver: in a folder of its own, with an NVVM of another version."""
    return _debian(root, V470, "tesla-470", DRIVER_470)


def _debian(root: Path, version: str, flavour: str, libraries: tuple[Library, ...]) -> Laid:
    tree = _Tree(root, version)
    _usr_merge(root)
    system = "/usr/lib/x86_64-linux-gnu"
    own, tools = f"{system}/nvidia/{flavour}", f"/usr/lib/nvidia/{flavour}"

    def alternative(name: str, target: str, suffix: str = "-x86_64-linux-gnu") -> str:
        tree.link(f"/etc/alternatives/nvidia--{name}{suffix}", target)
        return f"/etc/alternatives/nvidia--{name}{suffix}"

    for library in libraries:
        is_shared = library.major == VERSIONED or library.own.startswith("1.1.")
        tree.library(library, system if is_shared and library != PRODUCER else own)
        if not is_shared:
            soname = library.soname(version)
            tree.link(f"{system}/{library.folder}/{soname}", alternative(soname, f"{own}/{soname}"))
    tree.link(f"{system}/libcuda.so", alternative("libcuda.so", f"{own}/libcuda.so"))
    gbm = "nvidia-drm_gbm.so"
    tree.link(f"{system}/gbm/{gbm}", alternative(gbm, f"{own}/libnvidia-allocator.so.1"))
    tree.link("/etc/alternatives/nvidia", tools)
    tree.link("/usr/lib/nvidia/nvidia", "/etc/alternatives/nvidia")
    tree.binaries(tools)
    for name in BINARIES:
        tree.link(f"/usr/bin/{name}", alternative(name, f"{tools}/{name}", ""))
    tree.usual_files()
    display = "nvidia-drm-outputclass.conf"
    tree.file(f"/etc/nvidia/{flavour}/{display}", f"/usr/share/X11/xorg.conf.d/{display}")
    target = alternative(display, f"/etc/nvidia/{flavour}/{display}", "")
    tree.link(f"/usr/share/X11/xorg.conf.d/{display}", target)
    tree.xorg(tools, tools, shown="/usr/lib/nvidia/nvidia")
    for folder, name in (("drivers", "nvidia_drv.so"), ("extensions", "libglxserver_nvidia.so")):
        tree.link(f"/usr/lib/xorg/modules/{folder}/{name}", alternative(name, f"{tools}/{name}", ""))
    return tree.laid


def ubuntu(root: Path, version: str = V550, *, machine: int = X86_64) -> Laid:
    """Write Ubuntu's driver: 64-bit libraries in one folder, 32-bit libraries in another folder."""
    tree = _Tree(root, version, machine)
    _usr_merge(root)
    folder = f"/usr/lib/{'x86_64' if machine == X86_64 else 'aarch64'}-linux-gnu"
    tree.libraries(DRIVER_550, folder)
    _lay_32_bit(tree, "/usr/lib/i386-linux-gnu")
    tree.binaries("/usr/bin")
    tree.usual_files()
    tree.file("/usr/share/X11/xorg.conf.d/10-nvidia.conf")
    tree.xorg(f"{folder}/nvidia/xorg", f"{folder}/nvidia/xorg")
    return tree.laid


def ubuntu_aarch64(root: Path, version: str = V550) -> Laid:
    """Write Ubuntu's driver of an Arm server."""
    return ubuntu(root, version, machine=AARCH64)


def red_hat(root: Path, version: str = V550) -> Laid:
    """Write the driver of RHEL and Fedora: libraries in /usr/lib64, 32-bit libraries in /usr/lib."""
    tree = _Tree(root, version)
    _usr_merge(root)
    tree.libraries(DRIVER_550, "/usr/lib64")
    _lay_32_bit(tree, "/usr/lib")
    tree.binaries("/usr/bin")
    tree.usual_files(icd="nvidia_icd.x86_64.json")
    put(tree.at("/usr/share/vulkan/icd.d/nvidia_icd.i686.json"), b"{}\n")
    tree.file("/usr/share/X11/xorg.conf.d/10-nvidia.conf")
    modules = "/usr/lib64/xorg/modules"
    tree.xorg(f"{modules}/drivers", f"{modules}/extensions", versioned=False)
    return tree.laid


def arch(root: Path, version: str = V550) -> Laid:
    """Write Arch Linux's driver: 64-bit libraries in /usr/lib; /usr/lib64 is a link to /usr/lib."""
    tree = _Tree(root, version)
    for path, target in (("lib", "usr/lib"), ("lib64", "usr/lib"), ("bin", "usr/bin"), ("sbin", "usr/bin")):
        link(root / path, target)
    link(root / "usr/lib64", "lib")
    link(root / "usr/sbin", "bin")
    tree.libraries(DRIVER_550, "/usr/lib")
    _lay_32_bit(tree, "/usr/lib32")
    tree.binaries("/usr/bin")
    tree.usual_files()
    tree.xorg("/usr/lib/xorg/modules/drivers", "/usr/lib/nvidia/xorg")
    return tree.laid


def nixos(root: Path, version: str = V550) -> Laid:
    """Write NixOS's driver: packages in /nix/store, a farm of links at /run/opengl-driver."""
    tree = _Tree(root, version)
    package = f"/nix/store/0a1b2c3d4e5f6g7h8i9j0k1l2m3n4p5q-nvidia-x11-{version}-6.12.30"
    tree.libraries(DRIVER_550, f"{package}/lib")
    for library in DRIVER_550:  # builder.sh links every library under .so and .so.1 too
        folder = f"{package}/lib/{library.folder}".rstrip("/")
        for name in (f"{library.stem}.so", f"{library.stem}.so.1"):
            if not tree.at(f"{folder}/{name}").is_symlink():
                tree.link(f"{folder}/{name}", library.file(version))
                tree.laid.libraries[name] = f"{folder}/{library.file(version)}"
    own, icd = f"{package}/lib/", "nvidia_icd.x86_64.json"
    tree.manifests(f"{package}/share", f"{package}/etc", libraries=own, icd=icd)
    farm = "/nix/store/1b2c3d4e5f6g7h8i9j0k1l2m3n4p5q6r-graphics-drivers"
    for top, _, names in os.walk(tree.at(package)):
        below = os.path.relpath(top, tree.at(package))
        for name in names:
            tree.link(f"{farm}/{below}/{name}", f"{package}/{below}/{name}")
    tree.link("/run/opengl-driver", farm)
    tree.binaries(f"{package}-bin/origBin")
    for name in BINARIES:  # patched to load libraries from the store, so that they fail in a container
        put(tree.at(f"{package}-bin/bin/{name}"), package.encode(), 0o755)
        tree.link(f"/nix/store/2c3d-system-path/bin/{name}", f"{package}-bin/bin/{name}")
    tree.firmware(f"{package}-firmware/lib/firmware")
    tree.link("/nix/store/3d4e-nixos-system/sw", "/nix/store/2c3d-system-path")
    tree.link("/nix/store/3d4e-nixos-system/firmware", f"{package}-firmware/lib/firmware")
    tree.link("/run/current-system", "/nix/store/3d4e-nixos-system")
    return tree.laid


def own_folder(root: Path, version: str = V550, *, folder: str) -> Laid:
    """Write a driver in a folder of its own, as on Container-Optimized OS, whose system is read-only."""
    tree = _Tree(root, version)
    tree.libraries(DRIVER_550, f"{folder}/lib64")
    tree.binaries(f"{folder}/bin")
    tree.manifests(folder, folder)
    tree.data(f"{folder}/share")
    tree.firmware(f"{folder}/firmware")
    put(tree.at("/sys/module/firmware_class/parameters/path"), f"{folder}/firmware\n".encode())
    return tree.laid


def container_optimized_os(root: Path, version: str = V550) -> Laid:
    """Write the driver in the folder of GKE's installer."""
    return own_folder(root, version, folder="/home/kubernetes/bin/nvidia")


def talos(root: Path, version: str = V550, *, libraries: str = "/usr/local/lib") -> Laid:
    """Write the driver of Talos' extension. /usr is read-only; all but the firmware is below /usr/local."""
    tree = _Tree(root, version)
    _usr_merge(root)
    tree.libraries(DRIVER_550, libraries)
    tree.binaries("/usr/local/bin")
    tree.manifests("/usr/local/share", "/usr/local/etc")
    tree.data("/usr/local/share")
    tree.firmware("/usr/lib/firmware")
    return tree.laid


def bottlerocket(root: Path, version: str = V550) -> Laid:
    """Write Bottlerocket's driver: libraries and programs each in a folder of the flavour."""
    tree = _Tree(root, version)
    _usr_merge(root)
    tree.libraries(tuple(replace(library, folder="") for library in DRIVER_550), "/usr/lib/nvidia/tesla")
    tree.binaries("/usr/libexec/nvidia/tesla/bin")
    tree.usual_files()
    return tree.laid


def write_loader_cache(root: Path, *folders: str) -> None:
    """Write /etc/ld.so.cache below ROOT by the machine's own ldconfig, for FOLDERS."""
    put(root / "etc/ld.so.conf", "".join(f"{folder}\n" for folder in folders).encode())
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True, capture_output=True)


def _usr_merge(root: Path) -> None:
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        link(root / name, f"usr/{name}")


def _lay_32_bit(tree: _Tree, folder: str) -> None:
    for stem in ("libcuda", "libnvidia-ml", "libnvidia-glcore"):
        path = tree.at(f"{folder}/{stem}.so.{tree.version}")
        write_library(path, f"{stem}.so.1", machine=I386, bits=32)
        link(path.with_name(f"{stem}.so.1"), path.name)
