"""Tables of the nodes, libraries, programs and other files of NVIDIA's driver, with their capabilities.

The capabilities are the values of NVIDIA_DRIVER_CAPABILITIES. Each file has the same capabilities as in
libnvidia-container (src/nvc_info.c, nvc_mount.c, options.h). If a row has another source, a comment contains
this source.

Each file has a weight. A capability does not work without its ``required`` files. If a ``core`` file is
missing, and other ``core`` files of the same capability exist, the installation is incomplete. A package may
leave out ``optional`` files.
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
# libnvidia-container adds the compute libraries also for "video" (nvc_mount.c).
COMPUTE_VIDEO = ("compute", "video")
DISPLAY = ("display",)
NGX = ("ngx",)
EVERY: tuple[str, ...] = ()

# (path, role, capabilities, weight). In libnvidia-container, uvm is only for compute, and modeset is only for
# display. Vulkan's WSI also needs modeset (nvidia-container-toolkit issue 1982).
CONTROL_NODES: tuple[tuple[str, str, tuple[str, ...], Weight], ...] = (
    ("/dev/nvidiactl", "control", EVERY, "required"),
    ("/dev/nvidia-uvm", "uvm", COMPUTE_VIDEO, "required"),
    ("/dev/nvidia-uvm-tools", "uvm-tools", COMPUTE_VIDEO, "optional"),
    ("/dev/nvidia-modeset", "modeset", GRAPHICS, "optional"),
)
# The rule of findings about missing control nodes.
MISSING_CONTROL_NODE = "control-node-missing"


@frozen
class Library:
    """A library of the driver.

    ``stem`` is the part of the file name before ``.so``. ``also`` are additional names of the library in
    containers, because software loads the library by these names. They are relative to a library folder.
    ``{version}`` in a name is the driver's version. If ``own_version`` is true, the file has its own version,
    which differs from the driver's version.
    """

    stem: str
    capabilities: tuple[str, ...]
    weight: Weight
    also: tuple[str, ...]
    own_version: bool


def lib(
    stem: str,
    capabilities: tuple[str, ...],
    weight: Weight = "optional",
    *,
    also: tuple[str, ...] = (),
    own_version: bool = False,
) -> Library:
    """Return a row of ``LIBRARIES``, or a row for a library that is not in ``LIBRARIES``."""
    return Library(stem=stem, capabilities=capabilities, weight=weight, also=also, own_version=own_version)


LIBRARIES: tuple[Library, ...] = (
    lib("libEGL_nvidia", GRAPHICS, "core"),
    lib("libGLESv1_CM_nvidia", GRAPHICS),
    lib("libGLESv2_nvidia", GRAPHICS),
    # libGLX uses GLX_indirect as the fallback name. nvidia-container-toolkit always creates this link.
    lib("libGLX_nvidia", GRAPHICS, "core", also=("libGLX_indirect.so.0",)),
    # libnvidia-rtcore, numba, triton and other software load libcuda.so with dlopen.
    lib("libcuda", COMPUTE_VIDEO, "required", also=("libcuda.so",)),
    lib("libcudadebugger", COMPUTE_VIDEO),
    lib("libnvcuvid", VIDEO, "core"),
    lib("libnvidia-allocator", (*COMPUTE_VIDEO, *GRAPHICS), also=("gbm/nvidia-drm_gbm.so",)),
    lib("libnvidia-api", GRAPHICS, own_version=True),  # NVAPI for Wine; the file is libnvidia-api.so.1
    lib("libnvidia-cbl", GRAPHICS),
    lib("libnvidia-cfg", UTILITY),
    lib("libnvidia-compiler", COMPUTE_VIDEO),
    lib("libnvidia-egl-gbm", GRAPHICS, own_version=True),
    lib("libnvidia-egl-wayland", GRAPHICS, own_version=True),
    lib("libnvidia-egl-wayland2", GRAPHICS, own_version=True),
    lib("libnvidia-egl-xcb", GRAPHICS, own_version=True),
    lib("libnvidia-egl-xlib", GRAPHICS, own_version=True),
    lib("libnvidia-eglcore", GRAPHICS, "core"),
    lib("libnvidia-encode", VIDEO, "core"),
    lib("libnvidia-fatbinaryloader", COMPUTE_VIDEO),
    lib("libnvidia-fbc", GRAPHICS),
    lib("libnvidia-glcore", GRAPHICS, "core"),
    lib("libnvidia-glsi", GRAPHICS, "core"),
    lib("libnvidia-glvkspirv", GRAPHICS, "core"),
    lib("libnvidia-gpucomp", (*COMPUTE_VIDEO, *GRAPHICS)),
    lib("libnvidia-gtk2", DISPLAY),
    lib("libnvidia-gtk3", DISPLAY),
    lib("libnvidia-ifr", GRAPHICS),
    lib("libnvidia-ml", UTILITY, "required"),
    lib("libnvidia-ngx", NGX),
    lib("libnvidia-nscq", UTILITY),
    # libnvidia-opencl loads libnvidia-nvvm by a name with the driver's version (550.163.01). libcuda loads
    # libnvidia-nvvm by the SONAME. Up to driver 515, the file was libnvidia-nvvm.so.4.0.0.
    lib("libnvidia-nvvm", COMPUTE_VIDEO, also=("libnvidia-nvvm.so.{version}",), own_version=True),
    lib("libnvidia-nvvm70", COMPUTE_VIDEO, own_version=True),
    lib("libnvidia-opencl", COMPUTE_VIDEO),
    # nvidia-container-toolkit always creates the link libnvidia-opticalflow.so.
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
    # Driver 535.216.03 opens this library by a name without a version, even if no package contains a file
    # with this name.
    lib("libnvidia-vulkan-producer", GRAPHICS, also=("libnvidia-vulkan-producer.so",)),
    lib("libnvidia-wayland-client", DISPLAY),
    lib("libnvoptix", GRAPHICS),
    # libvdpau searches for this library in its own module folder first (libvdpau, vdpau_wrapper.c).
    lib("libvdpau_nvidia", VIDEO, also=("vdpau/libvdpau_nvidia.so.1",)),
)

# Programs and loaders open these libraries. These libraries load all other libraries of the driver.
ENTRANCES = ("libcuda", "libnvidia-ml", "libGLX_nvidia", "libEGL_nvidia", "libnvidia-vksc-core")

# Category in NVIDIA's own list (``file_list``) -> capabilities. The categories are from software that reads
# the list. Files of other categories have all capabilities.
CATEGORIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cuda", "opencl"), COMPUTE_VIDEO),
    **dict.fromkeys(("nvml", "nvpd", "nvsandboxutils", "utils"), UTILITY),
    **dict.fromkeys(("egl", "egl_gbm", "egl_headless", "egl_wayland", "egl_x11", "gbm", "glvnd"), GRAPHICS),
    **dict.fromkeys(("glx", "nvapi", "opengl", "optix", "vulkan", "vulkansc"), GRAPHICS),
    "ngx": NGX,
    "video": VIDEO,
    "xdriver": DISPLAY,
}

# Libraries that are not specific to a vendor: GLVND and the OpenCL loader. They find the driver's libraries.
# NVIDIA's installer and old drivers have copies of GLVND and the OpenCL loader with the driver's version.
# Containers do not get these copies, because the copies would replace the image's own libraries.
NEUTRAL = frozenset(
    ("libEGL", "libGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libGLdispatch", "libOpenCL", "libOpenGL")
)

# The name patterns of the driver's libraries and programs in folders that also contain other files.
LIBRARY_NAMES = ("libcuda*", "libnvidia*", "libnvcuvid*", "libnvoptix*", "lib*_nvidia*")
PROGRAM_NAMES = ("nv-*", "nvidia-*")

# Folders of the driver's libraries, in the order of the search. cdigen uses the first file of each SONAME.
# {multiarch} is Debian's name of the architecture. The folders are from packages of Debian, Ubuntu, Fedora,
# RPM Fusion, SUSE and Arch. On NixOS, /run/opengl-driver is a link to the driver. Container-Optimized OS uses
# /var/lib/nvidia. On GKE, it uses /home/kubernetes/bin/nvidia. Driver installers for Kubernetes use
# /usr/local/nvidia. The extension of Talos uses /usr/local/lib. Its earlier versions use /usr/local/glibc.
# ld.so.cache adds further folders.
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
# The folders of 32-bit libraries on x86-64, in Debian, Ubuntu, Red Hat, Arch and NixOS.
LIBRARY32_FOLDERS = (
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib",
    "/usr/lib32",
    "/run/opengl-driver-32/lib",
)
# Folders below a library folder: Debian's nvidia/<flavour> (current, tesla-470), and the modules of libvdpau.
LIBRARY_SUBFOLDERS = ("nvidia", "vdpau")

# An image that was built on a GPU host, or with a distribution's driver packages, contains these libraries.
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
# nvidia-modprobe is setuid root, and has no use in a container.
NO_BINARY = "nvidia-modprobe"
BINARIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nv-fabricmanager", UTILITY),
    ("nvidia-cuda-mps-control", COMPUTE_VIDEO),
    ("nvidia-cuda-mps-server", COMPUTE_VIDEO),
    ("nvidia-debugdump", UTILITY),
    ("nvidia-imex", COMPUTE_VIDEO),
    ("nvidia-imex-ctl", COMPUTE_VIDEO),
    # The names and uses of these three programs are in NVIDIA's installer (590.48.01): updates of NGX's
    # models, the compiler of Vulkan SC's pipeline caches, and Dynamic Boost.
    ("nvidia-ngx-updater", NGX),
    ("nvidia-pcc", GRAPHICS),
    ("nvidia-persistenced", UTILITY),
    ("nvidia-powerd", UTILITY),
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


# (path below a configuration folder, folder in the container, capabilities). "*" in the last name is any
# text. {version} and {architecture} are the driver's version and architecture. In the container, libglvnd and
# the EGL external platforms read /usr/share. The loaders of Vulkan and OpenCL read /etc first (their
# documentation). OptiX reads /usr/share/nvidia (libnvoptix).
CONFIGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors", COMPUTE_VIDEO),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share/X11/xorg.conf.d", DISPLAY),
    ("X11/xorg.conf.d/nvidia.conf", "/usr/share/X11/xorg.conf.d", DISPLAY),  # RPM Fusion
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share/X11/xorg.conf.d", DISPLAY),
    ("egl/egl_external_platform.d/*_nvidia_*.json", "/usr/share/egl/egl_external_platform.d", GRAPHICS),
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share/glvnd/egl_vendor.d", GRAPHICS),
    ("nvidia/nvidia-application-profiles-{version}-rc", "/usr/share/nvidia", (*COMPUTE_VIDEO, *GRAPHICS)),
    ("nvidia/nvoptix.bin", "/usr/share/nvidia", GRAPHICS),
    ("vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/icd.d/nvidia_icd.{architecture}.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/icd.d/nvidia_layers.json", "/etc/vulkan/icd.d", GRAPHICS),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc/vulkan/implicit_layer.d", GRAPHICS),
    # The names in NVIDIA's installer, in negativo17's packages and in Arch's packages.
    ("vulkansc/icd.d/nvidia_icd.json", "/etc/vulkansc/icd.d", GRAPHICS),
    ("vulkansc/icd.d/nvidia_icd.{architecture}.json", "/etc/vulkansc/icd.d", GRAPHICS),
    ("vulkansc/icd.d/nvidia_icd_vksc.json", "/etc/vulkansc/icd.d", GRAPHICS),
)

# The files of 32-bit programs. The columns are the same as in CONFIGS.
CONFIGS32: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("vulkan/icd.d/nvidia_icd.i686.json", "/etc/vulkan/icd.d", GRAPHICS),
)

# The folder of NGX's libraries for Wine and Proton, below the folder of libGLX_nvidia. Proton searches this
# folder (proton, ``nvidia_wine_dll_dir``).
WINE_FOLDER = "nvidia/wine"

# Folders of X server modules on hosts. In containers, the modules have the same paths as on the host, because
# the host's xorg.conf.d may contain them (``ModulePath``). They are also in XORG_TARGETS, which are the
# default folders of Xorg in Debian and Red Hat.
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
    # (file, folder below the modules' folder, additional name). Containers always have the additional name.
    # Red Hat's packages have only the additional name.
    ("nvidia_drv.so", "drivers", ""),
    ("libglxserver_nvidia.so.{version}", "extensions", "libglxserver_nvidia.so"),
)
XORG_TARGETS = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules")

SOCKETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvidia-fabricmanager/socket", UTILITY),
    ("nvidia-persistenced/socket", UTILITY),
)
