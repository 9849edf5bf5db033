"""Branches: the work that this node does in distributed transactions (X/Open XA), and the decisions
of those that its clients lead.

    xa_codes           what XA calls answer
    branch             states of a branch, the table of its transitions; all branches of a node
    branch_commands    one method per request
    association        xa_start and xa_end: which session works in which branch
    completion         xa_prepare, xa_commit, xa_rollback, xa_forget, xa_recover; timeouts
    branch_records     what the log keeps of a branch, and how it is read back
    branch_operations  what operators see and order
    decisions          the decision log of a coordinator
"""
