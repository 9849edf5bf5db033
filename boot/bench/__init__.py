"""Measuring: loads, client processes, the systems that are measured, and what the machine can do.

load.py        what is sent, and what is kept of what came
driver.py      what a client of any system does; hms_driver.py and null_driver.py are two
client.py      a client process: one role, one gate, one report
client_pool.py client processes that begin together
systems.py     a real node, and the null broker that sets the limit
workloads.py   W1 to W8
measure.py     one measurement; pairs.py: system and limit in turn, medians
"""
