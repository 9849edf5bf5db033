"""Two copies or more, an arbiter, a network and disks in one process, all from one seed.

Real are the machines of leadership and confirmation, the primary and the follower with all they say
to one another, what a copy writes, recovery, and the segments. Simulated are the disk (which
forgets and tears), the network, the clock, the arbiter's engine, and the processes: killed at any
call of the disk, paused, cut off, restored from a backup, begun with an empty disk.

After each step, or when it can be told, H1 to H7, H9 to H13, H17 and H18 of the specification are
looked at: who writes an epoch, equal bytes, promises, confirmations and configurations at enough
copies, what a new primary has, tails that are set aside, what a reader sees, places that never
fall, files of messages, copies that went back or are damaged, the node's time over take-overs by
machines whose clocks are wrong by days, numbers that are given once. A plain log stands
for the engine here; so the others are tested elsewhere: H8 (nothing leaves before its record is
confirmed) by tests.sim with a real engine, whose journal syncs where a primary confirms; H14 in
tests/unit/store/test_shared_generations.py; H15 in tests/integration/test_database_leases.py; H16
in tests/unit/server/test_replica_machines.py; what waits for a time in
tests/sim/test_clock_matrix.py and, over a take-over, tests/acceptance/test_ha_replicas.py; H19 to
H21 in tests/sim/test_two_logs.py, tests/unit/client/test_client_epochs.py and
tests/unit/engine/session/test_outcomes.py.

With is_full (python -m tests.sim.replicas --full) also: segments that leave the log by the
journal's own manager, a lossy promotion of a copy that was left behind, and what a client is
told of it by its own code; removed and added copies, full disks, failed syncs, clocks that are set,
lines that carry one way only or flap, sectors that are zero by and by, second processes of a copy,
an arbiter that lost its data. What a promotion lost lies, in each machine that had it in its log,
among what was set aside (H7); what had left the log there goes by the limits of the history. Not
simulated: damage of older segments (tests/acceptance/test_ha_damage.py), H27 (bench.ha), H28
(test_ha_replicas.py). docs/reference/invariants.md has it all as tables.
"""
