"""``page_routes``: the HTTP routes except metrics and health.

The routes serve the page, the JSON documents, and the API of nvidia-docker-plugin 1.0. Each response shows
the present state. Stats are read on demand, with a short timeout.
"""

from __future__ import annotations

import os
import re
import time
from functools import partial
from urllib.parse import parse_qsl

from cdigen.cdi.render import render
from cdigen.daemon import status as statuses
from cdigen.daemon.cycle.spec_updates import error_line
from cdigen.daemon.outputs import FurtherRoutes
from cdigen.host.root import Root, shown
from cdigen.model.errors import CdigenError
from cdigen.model.inventory_json import to_document
from cdigen.model.view import DEFAULT_KIND
from cdigen.page.device_users import MAX_WAITING, DeviceUsersReader
from cdigen.page.document import document as page_document
from cdigen.page.nvidia_docker import documents, texts
from cdigen.page.nvidia_docker.devices import listed
from cdigen.page.page import POLICY, page
from cdigen.page.style import digest
from cdigen.page.user_reports import users_by_device
from cdigen.page.view import PageView, device_views, nameless, without_names
from cdigen.pipeline import arguments
from cdigen.pipeline.device_names import known_devices
from cdigen.pipeline.driver.cuda import cuda_of
from cdigen.service.http.routes import Request, Response
from cdigen.store.views.volumes import volumes
from cdigen.topology.matrix import devices_of
from cdigen.topology.svg import STYLE, picture
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.daemon.outputs import RouteSources
    from cdigen.daemon.stats import VendorStats
    from cdigen.page.nvidia_docker.devices import NvidiaDockerDevice
    from cdigen.pipeline.arguments import DockerArguments
    from cdigen.service.http.routes import Route

    # The parameters in the query of a request.
    Parameters = Mapping[str, str]

# The page is served within a second, even if NVML hangs.
WAIT_S = 0.7
# Stats up to this age in seconds are shown if newer stats are not available.
STALE_S = 60.0
RELOAD_S = 15
_LEAST_S, _MOST_S = 5, 3600
# The characters of an unknown parameter in an error.
_SHOWN = 80
# The CUDA version that nvidia-docker-plugin reports if the version is unknown or no driver serves CUDA.
_NO_CUDA = "0.0"
_PICTURE_POLICY = f"default-src 'none'; style-src {digest(STYLE)}; frame-ancestors 'none'"
# nvidia-docker-plugin serves each path with and without its API version.
_PREFIXES = ("", "/v1.0")
# Path without prefix -> the parameters of its query. The other paths have no parameters.
_DEVICES = frozenset({"dev", "vol", "form"})
_PARAMETERS = {"/": frozenset({"reload"}), "/docker/cli": _DEVICES, "/docker/cli/json": _DEVICES}
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_HTML, _SVG, _JSON = "text/html; charset=utf-8", "image/svg+xml", "application/json"


class InvalidQueryError(ValueError):
    """A query that is rejected with status 400. ``members`` uses the error text of nvidia-docker 1.0."""


def page_routes(sources: RouteSources) -> FurtherRoutes:
    """Return the routes of the page, which read SOURCES."""
    made = _Routes(sources)
    return FurtherRoutes(routes=made.routes(), port_routes=made.port_routes(), waiting=MAX_WAITING)


