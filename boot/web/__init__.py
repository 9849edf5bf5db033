"""hms web: health, metrics and pages over HTTP, in a process of its own.

http_server   a small HTTP server with limits on all that a stranger can send or keep open
pages         what each address answers
"""
