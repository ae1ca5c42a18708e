"""What people and their tools are answered beside metrics: ``Views`` has the routes.

The page, the documents beside it, and what nvidia-docker-plugin 1.0 told. Each answer is made of what the
daemon knows at that moment; figures are asked for, and waited for less long than a person waits.
"""

from __future__ import annotations

import os
import time
from functools import partial

from cdigen.cdi.render import render
from cdigen.daemon import status as statuses
from cdigen.daemon.holders import HoldersOnDemand
from cdigen.daemon.nvidia_docker import documents, texts
from cdigen.daemon.nvidia_docker.devices import listed
from cdigen.daemon.nvidia_docker.queries import InvalidQueryError, members
from cdigen.daemon.page.document import document as page_document
from cdigen.daemon.page.holders import who_has
from cdigen.daemon.page.page import POLICY, page
from cdigen.daemon.page.style import digest
from cdigen.daemon.page.view import PageView, device_views, nameless, without_names
from cdigen.daemon.spec_updates import error_line
from cdigen.frontend.http import Response
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError
from cdigen.model.inventory_json import to_document
from cdigen.pipeline import arguments
from cdigen.pipeline.device_names import known_devices
from cdigen.store.views.volumes import volumes
from cdigen.topology.matrix import devices_of
from cdigen.topology.svg import STYLE, picture
from cdigen.value import replace
from cdigen.vendors.nvidia.cuda import served

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.daemon.figures import FiguresOnDemand, VendorFigures
    from cdigen.daemon.nvidia_docker.devices import Device
    from cdigen.daemon.report import DaemonStatus
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.frontend.http import Route
    from cdigen.frontend.status import Process
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.arguments import DockerArguments

# The page comes within a second whatever NVML does.
WAIT_S = 0.7
# What was told last is shown for so long while there is no answer.
STALE_S = 60.0
RELOAD_S = 15
_LEAST_S, _MOST_S = 5, 3600
# What nvidia-docker-plugin told where no CUDA is served, or it is not known.
_NO_CUDA = "0.0"
NVIDIA = "nvidia"
_PICTURE_POLICY = f"default-src 'none'; style-src {digest(STYLE)}; frame-ancestors 'none'"
# Of nvidia-docker-plugin's paths: with its version, or without.
_PREFIXES = ("", "/v1.0")
_HTML, _SVG, _JSON = "text/html; charset=utf-8", "image/svg+xml", "application/json"


