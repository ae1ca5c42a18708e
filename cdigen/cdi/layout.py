"""The layouts of the driver's files in containers, which convert a payload to mounts and hook steps.

There are four layouts (docs/decisions/0006-layouts.md):

- ``files``: each library is mounted under each of its loader names, in both default library folders. It is
  also mounted under the name of its file.
- ``view``: one folder with all files (the view) is mounted at a path of the kind. A hook adds the folder to
  the loader's cache. The libraries are also mounted as in ``hwcaps``, because the hook cannot write into
  every container.
- ``hwcaps``: the folder with the libraries of the view is mounted at the hwcaps folders, which loaders search
  before the default folders if the processor supports them.
- ``named``: each library is mounted under the name of its file. NVIDIA's hooks create the links.

In every layout, a file that software expects at a fixed path is a separate mount. If a payload has a prefix,
its libraries are below the prefix, and not in the folders that loaders search.
"""

from __future__ import annotations

import posixpath

from cdigen.model.cdi import HookStep, Mount
from cdigen.model.loader import capability_folders, library_folders
from cdigen.model.view import DEFAULT_TARGET, ViewFile, ViewLink, ViewPlan
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.cdi import ContainerEdits, Draft, Payload
    from cdigen.model.inventory import DriverFile

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
# The options of a socket do not contain "ro". In a container inside the container, the kernel locks a
# read-only mount, and refuses a bind mount of it without "ro". libnvidia-container makes such a bind mount of
# the socket (nvidia-container-toolkit pull request 1593).
SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
# The options of a folder with FIFOs. Containers open the FIFOs, but must not add or remove FIFOs.
PIPE = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")

_ENDPOINTS = {"socket": SOCKET, "pipe": PIPE}
_VIEW_FOLDERS = {"library": "lib64", "library32": "lib", "binary": "bin"}
_BITS = {"library": 64, "library32": 32}


@frozen
class LayoutResult:
    """The mounts of a payload, the steps for a hook, and the folder with the 64-bit libraries."""

    mounts: tuple[Mount, ...]
    steps: tuple[HookStep, ...]
    folder: str


@frozen
class PlacedView:
    """A folder with the driver's files on the host (a view).

    ``source`` is the path of the view on the host. ``target`` is the path in containers if the payload has no
    prefix. The view does not contain the files ``left_out`` (host paths). If such a file is a library or a
    program, the view has a mount point, and the original file is mounted at the mount point.
    """

    source: str = ""
    target: str = DEFAULT_TARGET
    left_out: frozenset[str] = frozenset()


NO_VIEW = PlacedView()


def view_plan(payload: Payload, *, left_out: frozenset[str] = frozenset()) -> ViewPlan:
    """Return the contents of the folder that the layouts ``view`` and ``hwcaps`` mount.

    The folder contains all files of PAYLOAD and links to libraries. It does not contain sockets and FIFOs,
    because these belong to a daemon. It also does not contain the host paths LEFT_OUT.
    """
    places = {source: path for source, path in _places(payload.files).items() if source not in left_out}
    return ViewPlan(
        vendor=payload.vendor,
        version=payload.version,
        files=tuple(ViewFile(path=path, source=source) for source, path in places.items()),
        links=tuple(_view_links(payload, places)),
    )


