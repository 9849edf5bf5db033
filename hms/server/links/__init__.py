"""Links: how nodes of a cluster talk to one another.

frames    what goes over a link, and the envelope that the main thread reads
keys      the nodes' CURVE keys, in files that hms.conf names
guard     who is let in by its key (ZAP)
speaking  the socket that leads to one node: it connects, waits, tries again
links     all of them, and the socket that the others connect to; in the main thread
door      words go to the engine and come from it, under its lock
"""
