"""Tables of what belongs to NVIDIA's driver: nodes, libraries, binaries, files, and what each serves.

Capabilities follow libnvidia-container (src/nvc_info.c, nvc_mount.c, options.h), which is what
NVIDIA_DRIVER_CAPABILITIES selected; rows that it does not know carry their own source. Weights:
``required`` - the capability cannot work without it; ``core`` - missing while others of its
capability are there, the driver is installed incompletely; ``optional`` - packages may leave it out.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Weight

COMPUTE = ("compute",)
UTILITY = ("utility",)
GRAPHICS = ("graphics", "display")
VIDEO = ("video",)
# libnvidia-container gives the compute libraries to "video" as well (nvc_mount.c).
COMPUTE_VIDEO = ("compute", "video")
DISPLAY = ("display",)
NGX = ("ngx",)
EVERY: tuple[str, ...] = ()

# (path, role, capabilities, weight). libnvidia-container: uvm only with compute, modeset only with
# display; Vulkan's WSI needs modeset too (nvidia-container-toolkit issue 1982).
CONTROL_NODES: tuple[tuple[str, str, tuple[str, ...], Weight], ...] = (
    ("/dev/nvidiactl", "control", EVERY, "required"),
    ("/dev/nvidia-uvm", "uvm", COMPUTE_VIDEO, "required"),
    ("/dev/nvidia-uvm-tools", "uvm-tools", COMPUTE_VIDEO, "optional"),
    ("/dev/nvidia-modeset", "modeset", GRAPHICS, "optional"),
)


@frozen
class Library:
    """A library of the driver, by the part of its file name before ``.so``.

    ``also``: further names under which software asks for it, relative to a library folder, given
    always; ``{version}`` stands for the driver's. ``links``: such names that are given where the
    host has them. ``own_version``: its file carries a version of its own, not the driver's.
    """

    stem: str
    capabilities: tuple[str, ...]
    weight: Weight
    also: tuple[str, ...]
    links: tuple[str, ...]
    own_version: bool


def lib(  # noqa: PLR0913 - the columns of the table
    stem: str,
    capabilities: tuple[str, ...],
    weight: Weight = "optional",
    *,
    also: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
    own_version: bool = False,
) -> Library:
    """Return a row of the table below, or one for a library that is not in it."""
    return Library(
        stem=stem,
        capabilities=capabilities,
        weight=weight,
        also=also,
        links=links,
        own_version=own_version,
    )


LIBRARIES: tuple[Library, ...] = (
    lib("libEGL_nvidia", GRAPHICS, "core"),
    lib("libGLESv1_CM_nvidia", GRAPHICS),
    lib("libGLESv2_nvidia", GRAPHICS),
    # GLX_indirect: the name libGLX falls back to; nvidia-container-toolkit links it always.
    lib("libGLX_nvidia", GRAPHICS, "core", also=("libGLX_indirect.so.0",)),
    # libcuda.so: dlopened by libnvidia-rtcore and by numba, triton and others.
    lib("libcuda", COMPUTE_VIDEO, "required", also=("libcuda.so",)),
    lib("libcudadebugger", COMPUTE_VIDEO),
    lib("libnvcuvid", VIDEO, "core", links=("libnvcuvid.so",)),
    lib("libnvidia-allocator", (*COMPUTE_VIDEO, *GRAPHICS), also=("gbm/nvidia-drm_gbm.so",)),
    lib("libnvidia-api", GRAPHICS, own_version=True),  # NVAPI for Wine; its file is libnvidia-api.so.1
    lib("libnvidia-cbl", GRAPHICS),
    lib("libnvidia-cfg", UTILITY),
    lib("libnvidia-compiler", COMPUTE_VIDEO),
    lib("libnvidia-egl-gbm", GRAPHICS, own_version=True),
    lib("libnvidia-egl-wayland", GRAPHICS, own_version=True),
    lib("libnvidia-egl-wayland2", GRAPHICS, own_version=True),
    lib("libnvidia-egl-xcb", GRAPHICS, own_version=True),
    lib("libnvidia-egl-xlib", GRAPHICS, own_version=True),
    lib("libnvidia-eglcore", GRAPHICS, "core"),
    lib("libnvidia-encode", VIDEO, "core", links=("libnvidia-encode.so",)),
    lib("libnvidia-fatbinaryloader", COMPUTE_VIDEO),
    lib("libnvidia-fbc", GRAPHICS, links=("libnvidia-fbc.so",)),
    lib("libnvidia-glcore", GRAPHICS, "core"),
    lib("libnvidia-glsi", GRAPHICS, "core"),
    lib("libnvidia-glvkspirv", GRAPHICS, "core"),
    lib("libnvidia-gpucomp", (*COMPUTE_VIDEO, *GRAPHICS)),
    lib("libnvidia-gtk2", DISPLAY),
    lib("libnvidia-gtk3", DISPLAY),
    lib("libnvidia-ifr", GRAPHICS),
    lib("libnvidia-ml", UTILITY, "required", links=("libnvidia-ml.so",)),
    lib("libnvidia-ngx", NGX, links=("libnvidia-ngx.so",)),
    lib("libnvidia-nscq", UTILITY),
    # libnvidia-opencl asks for it by the driver's version (seen in 550.163.01), libcuda by SONAME.
    # Up to 515 its file was libnvidia-nvvm.so.4.0.0.
    lib("libnvidia-nvvm", COMPUTE_VIDEO, also=("libnvidia-nvvm.so.{version}",), own_version=True),
    lib("libnvidia-nvvm70", COMPUTE_VIDEO, own_version=True),
    lib("libnvidia-opencl", COMPUTE_VIDEO),
    # opticalflow.so: nvidia-container-toolkit links it always.
    lib("libnvidia-opticalflow", VIDEO, also=("libnvidia-opticalflow.so",)),
    lib("libnvidia-pkcs11", COMPUTE_VIDEO),
    lib("libnvidia-pkcs11-openssl3", COMPUTE_VIDEO),
    lib("libnvidia-present", GRAPHICS),
    lib("libnvidia-ptxjitcompiler", COMPUTE_VIDEO, "core"),
    lib("libnvidia-rtcore", GRAPHICS),
    lib("libnvidia-sandboxutils", UTILITY),
    lib("libnvidia-tileiras", COMPUTE_VIDEO),
    lib("libnvidia-tls", GRAPHICS, "core"),
    lib("libnvidia-vksc-core", GRAPHICS),
    # Always opened without a version (seen in 535.216.03), whether a package makes that link or not.
    lib("libnvidia-vulkan-producer", GRAPHICS, also=("libnvidia-vulkan-producer.so",)),
    lib("libnvidia-wayland-client", DISPLAY),
    lib("libnvoptix", GRAPHICS),
    # libvdpau asks for it in its folder of modules first (libvdpau, vdpau_wrapper.c).
    lib("libvdpau_nvidia", VIDEO, also=("vdpau/libvdpau_nvidia.so.1",)),
)

# What programs and loaders open themselves; every other library of the driver is loaded by one of these.
ENTRANCES = ("libcuda", "libnvidia-ml", "libGLX_nvidia", "libEGL_nvidia", "libnvidia-vksc-core")

# Categories of NVIDIA's own list (``file_list``), by what readers of it name; others serve everything.
CATEGORIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cuda", "opencl"), COMPUTE_VIDEO),
    **dict.fromkeys(("nvml", "nvpd", "nvsandboxutils", "utils"), UTILITY),
    **dict.fromkeys(("egl", "egl_gbm", "egl_headless", "egl_wayland", "egl_x11", "gbm", "glvnd"), GRAPHICS),
    **dict.fromkeys(("glx", "nvapi", "opengl", "optix", "vulkan", "vulkansc"), GRAPHICS),
    "ngx": NGX,
    "video": VIDEO,
    "xdriver": DISPLAY,
}

# What vendors share: an image's own GLVND and OpenCL loader find the driver's libraries, and a driver's
# copy (NVIDIA's installer and old drivers have such, with the driver's version) would take their place.
NEUTRAL = frozenset(
    ("libEGL", "libGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libGLdispatch", "libOpenCL", "libOpenGL")
)

# What names of the driver's libraries and programs look like, in the folders that all share.
LIBRARY_NAMES = ("libcuda*", "libnvidia*", "libnvcuvid*", "libnvoptix*", "lib*_nvidia*")
PROGRAM_NAMES = ("nv-*", "nvidia-*")

# Folders of the driver's libraries, the first hit of a SONAME wins; {multiarch} is Debian's name of
# the machine. Sources: packages of Debian, Ubuntu, Fedora, RPM Fusion, SUSE, Arch; NixOS links
# /run/opengl-driver; Container-Optimized OS uses /var/lib/nvidia, with GKE /home/kubernetes/bin/nvidia;
# /usr/local/nvidia is where driver installers for Kubernetes put theirs; Talos' extension has /usr/local/lib,
# earlier ones a glibc of their own. ld.so.cache adds what is not here.
LIBRARY_FOLDERS = (
    "/usr/lib/{multiarch}",
    "/usr/lib/{multiarch}/nvidia/current",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/lib/{multiarch}",
    "/lib64",
    "/run/opengl-driver/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/var/lib/nvidia/lib64",
    "/opt/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/lib/{multiarch}",
    "/usr/local/glibc/usr/lib",
    "/usr/local/glibc/lib",
)
# 32-bit libraries of x86-64 hosts: Debian and Ubuntu, Red Hat, Arch, NixOS.
LIBRARY32_FOLDERS = (
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib",
    "/usr/lib32",
    "/run/opengl-driver-32/lib",
)
# One level below: Debian's nvidia/<flavour> (current, tesla-470), modules of libvdpau.
LIBRARY_SUBFOLDERS = ("nvidia", "vdpau")

# Images that were built on a GPU host, or with a distribution's packages of a driver, bring these.
CARRIED_BY_IMAGES = ("libcuda.so.1", "libnvidia-ml.so.1")

NIXOS_BINARIES = "/run/current-system/sw/bin"
NIXOS_FIRMWARE = "/run/current-system/firmware"
BINARY_FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    NIXOS_BINARIES,
    "/usr/local/nvidia/bin",
    "/home/kubernetes/bin/nvidia/bin",
    "/opt/bin",
    "/usr/libexec/nvidia/tesla/bin",  # Bottlerocket
)
# It is setuid root and has no work in a container.
NO_BINARY = "nvidia-modprobe"
BINARIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nv-fabricmanager", UTILITY),
    ("nvidia-cuda-mps-control", COMPUTE_VIDEO),
    ("nvidia-cuda-mps-server", COMPUTE_VIDEO),
    ("nvidia-debugdump", UTILITY),
    ("nvidia-imex", COMPUTE_VIDEO),
    ("nvidia-imex-ctl", COMPUTE_VIDEO),
    ("nvidia-persistenced", UTILITY),
    ("nvidia-smi", UTILITY),
    ("nvidia-xconfig", DISPLAY),
)

CONFIG_FOLDERS = (
    "/etc",
    "/usr/local/share",
    "/usr/share",
    "/run/opengl-driver/share",
    "/usr/local/nvidia",
    "/home/kubernetes/bin/nvidia",
)


# (path below a configuration folder, folder in the container, capabilities); "*" in the last part
# stands for any text, {version} and {architecture} for the driver's. Targets: libglvnd and the EGL
# external platforms read /usr/share, Vulkan's loader and OpenCL's read /etc first (their
# documentation); OptiX reads /usr/share/nvidia (seen in libnvoptix).
CONFIGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors", COMPUTE_VIDEO),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share/X11/xorg.conf.d", DISPLAY),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share/X11/xorg.conf.d", DISPLAY),
    ("egl/egl_external_platform.d/*_nvidia_*.json", "/usr/share/egl/egl_external_platform.d", GRAPHICS),
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share/glvnd/egl_vendor.d", GRAPHICS),
    ("nvidia/nvidia-application-profiles-{version}-rc", "/usr/share/nvidia", (*COMPUTE_VIDEO, *GRAPHICS)),
    ("nvidia/nvoptix.bin", "/usr/share/nvidia", GRAPHICS),
    # nvidia_icd.i686.json is of the 32-bit libraries, which containers do not get.
    ("vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/icd.d/nvidia_icd.{architecture}.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/icd.d/nvidia_layers.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc/vulkan/implicit_layer.d", GRAPHICS),
    # As NVIDIA's installer, negativo17's packages and Arch's name it.
    ("vulkansc/icd.d/nvidia_icd.json", "/etc/vulkansc/icd.d", GRAPHICS),
    ("vulkansc/icd.d/nvidia_icd.{architecture}.json", "/etc/vulkansc/icd.d", GRAPHICS),
    ("vulkansc/icd.d/nvidia_icd_vksc.json", "/etc/vulkansc/icd.d", GRAPHICS),
)

# X server modules, below a folder of Xorg modules. Containers get them where Debian's and Red Hat's
# Xorg look by default.
XORG_FOLDERS = (
    "/usr/lib/{multiarch}/nvidia/xorg",
    "/usr/lib/nvidia/xorg",
    "/usr/lib64/nvidia/xorg",
    "/usr/lib/nvidia/nvidia",  # Debian's alternative: current, tesla-470
    "/usr/lib/xorg/modules",
    "/usr/lib64/xorg/modules",
    "/usr/lib/xorg/modules/updates",
    "/usr/lib64/xorg/modules/updates",
    "/usr/lib/{multiarch}/xorg/modules",
    "/usr/X11R6/lib/modules",
    "/usr/X11R6/lib64/modules",
    "/run/opengl-driver/lib/xorg/modules",
)
XORG_MODULES: tuple[tuple[str, str, str], ...] = (
    # (file, sub-folder of the modules' folder, further name: always given to the container, and the
    # only one that Red Hat's packages have)
    ("nvidia_drv.so", "drivers", ""),
    ("libglxserver_nvidia.so.{version}", "extensions", "libglxserver_nvidia.so"),
)
XORG_TARGETS = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules")

SOCKETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvidia-fabricmanager/socket", UTILITY),
    ("nvidia-persistenced/socket", UTILITY),
)
