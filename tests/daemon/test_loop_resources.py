"""The resources of an idle daemon: inotify instances and threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.daemon.host import Host, daemon

pytestmark = pytest.mark.usefixtures("real_nodes")
MOST_INSTANCES, MOST_THREADS = 3, 10


def test_a_daemon_with_two_gpus_has_few_inotify_instances_and_threads(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        process = Path(f"/proc/{running.process.pid}")
        instances = [file.name for file in (process / "fd").iterdir() if "inotify" in os.readlink(file)]
        watches = [
            line
            for number in instances
            for line in (process / "fdinfo" / number).read_text().splitlines()
            if line.startswith("inotify ")
        ]
        threads = len(list((process / "task").iterdir()))
        print(f"\n{len(instances)} inotify instances, {len(watches)} watches, {threads} threads")
        # With fewer watches, the daemon would compare the folders instead.
        assert len(watches) > 20
        assert running.status["sources"]["files"]["healthy"]
        assert len(instances) <= MOST_INSTANCES
        assert threads <= MOST_THREADS
