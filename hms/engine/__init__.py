"""The broker's rules, without I/O: state + command + now → state + effects (P3).

engine.py       the commands, one method each; the room to begin in state.py        all that the
engine knows messages.py     a message as it waits;  pending_list.py  where messages wait;
destinations.py  queues and topics session_objects.py     connections, sessions, producers,
consumers queue_send.py  dispatch.py  settlement.py  transactions.py   what the commands do
recovery.py     the same state from the log;  records.py  what the log holds"""
