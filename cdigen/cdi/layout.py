"""Lay out the driver's files for containers: a payload becomes mounts, and steps for a hook.

The layouts (docs/decisions/0006-layouts.md):

- ``files``: each library under each of its loader names, in both default library folders, and under the
  name of its file;
- ``view``: one folder with all of them, mounted at the kind's own place, which a hook makes findable; and as
  in ``hwcaps``, for containers into which the hook cannot write;
- ``hwcaps``: the same folder mounted where capable loaders look by themselves;
- ``named``: each library under its file's name, for NVIDIA's hooks, which make the links.

A file that software expects at a fixed path is a separate mount in all of them. Where a payload has a prefix,
its libraries are there instead of in the folders that loaders search.
"""

from __future__ import annotations

import posixpath

from cdigen.model.cdi import Mount, Step
from cdigen.model.loader import capability_folders, library_folders
from cdigen.model.view import DEFAULT_TARGET, ViewFile, ViewLink, ViewPlan
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.cdi import ContainerEdits, Draft, Payload
    from cdigen.model.inventory import DriverFile

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
# A read-only mount is locked for containers within the container: what binds the socket anew there without
# "ro", as libnvidia-container does, would be refused (nvidia-container-toolkit pull request 1593).
SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
# A folder of FIFOs: they are only opened; containers must neither add nor remove any.
PIPE = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")

_ENDPOINTS = {"socket": SOCKET, "pipe": PIPE}
_VIEW_FOLDERS = {"library": "lib64", "library32": "lib", "binary": "bin"}
_BITS = {"library": 64, "library32": 32}


@frozen
class LayoutResult:
    """The mounts of a payload, the steps for a hook, and the folder of its 64-bit libraries."""

    mounts: tuple[Mount, ...]
    steps: tuple[Step, ...]
    folder: str


@frozen
class PlacedView:
    """A published view: its path on the host, and where containers have it if the payload has no prefix.

    The host paths ``left_out`` are not in it, of libraries and programs only their places: they are mounted
    from where they are.
    """

    source: str = ""
    target: str = DEFAULT_TARGET
    left_out: frozenset[str] = frozenset()


NO_VIEW = PlacedView()


def view_plan(payload: Payload, *, left_out: frozenset[str] = frozenset()) -> ViewPlan:
    """Return what the layouts ``view`` and ``hwcaps`` mount: a folder of all files, with links to libraries.

    Sockets and FIFOs stay where they are, they are their daemon's; so do the host paths LEFT_OUT.
    """
    places = {source: path for source, path in _places(payload.files).items() if source not in left_out}
    return ViewPlan(
        vendor=payload.vendor,
        version=payload.version,
        files=tuple(ViewFile(path=path, source=source) for source, path in places.items()),
        links=tuple(_view_links(payload, places)),
    )


