"""hms web: health, metrics and pages over HTTP, in a process of its own.

http_server       a small HTTP server with limits on all that a stranger can send or keep open
site              what each address answers
node_link         the connection behind the metrics, shared by all who ask
console_node      pages about the node: users, audit, backups, configuration; what they begin
background_runs   commands that take longer than a page may
node_place        hms.conf as it is now
console           pages; console_orders: what they order; console_sessions: for whom
markup, style     their HTML and its style sheet
"""
