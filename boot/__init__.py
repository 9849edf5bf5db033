"""From hms.conf to a running node: configuration, supervision and the command line."""