def files_outside_view(payload: Payload, left_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the files that have to be mounted below the prefix of PAYLOAD, and that no view of it can hold.

    They are sockets, FIFOs, and the host paths LEFT_OUT. Nothing can be mounted into a view at the prefix
    but on what it holds: it is read-only.
    """
    return tuple(
        file.host_path
        for file in payload.files
        if (file.kind in _ENDPOINTS or file.host_path in left_out) and _below_prefix(payload, file)
    )


def lay_out(
    payload: Payload, layout: str, view: PlacedView = NO_VIEW, *, capable: bool = True
) -> LayoutResult:
    """Return PAYLOAD in LAYOUT, with the VIEW of it where the layout mounts one.

    ``capable`` says that loaders on this host search the folders for capable processors.
    """
    places = _places(payload.files) if view.source else {}
    sources = {
        source: f"{view.source}/{path}" for source, path in places.items() if source not in view.left_out
    }
    arrange = {"files": _files, "view": _view, "hwcaps": _hwcaps, "named": _named}[layout]
    wanted, steps, folder = arrange(payload, view, capable and not payload.prefix)
    looked_for = (
        file.host_path for file in payload.files if file.kind in _VIEW_FOLDERS or _below_prefix(payload, file)
    )
    missing = {
        f"{view.source}/{places[path]}": path for path in looked_for if view.source and path in view.left_out
    }
    wanted = [*wanted, *_in_their_places(wanted, missing)]
    taken: dict[str, Mount] = {}
    for source, target, options in wanted:
        mount = Mount(host_path=sources.get(source, source), container_path=target, options=options)
        taken.setdefault(target, mount)
    return LayoutResult(mounts=tuple(taken.values()), steps=tuple(steps), folder=folder)


# The layouts: each returns (source, target, options) of its mounts, steps, and the libraries' folder.


def _files(payload: Payload, _view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001 - as all layouts
    folders = _first_folders(payload)
    libraries = _singles(payload, lambda _file, _name: True)
    wanted = [*libraries, *_own_names(payload, folders["library"]), *_fixed(payload)]
    return wanted, _cache_steps(payload, folders), folders["library"]


def _view(payload: Payload, view: PlacedView, capable: bool) -> _Arranged:  # noqa: FBT001
    target = payload.prefix or view.target
    folders = {kind: f"{target}/{_VIEW_FOLDERS[kind]}" for kind in _BITS}
    # Libraries with a prefix are searched only there.
    plugins, links = ((), ()) if payload.prefix else (_plugins(payload), _development_links(payload, folders))
    wanted = [
        (view.source, target, READ_ONLY),
        *(_capability_mounts(payload, view.source) if capable else ()),
        *plugins,
        *(mount for mount in _fixed(payload) if not _below(payload.prefix, mount[1])),
    ]
    return wanted, [*links, *_cache_steps(payload, folders)], folders["library"]


def _hwcaps(payload: Payload, view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001
    folder = capability_folders(payload.architecture)[0]
    wanted = [
        *_capability_mounts(payload, view.source),
        *_plugins(payload),
        # The loader's cache comes before these folders, and it knows what the image has of its own.
        *_singles(payload, lambda file, name: file.kind == "library32" or name in payload.carried),
        *_fixed(payload),
    ]
    return wanted, _cache_steps(payload, {"library": folder}), folder


def _named(payload: Payload, _view: PlacedView, _capable: bool) -> _Arranged:  # noqa: FBT001
    folders = _first_folders(payload)
    wanted: list[_Wanted] = []
    steps: list[Step] = []
    for file in _libraries(payload):
        own = posixpath.basename(file.host_path)
        wanted.append((file.host_path, f"{folders[file.kind]}/{own}", READ_ONLY))
        for name in file.names:
            if name != own:
                target = posixpath.relpath(own, posixpath.dirname(name) or ".")
                steps.append(Step(name="create-symlinks", arguments=(target, f"{folders[file.kind]}/{name}")))
    return [*wanted, *_fixed(payload)], [*steps, *_cache_steps(payload, folders)], folders["library"]


def relocate(draft: Draft, folder: str) -> Draft:
    """Return DRAFT with every mount below FOLDER of the container; nodes stay."""
    prefix = folder.rstrip("/")
    if not prefix:
        return draft
    devices = tuple(replace(device, edits=_moved(device.edits, prefix)) for device in draft.devices)
    return replace(draft, devices=devices, edits=_moved(draft.edits, prefix))


def _moved(edits: ContainerEdits, prefix: str) -> ContainerEdits:
    mounts = tuple(replace(mount, container_path=prefix + mount.container_path) for mount in edits.mounts)
    return replace(edits, mounts=mounts)


# What they are made of.


def _places(files: Iterable[DriverFile]) -> dict[str, str]:
    """Return host path -> path in the view; a second file of one name goes to ``fixed``."""
    places: dict[str, str] = {}
    taken: set[str] = set()
    for file in files:
        if file.kind in _ENDPOINTS or file.host_path in places:
            continue
        folder = _VIEW_FOLDERS.get(file.kind) if file.kind == "binary" or file.names else None
        place = f"{folder}/{posixpath.basename(file.host_path)}"
        if folder is None or place in taken:
            place = f"fixed{file.host_path}"
        taken.add(place)
        places[file.host_path] = place
    return places


def _view_links(payload: Payload, places: Mapping[str, str]) -> Iterator[ViewLink]:
    taken = set(places.values())
    for file in payload.files:
        names = file.names if file.kind in _BITS else ()
        paths = (f"{_VIEW_FOLDERS[file.kind]}/{name}" for name in names)
        for path in (*paths, *_below_prefix(payload, file)):
            if path not in taken and file.host_path in places:
                taken.add(path)
                target = posixpath.relpath(places[file.host_path], posixpath.dirname(path) or ".")
                yield ViewLink(path=path, target=target)


def _below_prefix(payload: Payload, file: DriverFile) -> tuple[str, ...]:
    """Return the fixed places of FILE that lie within the prefix of PAYLOAD, relative to it."""
    return tuple(path for target in file.targets if (path := _below(payload.prefix, target)))


def _below(prefix: str, target: str) -> str:
    """Return TARGET relative to PREFIX, empty where it does not lie below it or there is none."""
    return target.removeprefix(f"{prefix}/") if prefix and target.startswith(f"{prefix}/") else ""


def _libraries(payload: Payload) -> Iterator[DriverFile]:
    return (file for file in payload.files if file.kind in _BITS)


def _own_names(payload: Payload, folder: str) -> Iterator[_Wanted]:
    """Yield the 64-bit libraries under the names of their files (``libcuda.so.550.163.01``) in FOLDER.

    Tools that give a GPU to containers within the container look for these (nvidia-ctk: in Debian's and Red
    Hat's folders; before 1.20 for all others only in that of libcuda, so they are in one).
    """
    for file in _libraries(payload):
        own = posixpath.basename(file.host_path)
        stem, versioned, _ = own.partition(".so.")
        if file.kind == "library" and versioned and any(name.startswith(f"{stem}.so") for name in file.names):
            yield file.host_path, f"{folder}/{own}", READ_ONLY


def _folders(payload: Payload, kind: str) -> tuple[str, ...]:
    """Return the container's folders for single libraries of KIND."""
    if payload.prefix:
        return (f"{payload.prefix}/{_VIEW_FOLDERS[kind]}",)
    return library_folders(payload.architecture, bits=_BITS[kind])


def _first_folders(payload: Payload) -> dict[str, str]:
    return {kind: _folders(payload, kind)[0] for kind in _BITS}


def _fixed(payload: Payload) -> Iterator[_Wanted]:
    for file in payload.files:
        options = _ENDPOINTS.get(file.kind, READ_ONLY)
        for target in file.targets:
            yield file.host_path, target, options


def _in_their_places(wanted: Iterable[_Wanted], missing: Mapping[str, str]) -> Iterator[_Wanted]:
    """Yield the mounts of files (place in the view: source) wherever their folder of the view is mounted."""
    for folder, target, options in wanted:
        for place, source in missing.items():
            if place.startswith(f"{folder}/"):
                yield source, f"{target}{place.removeprefix(folder)}", options


def _capability_mounts(payload: Payload, view: str) -> Iterator[_Wanted]:
    source = f"{view}/{_VIEW_FOLDERS['library']}"
    if any(file.kind == "library" for file in payload.files):
        yield from ((source, target, READ_ONLY) for target in capability_folders(payload.architecture))


def _plugins(payload: Payload) -> Iterator[_Wanted]:
    """Yield the libraries that others look for in a sub-folder of a library folder: gbm, vdpau."""
    return _singles(payload, lambda _, name: "/" in name)


def _singles(payload: Payload, is_wanted: Callable[[DriverFile, str], bool]) -> Iterator[_Wanted]:
    for file in _libraries(payload):
        for name in file.names:
            if is_wanted(file, name):
                for folder in _folders(payload, file.kind):
                    yield file.host_path, f"{folder}/{name}", READ_ONLY


def _cache_steps(payload: Payload, folders: Mapping[str, str]) -> Iterator[Step]:
    """Yield what makes the libraries in FOLDERS (by kind) known to the loader's cache."""
    for kind, folder in folders.items():
        abi = payload.architecture if kind == "library" else "i386"
        names = [name for file in _libraries(payload) if file.kind == kind for name in file.names]
        known = tuple(dict.fromkeys(name for name in names if "/" not in name))
        if known:
            yield Step(name="update-ldcache", arguments=(abi, folder, *known))


def _development_links(payload: Payload, folders: Mapping[str, str]) -> Iterator[Step]:
    """Yield the links that linkers look for in a default folder (``-lcuda``), which no cache serves."""
    for file in _libraries(payload):
        for name in file.names:
            if name.endswith(".so") and "/" not in name:
                links = [f"{folder}/{name}" for folder in _folders(payload, file.kind)]
                arguments = (f"{folders[file.kind]}/{name}", *links)
                yield Step(name="create-symlinks", arguments=arguments)


if TYPE_CHECKING:
    from collections.abc import Callable

    _Wanted = tuple[str, str, tuple[str, ...]]
    _Arranged = tuple[Iterable[_Wanted], Iterable[Step], str]
