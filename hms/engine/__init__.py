"""The broker's rules, without I/O: state + command + now → state + effects (P3).

engine.py    the commands, one method each       state.py    all that the engine knows
messages.py  a message as it waits               effects.py  what the engine wants done
queue/       destinations, sends, dispatch       session/    connections, sessions, transactions
log/         recovery, compaction, paging        topic/      the tree, subscriptions, publications
"""