def files_outside_view(payload: Payload, left_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the host paths that must be mounted below the prefix of PAYLOAD, but cannot be in a view.

    The result contains sockets, FIFOs, and the host paths LEFT_OUT. The view at the prefix is read-only, so a
    mount inside the view needs a mount point in the view.
    """
    return tuple(
        file.host_path
        for file in payload.files
        if (file.kind in _ENDPOINTS or file.host_path in left_out) and _below_prefix(payload, file)
    )


def lay_out(
    payload: Payload, layout: str, view: PlacedView = NO_VIEW, *, capable: bool = True
) -> LayoutResult:
    """Return the mounts and the hook steps for PAYLOAD in LAYOUT.

    VIEW is the view of PAYLOAD, or NO_VIEW if the layout mounts no view. CAPABLE is true if loaders on this
    host search the hwcaps folders.
    """
    places = _places(payload.files) if view.source else {}
    sources = {
        source: f"{view.source}/{path}" for source, path in places.items() if source not in view.left_out
    }
    arrange = {"files": _files, "view": _view, "hwcaps": _hwcaps, "named": _named}[layout]
    rows, steps, folder = arrange(payload, view, capable and not payload.prefix)
    in_view = (
        file.host_path for file in payload.files if file.kind in _VIEW_FOLDERS or _below_prefix(payload, file)
    )
    missing = {
        f"{view.source}/{places[path]}": path for path in in_view if view.source and path in view.left_out
    }
    rows = [*rows, *_separate_mounts(rows, missing)]
    by_target: dict[str, Mount] = {}
    for source, target, options in rows:
        mount = Mount(host_path=sources.get(source, source), container_path=target, options=options)
        by_target.setdefault(target, mount)
    return LayoutResult(mounts=tuple(by_target.values()), steps=tuple(steps), folder=folder)


# The layouts. Each function returns its mounts (source, target, options), the steps, and the library folder.


def _files(payload: Payload, _view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001
    folders = _first_folders(payload)
    libraries = _singles(payload, lambda _file, _name: True)
    rows = [*libraries, *_own_names(payload, folders["library"]), *_fixed(payload)]
    return rows, _cache_steps(payload, folders), folders["library"]


def _view(payload: Payload, view: PlacedView, capable: bool) -> _Arranged:  # noqa: FBT001
    target = payload.prefix or view.target
    folders = {kind: f"{target}/{_VIEW_FOLDERS[kind]}" for kind in _BITS}
    # If the payload has a prefix, programs search its libraries only below the prefix.
    plugins, links = ((), ()) if payload.prefix else (_plugins(payload), _development_links(payload, folders))
    rows = [
        (view.source, target, READ_ONLY),
        *(_capability_mounts(payload, view.source) if capable else ()),
        *plugins,
        *(mount for mount in _fixed(payload) if not _below(payload.prefix, mount[1])),
    ]
    return rows, [*links, *_cache_steps(payload, folders)], folders["library"]


def _hwcaps(payload: Payload, view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001
    folder = capability_folders(payload.architecture)[0]
    rows = [
        *_capability_mounts(payload, view.source),
        *_plugins(payload),
        # The loader searches its cache before these folders. The cache lists the image's own libraries, so
        # libraries that the image also has (``carried``) are mounted separately.
        *_singles(payload, lambda file, name: file.kind == "library32" or name in payload.carried),
        *_fixed(payload),
    ]
    return rows, _cache_steps(payload, {"library": folder}), folder


def _named(payload: Payload, _view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001
    folders = _first_folders(payload)
    rows: list[_MountRow] = []
    steps: list[HookStep] = []
    for file in _libraries(payload):
        own = posixpath.basename(file.host_path)
        rows.append((file.host_path, f"{folders[file.kind]}/{own}", READ_ONLY))
        for name in file.names:
            if name != own:
                target = posixpath.relpath(own, posixpath.dirname(name) or ".")
                steps.append(
                    HookStep(name="create-symlinks", arguments=(target, f"{folders[file.kind]}/{name}"))
                )
    return [*rows, *_fixed(payload)], [*steps, *_cache_steps(payload, folders)], folders["library"]


def relocate(draft: Draft, folder: str) -> Draft:
    """Return DRAFT with every mount below FOLDER in the container; device nodes stay unchanged."""
    prefix = folder.rstrip("/")
    if not prefix:
        return draft
    devices = tuple(replace(device, edits=_moved(device.edits, prefix)) for device in draft.devices)
    return replace(draft, devices=devices, edits=_moved(draft.edits, prefix))


def _moved(edits: ContainerEdits, prefix: str) -> ContainerEdits:
    mounts = tuple(replace(mount, container_path=prefix + mount.container_path) for mount in edits.mounts)
    return replace(edits, mounts=mounts)


# Parts of the layouts.


def _places(files: Iterable[DriverFile]) -> dict[str, str]:
    """Return the paths in the view by host path.

    A file that does not belong in a library or program folder has a path in ``fixed``. If two files have the
    same name, the second file also has a path in ``fixed``.
    """
    places: dict[str, str] = {}
    used: set[str] = set()
    for file in files:
        if file.kind in _ENDPOINTS or file.host_path in places:
            continue
        folder = _VIEW_FOLDERS.get(file.kind) if file.kind == "binary" or file.names else None
        place = f"{folder}/{posixpath.basename(file.host_path)}"
        if folder is None or place in used:
            place = f"fixed{file.host_path}"
        used.add(place)
        places[file.host_path] = place
    return places


def _view_links(payload: Payload, places: Mapping[str, str]) -> Iterator[ViewLink]:
    used = set(places.values())
    for file in payload.files:
        names = file.names if file.kind in _BITS else ()
        paths = (f"{_VIEW_FOLDERS[file.kind]}/{name}" for name in names)
        for path in (*paths, *_below_prefix(payload, file)):
            if path not in used and file.host_path in places:
                used.add(path)
                target = posixpath.relpath(places[file.host_path], posixpath.dirname(path) or ".")
                yield ViewLink(path=path, target=target)


def _below_prefix(payload: Payload, file: DriverFile) -> tuple[str, ...]:
    """Return the fixed paths of FILE below the prefix of PAYLOAD, relative to the prefix."""
    return tuple(path for target in file.targets if (path := _below(payload.prefix, target)))


def _below(prefix: str, target: str) -> str:
    """Return TARGET relative to PREFIX, or "" if TARGET is not below PREFIX or PREFIX is empty."""
    return target.removeprefix(f"{prefix}/") if prefix and target.startswith(f"{prefix}/") else ""


def _libraries(payload: Payload) -> Iterator[DriverFile]:
    return (file for file in payload.files if file.kind in _BITS)


def _own_names(payload: Payload, folder: str) -> Iterator[_MountRow]:
    """Yield mounts of the 64-bit libraries under their file names (``libcuda.so.550.163.01``) in FOLDER.

    Tools that inject a GPU into containers inside the container search for these names. nvidia-ctk searches
    the library folders of Debian and Red Hat. nvidia-ctk before 1.20 searches all libraries except libcuda
    only in the folder of libcuda, so all libraries are in one folder.
    """
    for file in _libraries(payload):
        own = posixpath.basename(file.host_path)
        stem, versioned, _ = own.partition(".so.")
        if file.kind == "library" and versioned and any(name.startswith(f"{stem}.so") for name in file.names):
            yield file.host_path, f"{folder}/{own}", READ_ONLY


def _folders(payload: Payload, kind: str) -> tuple[str, ...]:
    """Return the folders in the container for separately mounted libraries of KIND."""
    if payload.prefix:
        return (f"{payload.prefix}/{_VIEW_FOLDERS[kind]}",)
    return library_folders(payload.architecture, bits=_BITS[kind])


def _first_folders(payload: Payload) -> dict[str, str]:
    return {kind: _folders(payload, kind)[0] for kind in _BITS}


def _fixed(payload: Payload) -> Iterator[_MountRow]:
    for file in payload.files:
        options = _ENDPOINTS.get(file.kind, READ_ONLY)
        for target in file.targets:
            yield file.host_path, target, options


def _separate_mounts(rows: Iterable[_MountRow], missing: Mapping[str, str]) -> Iterator[_MountRow]:
    """Yield a mount for each file in MISSING, at its path in each mounted folder of the view.

    MISSING maps the path in the view to the source.
    """
    for folder, target, options in rows:
        for place, source in missing.items():
            if place.startswith(f"{folder}/"):
                yield source, f"{target}{place.removeprefix(folder)}", options


def _capability_mounts(payload: Payload, view: str) -> Iterator[_MountRow]:
    source = f"{view}/{_VIEW_FOLDERS['library']}"
    if any(file.kind == "library" for file in payload.files):
        yield from ((source, target, READ_ONLY) for target in capability_folders(payload.architecture))


def _plugins(payload: Payload) -> Iterator[_MountRow]:
    """Yield mounts of the libraries that are loaded from a sub-folder of a library folder (gbm, vdpau)."""
    return _singles(payload, lambda _, name: "/" in name)


def _singles(payload: Payload, is_included: Callable[[DriverFile, str], bool]) -> Iterator[_MountRow]:
    for file in _libraries(payload):
        for name in file.names:
            if is_included(file, name):
                for folder in _folders(payload, file.kind):
                    yield file.host_path, f"{folder}/{name}", READ_ONLY


def _cache_steps(payload: Payload, folders: Mapping[str, str]) -> Iterator[HookStep]:
    """Yield the steps that add the libraries in FOLDERS (a folder for each kind) to the loader's cache."""
    for kind, folder in folders.items():
        abi = payload.architecture if kind == "library" else "i386"
        names = [name for file in _libraries(payload) if file.kind == kind for name in file.names]
        known = tuple(dict.fromkeys(name for name in names if "/" not in name))
        if known:
            yield HookStep(name="update-ldcache", arguments=(abi, folder, *known))


def _development_links(payload: Payload, folders: Mapping[str, str]) -> Iterator[HookStep]:
    """Yield steps for the links that linkers (``-lcuda``) search in default folders.

    Linkers do not read the loader's cache.
    """
    for file in _libraries(payload):
        for name in file.names:
            if name.endswith(".so") and "/" not in name:
                links = [f"{folder}/{name}" for folder in _folders(payload, file.kind)]
                arguments = (f"{folders[file.kind]}/{name}", *links)
                yield HookStep(name="create-symlinks", arguments=arguments)


if TYPE_CHECKING:
    from collections.abc import Callable

    _MountRow = tuple[str, str, tuple[str, ...]]
    _Arranged = tuple[Iterable[_MountRow], Iterable[HookStep], str]
