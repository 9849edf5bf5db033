"""hms doctor: whether a machine, its disk and a configuration are fit for a node.

machine    what the checks read of the system, below a root that tests replace
checks     the table of checks
disk_probe what a disk does: syncs, their time, locks
"""
