"""Branches: the work that this node does in distributed transactions (X/Open XA), and the decisions
of those that its clients lead.

    codes        what XA calls answer
    branch       the states of a branch and the table of its transitions; all branches of a node
    associating  xa_start and xa_end: which session works in which branch
    completing   xa_prepare, xa_commit, xa_rollback, xa_forget, xa_recover; timeouts
    records      what the log keeps of a branch, and how it is read back
    operating    what operators see and order
    decisions    the decision log of a coordinator
    commands     one method per request
"""
