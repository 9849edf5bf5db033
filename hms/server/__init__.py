"""The node: gateway, connections, lanes, release of effects, links to other nodes."""
