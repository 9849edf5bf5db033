"""A store on storage that two machines mount: one owns it at a time, and another takes it over.

    BASE/gen.N/       segments, history and files of the present owner
    BASE/gen.N/BEAT   a counter that the owner raises, so that others see that it lives, and the
                      node's time

Renaming gen.N to gen.N+1 is the take-over. One rename wins. From then on every name that the old
owner knows is gone; its journal looks at its own name after each sync, before anything is
confirmed, and stops. A batch that passed that look was synced before the rename, so the new owner
has it. What the old owner still writes goes to files that nobody reads any more: the new one has
copied those that were not sealed. Lock and beat decide only when a standby tries.
"""

from hms.store.shared.disk import SHARED_DISK, fenced
from hms.store.shared.generations import Generations, check_layout, generation_of, present_folder
from hms.store.shared.heartbeat import Heartbeat, time_in
from hms.store.shared.mounts import check_mount

__all__ = [
    "SHARED_DISK",
    "Generations",
    "Heartbeat",
    "check_layout",
    "check_mount",
    "fenced",
    "generation_of",
    "present_folder",
    "time_in",
]
