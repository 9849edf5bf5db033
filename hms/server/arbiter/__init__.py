"""The arbiter: who may lead a replicated node, decided by an engine that exists (etcd, PostgreSQL).

One configuration and one lease for each node. The rest of the house knows this interface alone:

    read()      the configuration and who leads; linearizable
    change()    another configuration, by the leader of its epoch, if nobody was faster
    campaign()  the next epoch and its lease, if nobody leads; an epoch is granted once
    renew()     the lease of the epoch that was granted here
    resign()    give the lease back; another replica may be preferred for a while
    watch()     a hint that something is new; every decision reads again

Every fault means one thing: unknown (ArbiterUnavailable). What was asked may have happened, so
the caller reads before it concludes anything; kinds of faults are not told apart.
"""

from hms.server.arbiter.interface import Arbiter, Configuration, Leader, Member, Standing

__all__ = ["Arbiter", "Configuration", "Leader", "Member", "Standing"]
