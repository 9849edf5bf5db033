"""Replicas: one log on several machines. The primary sends what it writes, byte by byte, to the
others, and confirms what enough of them have synced.

    leadership     who leads: epochs, promises, when to campaign (sans-IO)
    promises       which copy may open an epoch, and which one goes furthest (sans-IO)
    confirmation   what enough copies have, and which copies count (sans-IO)
    catching_up    what a copy lacks of the primary's log (sans-IO)
    frames         what goes over the link
    copy_state     what a copy knows of itself, in its file REPLICA
    log_copy       a copy's segments and files, as the primary tells them
    replica_disk   the disk of a primary, which sends what the log and the files write
    primary        the link of a primary, and its lease
    follower       a copy that follows, until it takes over
    candidate      a copy that was granted an epoch, until it leads or gives way
    link           the sockets of both
    standby_door   what a follower tells clients: who leads
"""
