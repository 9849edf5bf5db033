"""Application servers: what a module with services needs, and the process that runs it.

    python -P -m tpmon.server --connect ADDRESS [--name N] [--path DIR]… [--threads N]
                              [--until-eof] [--ready-fd N] MODULE…

SIGTERM finishes the current calls and leaves. With --until-eof the process ends with its standard
input: the node holds the other end, so that its servers cannot outlive it, however it ended. Of
ours the process has loaded only hms, tpmon and field_buffer.
"""

import argparse
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial

from hms.client.core.blocking_connection import Connection
from hms.client.core.log_lines import start_log
from hms.client.core.log_output import await_end_of_node, keep_printing
from hms.client.profiles.profiled import BY_PROFILE, PROFILE_VARIABLE, tool_connection
from hms.errors.tree import HmsError
from tpmon.runtime import Server, tpadvertise, tpunadvertise
from tpmon.service_functions import (
    TPSVCINFO,
    Request,
    ServiceResult,
    service,
    tpforward,
    tpreturn,
)

__all__ = [
    "TPSVCINFO",
    "Request",
    "Server",
    "ServiceResult",
    "service",
    "tpadvertise",
    "tpforward",
    "tpreturn",
    "tpunadvertise",
]

ORPHAN_TIMEOUT_S = 10.0
"""How long a call may go on whose node is gone."""

_LOGGER = logging.getLogger("tpmon.server")


def serve(
    modules: Sequence[str],
    address: str,
    python_path: Sequence[str | os.PathLike[str]] = (),
    name: str = "",
    *,
    threads: int = 1,
    until_eof: bool = False,
    ready_fd: int | None = None,
) -> int:
    """Serve until a signal; the process's exit code. Faults go to the log.

    threads: so many calls run at once; until_eof: stop with standard input too; ready_fd: is
    written to when all services are offered.
    """
    by_profile = address.removeprefix(BY_PROFILE) if address.startswith(BY_PROFILE) else ""
    os.environ |= {PROFILE_VARIABLE: by_profile}  # for a handler's own tpstart()
    if not by_profile:
        os.environ["HMS_ADDRESS"] = address
    server = Server(
        modules,
        address,
        name,
        python_path,
        threads=threads,
        on_serving=lambda: _tell_ready(ready_fd),
        connect=partial(tool_connection, Connection),
    )
    if until_eof:
        _stop_at_eof(server)
    try:
        server.run()
    except HmsError as error:
        _LOGGER.critical("%s", error, exc_info=error.__cause__, extra={"event": "server_failed"})
        return 1
    finally:
        if until_eof:
            _end_group(signal.SIGTERM)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command in the module's text."""
    given = _parse(arguments)
    faulthandler.enable()
    keep_printing()
    about = given.name or ",".join(given.modules)
    start_log("server", about)
    return serve(
        given.modules,
        given.connect,
        given.path,
        given.name,
        threads=given.threads,
        until_eof=given.until_eof,
        ready_fd=given.ready_fd,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m tpmon.server")
    parser.add_argument("--connect", required=True, metavar="ADDRESS", help="or profile:NAME")
    parser.add_argument("--name", default="", help="the [server.NAME] it runs for")
    parser.add_argument("--path", action="append", default=[], metavar="DIR")
    parser.add_argument("--threads", type=int, default=1, help="how many calls run at once")
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    return parser.parse_args(arguments)


def _tell_ready(fd: int | None) -> None:
    if fd is None:
        return
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, b"ready\n")
    os.close(fd)


def _end_group(number: int) -> None:
    """End what services forked: the node, which does it else, may be gone."""
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, number)


def _stop_at_eof(server: Server) -> None:
    """Stop when standard input ends; the application finds an empty one in its place."""
    own = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_await_eof, args=(server, own), name="hms-eof", daemon=True).start()


def _await_eof(server: Server, fd: int) -> None:
    await_end_of_node(fd)
    server.stop()
    if not threading.Event().wait(ORPHAN_TIMEOUT_S):  # the process has ended by then
        _LOGGER.error("the node is gone and a call has gone on for %g s since", ORPHAN_TIMEOUT_S)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
