"""Reports: what the history says of a time, as tables and curves.

table.py    what a report is, and how it is asked for
flow.py     throughput and backlog      latency.py  how long messages waited
ends.py     dead letters and expiry     audit.py    is every message accounted for?
html.py     a report as one file for a browser; curve.py draws, words.py writes values
"""
