"""The pools: lanes, general workers, storage workers. They know no message, only work in batches.

lanes.py      LanePool: in order within a lane, in parallel between lanes
storage.py    StoragePool: one worker leads the log, the others run jobs
lingering.py  Linger: what may wait a moment for more to be done with it
outbox.py     Outbox: what many threads hand to one, and how it is woken
sleepers.py   Sleepers: workers without work, and how one of them is woken
"""
