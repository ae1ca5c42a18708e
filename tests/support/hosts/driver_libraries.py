"""The libraries and programs of NVIDIA's driver."""

from dataclasses import dataclass, field, replace

VERSIONED = ""  # a SONAME that ends in the driver's version


@dataclass(frozen=True, slots=True)
class Library:
    """A library of the driver: its name, the end of its SONAME, and further names that software loads.

    `dev`: software also loads a link without any version. `own`: the version in the file's name, if it is not
    the driver's version.
    """

    stem: str
    major: str = VERSIONED
    dev: bool = field(default=False, kw_only=True)
    also: tuple[str, ...] = field(default=(), kw_only=True)
    own: str = field(default="", kw_only=True)
    needed: tuple[str, ...] = field(default=(), kw_only=True)
    folder: str = field(default="", kw_only=True)

    def file(self, version: str) -> str:
        return f"{self.stem}.so.{self.own or version}"

    def soname(self, version: str) -> str:
        return f"{self.stem}.so.{self.major or version}"

    def names(self, version: str) -> tuple[str, ...]:
        dev = (f"{self.stem}.so",) if self.dev else ()
        return (self.soname(version), *dev, *(name.format(v=version) for name in self.also))


GLSI, TLS, GLCORE = "libnvidia-glsi.so.{v}", "libnvidia-tls.so.{v}", "libnvidia-glcore.so.{v}"
COMMON = (
    Library("libEGL_nvidia", "0", needed=(GLSI,)),
    Library("libGLESv1_CM_nvidia", "1"),
    Library("libGLESv2_nvidia", "2"),
    Library("libGLX_nvidia", "0", also=("libGLX_indirect.so.0",), needed=(GLSI, TLS, GLCORE, "libX11.so.6")),
    Library("libcuda", "1", dev=True, needed=("libm.so.6", "libc.so.6")),
    Library("libnvcuvid", "1", dev=True),
    Library("libnvidia-allocator", "1", also=("gbm/nvidia-drm_gbm.so",)),
    Library("libnvidia-cfg", "1"),
    Library("libnvidia-egl-gbm", "1", own="1.1.0"),
    Library("libnvidia-egl-wayland", "1", own="1.1.18", needed=("libwayland-client.so.0",)),
    Library("libnvidia-eglcore", needed=(GLSI,)),
    Library("libnvidia-encode", "1", dev=True, needed=("libnvcuvid.so.1",)),
    Library("libnvidia-fbc", "1", dev=True),
    Library("libnvidia-glcore", needed=(TLS,)),
    Library("libnvidia-glsi"),
    Library("libnvidia-glvkspirv"),
    Library("libnvidia-ml", "1", dev=True),
    Library("libnvidia-ngx", "1", dev=True),
    Library("libnvidia-opencl", "1"),
    Library("libnvidia-opticalflow", "1", dev=True),
    Library("libnvidia-ptxjitcompiler", "1"),
    Library("libnvidia-rtcore"),
    Library("libnvidia-tls"),
    Library("libnvoptix", "1"),
    Library("libvdpau_nvidia", "1", also=("vdpau/libvdpau_nvidia.so.1",), folder="vdpau"),
)
NVVM = Library("libnvidia-nvvm", "4", also=("libnvidia-nvvm.so.{v}",))
OLD_NVVM = replace(NVVM, own="4.0.0")
PRODUCER = Library("libnvidia-vulkan-producer", also=("libnvidia-vulkan-producer.so",))
ONLY_OLD = (Library("libnvidia-cbl"), Library("libnvidia-compiler"), Library("libnvidia-ifr", "1"))
PROGRAMS = ("cuda-mps-control", "cuda-mps-server", "debugdump", "persistenced", "smi")
BINARIES = tuple(f"nvidia-{program}" for program in PROGRAMS)