class _Routes:
    """Serves requests from SOURCES."""

    def __init__(self, sources: RouteSources) -> None:
        self._sources = sources
        self._device_users = DeviceUsersReader(sources.setup)

    def routes(self) -> dict[str, Route]:
        """Return the routes by their paths."""
        nvidia_docker: dict[str, Callable[[Parameters], Response]] = {
            "/gpu/info": lambda _: _text(texts.info_text(*self._versions(), self._devices())),
            "/gpu/info/json": lambda _: _go_json(documents.info(*self._versions(), self._devices())),
            "/gpu/status": self._gpu_status,
            "/gpu/status/json": self._gpu_status_json,
            "/docker/cli": lambda parameters: _text(" ".join(self._arguments(parameters).options())),
            "/docker/cli/json": lambda parameters: _go_json(documents.docker(self._arguments(parameters))),
            "/mesos/cli": lambda _: _text(documents.mesos(*self._versions(), self._devices())),
        }
        handlers: dict[str, Callable[[Parameters], Response]] = {
            "/": self._page,
            "/topology.svg": self._picture,
            "/status.json": lambda _: _json(statuses.document(self._sources.status(), self._sources.process)),
            "/inventory.json": lambda _: _json(to_document(self._sources.inventories())),
            "/page.json": self._page_json,
            **{f"{prefix}{path}": each for prefix in _PREFIXES for path, each in nvidia_docker.items()},
        }
        return {path: partial(_checked, path, each) for path, each in handlers.items()}

    def port_routes(self) -> dict[str, Route]:
        """Return the routes whose response differs on the TCP port, which every user can reach."""
        handlers: dict[str, Callable[..., Response]] = {"/": self._page, "/page.json": self._page_json}
        for prefix in _PREFIXES:
            handlers[f"{prefix}/gpu/status"] = self._gpu_status
            handlers[f"{prefix}/gpu/status/json"] = self._gpu_status_json
        return {
            path: partial(_checked, path, partial(each, is_public=True)) for path, each in handlers.items()
        }

    def view(self, reload_s: int, *, is_public: bool = False) -> PageView:
        """Return the present content of the page.

        IS_PUBLIC is set for responses that every user of the host can read. If ``http_port_shows_names`` is
        not set, a public view has no names of pods, containers and processes.
        """
        known, setup = self._sources.inventories(), self._sources.setup()
        devices = known_devices(known, setup.options.profiles)
        reports = self._device_users.read(self._read_stats, devices, WAIT_S)
        now_s, status = time.time(), self._sources.status()
        users, sources = users_by_device(reports, devices, now_s)
        problems = [one.problem for one in reports.stats if one.problem]
        view = PageView(
            at_s=now_s,
            host=os.uname().nodename,
            status=status,
            devices=device_views(devices, known, reports.stats, users),
            topology=devices_of(known),
            drivers=tuple((vendor, inventory.driver.version) for vendor, inventory in known.items()),
            cuda=cuda_of(known),
            stats_problem="; ".join(problems),
            sources=sources,
            services=reports.services.services,
            runtimes=reports.runtimes,
            searched=setup.vendors if status.cycle else (),
            reload_s=reload_s,
        )
        return nameless(view) if is_public and not setup.page.http_port_shows_names else view

    def _read_stats(self) -> tuple[VendorStats, ...]:
        return self._sources.stats.read(WAIT_S, stale_s=STALE_S)

    def _page(self, parameters: Parameters, *, is_public: bool = False) -> Response:
        requested = parameters.get("reload", "")
        reload_s = _reload_s(requested)
        headers = [("Content-Security-Policy", POLICY)]
        if reload_s:
            # Without a URL in the header, a browser at an address with a fragment would scroll, not reload.
            headers.append(("Refresh", f"{reload_s}; url=/{f'?reload={reload_s}' if requested else ''}"))
        body = page(self.view(reload_s, is_public=is_public)).encode("utf-8", "replace")
        return Response(body=body, content_type=_HTML, headers=tuple(headers))

    def _page_json(self, _: Parameters, *, is_public: bool = False) -> Response:
        return _json(page_document(self.view(0, is_public=is_public)))

    def _picture(self, _: Parameters) -> Response:
        svg = picture(devices_of(self._sources.inventories())).encode("utf-8", "replace")
        return Response(body=svg, content_type=_SVG, headers=(("Content-Security-Policy", _PICTURE_POLICY),))

    # nvidia-docker-plugin 1.0.

    def _versions(self) -> tuple[str, str]:
        known = self._sources.inventories()
        first = registry.vendor_of(DEFAULT_KIND, known)
        driver = next((known[vendor].driver.version for vendor in (first, *known) if vendor in known), "")
        return driver, cuda_of(known) or _NO_CUDA

    def _gpu_status(self, _: Parameters, *, is_public: bool = False) -> Response:
        return _text(texts.status_text(self._devices(is_public=is_public)))

    def _gpu_status_json(self, _: Parameters, *, is_public: bool = False) -> Response:
        return _go_json(documents.status(self._devices(is_public=is_public)))

    def _arguments(self, parameters: Parameters) -> DockerArguments:
        known, setup = self._sources.inventories(), self._sources.setup()
        numbered = [device.accelerator for device in devices_of(known)]
        offered = arguments.named_devices(known, setup.options.profiles, numbered)
        return arguments.arguments(
            arguments.select_devices(offered, parameters.get("dev", "").split(" ")),
            parameters.get("form", "classic"),
            volumes(setup.state_dir, Root(setup.outer)),
            parameters.get("vol", "").split(" "),
        )

    def _devices(self, *, is_public: bool = False) -> tuple[NvidiaDockerDevice, ...]:
        stats = self._read_stats()
        if is_public and not self._sources.setup().page.http_port_shows_names:
            stats = tuple(
                replace(one, devices=tuple(without_names(each) for each in one.devices)) for one in stats
            )
        return listed(devices_of(self._sources.inventories()), stats)


def _checked(path: str, handler: Callable[[Parameters], Response], request: Request) -> Response:
    """Return the response of HANDLER, which serves PATH, to the query of REQUEST, or an error response."""
    try:
        parameters = members(request.query)
        known = _PARAMETERS.get(path.removeprefix(_PREFIXES[-1]), frozenset())
        if unknown := [name for name in parameters if name not in known]:
            names = f"; known: {', '.join(sorted(known))}" if known else ""
            raise InvalidQueryError(f"unknown parameter {shown(unknown[0][:_SHOWN])!r} of {path}{names}")
        return handler(parameters)
    except (InvalidQueryError, arguments.InvalidChoiceError) as error:
        return _text(f"{error}\n", "400 Bad Request")
    except CdigenError as error:
        return _text(f"{error_line(error)}\n", "503 Service Unavailable")


def members(query: str) -> dict[str, str]:
    """Return the first value of each parameter in QUERY; raise InvalidQueryError if QUERY is malformed."""
    bad = _BAD_ESCAPE.search(query)
    if bad is not None:
        raise InvalidQueryError(f'invalid URL escape "{shown(bad.group())}"')
    found: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True, errors="replace"):
        found.setdefault(name, text)
    return found


def _reload_s(requested: str) -> int:
    """Return the seconds between reloads of the page for the parameter REQUESTED, 0 for no reload."""
    if requested == "off":
        return 0
    if not requested:
        return RELOAD_S
    if requested.isascii() and requested.isdecimal() and len(requested) <= len(str(_MOST_S)):
        seconds = int(requested)
        if _LEAST_S <= seconds <= _MOST_S:
            return seconds
    raise InvalidQueryError(f"reload must be off, or {_LEAST_S} to {_MOST_S} seconds")


def _json(document: Any) -> Response:
    return Response(body=render(document, stray_bytes=True), content_type=_JSON)


def _go_json(document: Any) -> Response:
    return Response(body=documents.encoded(document), content_type=_JSON)


def _text(text: str, status: str = "200 OK") -> Response:
    return Response(body=text.encode("utf-8", "replace"), status=status)