class Views:
    """Answers requests by what STATUS, INVENTORIES and SETUP return at that moment, and by FIGURES."""

    def __init__(
        self,
        *,
        status: Callable[[], DaemonStatus],
        inventories: Callable[[], Mapping[str, Inventory]],
        setup: Callable[[], DaemonSetup],
        figures: FiguresOnDemand,
        process: Process,
    ) -> None:
        self._status = status
        self._inventories = inventories
        self._setup = setup
        self._figures = figures
        self._process = process
        self._holders = HoldersOnDemand(setup)

    def routes(self) -> dict[str, Route]:
        """Return the routes by their paths."""
        old = {
            "/gpu/info": self._info,
            "/gpu/info/json": self._info_json,
            "/gpu/status": self._gpu_status,
            "/gpu/status/json": self._gpu_status_json,
            "/docker/cli": self._docker,
            "/docker/cli/json": self._docker_json,
            "/mesos/cli": self._mesos,
        }
        answered: dict[str, Route] = {
            "/": self._page,
            "/topology.svg": self._picture,
            "/status.json": self._status_json,
            "/inventory.json": self._inventory_json,
            "/page.json": self._page_json,
            **{f"{prefix}{path}": route for prefix in _PREFIXES for path, route in old.items()},
        }
        return {path: partial(_checked, route) for path, route in answered.items()}

    def port_routes(self) -> dict[str, Route]:
        """Return those routes that answer otherwise to every user of the host."""
        answered: dict[str, Route] = {
            "/": partial(self._page, is_open=True),
            "/page.json": partial(self._page_json, is_open=True),
            **{f"{prefix}/gpu/status": partial(self._gpu_status, is_open=True) for prefix in _PREFIXES},
            **{
                f"{prefix}/gpu/status/json": partial(self._gpu_status_json, is_open=True)
                for prefix in _PREFIXES
            },
        }
        return {path: partial(_checked, route) for path, route in answered.items()}

    def view(self, reload_s: int, *, is_open: bool = False) -> PageView:
        """Return what the page shows now; IS_OPEN: to every user of the host."""
        known, setup = self._inventories(), self._setup()
        devices = known_devices(known, setup.options.profiles)
        heard = self._holders.heard(self._told, devices, WAIT_S)
        now_s, status = time.time(), self._status()
        holders, sources = who_has(heard, devices, now_s)
        missing = [one.problem for one in heard.figures if one.problem]
        view = PageView(
            at_s=now_s,
            host=os.uname().nodename,
            status=status,
            devices=device_views(devices, known, heard.figures, holders),
            topology=devices_of(known),
            drivers=tuple((vendor, inventory.driver.version) for vendor, inventory in known.items()),
            cuda=_cuda(known),
            figures_problem="; ".join(missing),
            sources=sources,
            peers=heard.peers.peers,
            runtimes=heard.runtimes,
            looked_for=setup.vendors if status.cycle else (),
            reload_s=reload_s,
        )
        return nameless(view) if is_open and not setup.page.names_on_port else view

    def _told(self) -> tuple[VendorFigures, ...]:
        return self._figures.ask(WAIT_S, stale_s=STALE_S)

    def _page(self, query: str, *, is_open: bool = False) -> Response:
        asked = members(query).get("reload", "")
        reload_s = _reload_s(asked)
        headers = [("Content-Security-Policy", POLICY)]
        if reload_s:
            # With an address: a browser that is to reload one with a fragment only scrolls there.
            headers.append(("Refresh", f"{reload_s}; url=/{f'?reload={reload_s}' if asked else ''}"))
        body = page(self.view(reload_s, is_open=is_open)).encode("utf-8", "replace")
        return Response(body=body, content_type=_HTML, headers=tuple(headers))

    def _page_json(self, _: str, *, is_open: bool = False) -> Response:
        return _json(page_document(self.view(0, is_open=is_open)))

    def _picture(self, _: str) -> Response:
        drawn = picture(devices_of(self._inventories())).encode("utf-8", "replace")
        return Response(
            body=drawn, content_type=_SVG, headers=(("Content-Security-Policy", _PICTURE_POLICY),)
        )

    def _status_json(self, _: str) -> Response:
        return _json(statuses.document(self._status(), self._process))

    def _inventory_json(self, _: str) -> Response:
        return _json(to_document(self._inventories()))

    # nvidia-docker-plugin 1.0.

    def _versions(self) -> tuple[str, str]:
        known = self._inventories()
        driver = next((known[vendor].driver.version for vendor in (NVIDIA, *known) if vendor in known), "")
        return driver, _cuda(known) or _NO_CUDA

    def _info(self, _: str) -> Response:
        return _text(texts.info_text(*self._versions(), self._devices()))

    def _info_json(self, _: str) -> Response:
        return Response(
            body=documents.encoded(documents.info(*self._versions(), self._devices())), content_type=_JSON
        )

    def _gpu_status(self, _: str, *, is_open: bool = False) -> Response:
        return _text(texts.status_text(self._devices(is_open=is_open)))

    def _gpu_status_json(self, _: str, *, is_open: bool = False) -> Response:
        told = documents.status(self._devices(is_open=is_open))
        return Response(body=documents.encoded(told), content_type=_JSON)

    def _mesos(self, _: str) -> Response:
        return _text(documents.mesos(*self._versions(), self._devices()))

    def _docker(self, query: str) -> Response:
        return _text(" ".join(self._arguments(query).options()))

    def _docker_json(self, query: str) -> Response:
        return Response(body=documents.encoded(documents.docker(self._arguments(query))), content_type=_JSON)

    def _arguments(self, query: str) -> DockerArguments:
        asked, known, setup = members(query), self._inventories(), self._setup()
        offered = arguments.offers(known, setup.options.profiles, devices_of(known))
        return arguments.arguments(
            arguments.chosen(offered, asked.get("dev", "").split(" ")),
            asked.get("form", "classic"),
            volumes(setup.state_dir, Root(setup.outer)),
            asked.get("vol", "").split(" "),
        )

    def _devices(self, *, is_open: bool = False) -> tuple[Device, ...]:
        told = self._told()
        if is_open and not self._setup().page.names_on_port:
            told = tuple(
                replace(one, devices=tuple(without_names(each) for each in one.devices)) for one in told
            )
        return listed(devices_of(self._inventories()), told)


def _cuda(known: Mapping[str, Inventory]) -> str:
    return served(known[NVIDIA]) if NVIDIA in known else ""


def _checked(route: Route, query: str) -> Response:
    """Return what ROUTE answers to QUERY, or that it cannot be read."""
    try:
        members(query)
        return route(query)
    except (InvalidQueryError, arguments.InvalidChoiceError) as error:
        return _text(f"{error}\n", "400 Bad Request")
    except CdigenError as error:
        return _text(f"{error_line(error)}\n", "503 Service Unavailable")


def _reload_s(asked: str) -> int:
    """Return after how many seconds the page reloads itself as ASKED, 0 for never."""
    if asked == "off":
        return 0
    if not asked:
        return RELOAD_S
    if asked.isascii() and asked.isdecimal() and len(asked) <= len(str(_MOST_S)):
        seconds = int(asked)
        if _LEAST_S <= seconds <= _MOST_S:
            return seconds
    raise InvalidQueryError(f"reload can be off, or {_LEAST_S} to {_MOST_S} seconds")


def _json(document: Any) -> Response:
    return Response(body=render(document, stray_bytes=True), content_type=_JSON)


def _text(text: str, status: str = "200 OK") -> Response:
    return Response(body=text.encode("utf-8", "replace"), status=status)
