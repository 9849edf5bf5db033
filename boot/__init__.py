"""From hms.conf to a running node: configuration, supervision and the command line."""

from hms.boot.clock import require_clock

require_clock()  # before anything imports logging, which cannot be imported without one
