"""hms doctor: whether a machine, its disk and a configuration are fit for a node.

machine    what the checks read of the system, below a root that tests replace
findings   what a check says, and of what
checks     the table of checks; place_checks and node_checks: those of what lies around a node, and
           of its own things
disk_probe what a disk does: syncs, their time, locks
witness    what it keeps through a power cut; kill_probe: what a node on it loses when it is killed;
           damage_probe: whether a flipped bit is detected; peer_probe: whether two machines can
           share a folder
"""
