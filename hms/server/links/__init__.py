"""Links: how nodes of a cluster talk to one another.

link_frames   what goes over a link, and the envelope that the main thread reads
keys          the nodes' CURVE keys, in files that hms.conf names
key_guard     who is let in by its key (ZAP)
sender        the socket to one node: it connects, waits, tries again
receiver      the socket that the others connect to
links         all of them, in the main thread
cluster_door  cluster messages go to the engine and come from it, under its lock
"""
