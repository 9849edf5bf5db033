"""The broker's rules, without I/O: state + command + now → state + effects (P3).

engine.py       the commands, one method each; the room to begin in
state.py        all that the engine knows
messages.py     a message as it waits;  line.py  where messages wait;  places.py  queues and topics
sessions.py     connections, sessions, producers, consumers
sending.py  dispatch.py  settling.py  transactions.py   what the commands do
recovery.py     the same state from the log;  records.py  what the log holds
"""
