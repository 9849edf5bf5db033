"""Two copies, an arbiter, a network and disks in one process, all from one seed.

Real are the machines of leadership and confirmation, the primary and the follower with all they say
to one another, what a copy writes, recovery, and the segments. Simulated are the disk (which
forgets and tears), the network, the clock, the arbiter's engine, and the processes: killed at any
call of the disk, paused, cut off, restored from a backup, begun with an empty disk.
"""
