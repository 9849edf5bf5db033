"""The command line, `hms`: one module for each group of commands, loaded when it is used."""

import click

from hms.boot.cli.lazy import LazyGroup
from hms.boot.cli.target import address_and_store

__all__ = ["main"]

main = LazyGroup(
    name="hms",
    help="Boot and operate a node of HMS, and use it from the shell.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "obj": address_and_store,
    },
    entries={
        "boot": ("hms.boot.cli.node:boot", "Start a node; returns when it is ready."),
        "down": ("hms.boot.cli.node:down", "Stop a node; it drains first."),
        "status": ("hms.boot.cli.node:status", "Show whether a node runs and what it does."),
        "health": ("hms.boot.cli.monitoring:health", "Whether a node is live and ready."),
        "metrics": ("hms.boot.cli.monitoring:metrics", "Metrics as text for Prometheus."),
        "alert": ("hms.boot.cli.alerts:alert", "Alerts: what is wrong, and what was."),
        "log": (
            "hms.boot.cli.node_log:log",
            "The node's log: search and follow it, change its level.",
        ),
        "top": ("hms.boot.cli.top:top", "Rates and the busiest destinations, refreshed."),
        "web": ("hms.boot.cli.monitoring:web", "Health, metrics and a console over HTTP."),
        "config": ("hms.boot.cli.config:config", "Check, show or write hms.conf."),
        "store": (
            "hms.boot.cli.store:store",
            "Check a store, or save what is left of a damaged one.",
        ),
        "doctor": ("hms.boot.cli.doctor:doctor", "Whether this machine is fit for the node."),
        "capacity": ("hms.boot.cli.doctor:capacity", "What a load takes of a machine."),
        "backup": (
            "hms.boot.cli.backups:backup",
            "Backups: create, list, verify and restore them.",
        ),
        "cluster": (
            "hms.boot.cli.cluster:cluster",
            "The nodes that act as one; drain one of them.",
        ),
        "replica": (
            "hms.boot.cli.replicas:replica",
            "Copies of a node's log on two machines: begin and show them.",
        ),
        "standby": (
            "hms.boot.cli.standbys:standby",
            "Processes of this machine that wait to take over: list, show, stop.",
        ),
        "arbiter": (
            "hms.boot.cli.arbiter:arbiter",
            "What decides who leads: show its endpoints, try them.",
        ),
        "switchover": (
            "hms.boot.cli.replicas:switchover",
            "Have another replica lead, planned; the one that led follows.",
        ),
        "queue": ("hms.boot.cli.destinations:queue", "Queues: list, create, alter, pause, purge …"),
        "topic": ("hms.boot.cli.topics:topic", "Topics: list, create, alter, pause, purge …"),
        "transaction": (
            "hms.boot.cli.transactions:transaction",
            "Distributed transactions in doubt.",
        ),
        "subscription": ("hms.boot.cli.topics:subscription", "Durable subscriptions."),
        "message": (
            "hms.boot.cli.messages:message",
            "Messages that wait: list, view, move, copy, delete, expire, alter.",
        ),
        "dlq": (
            "hms.boot.cli.dead_letters:dlq",
            "Dead letters: list, show, count, return or purge them.",
        ),
        "schedule": ("hms.boot.cli.schedules:schedule", "Scheduled and delayed messages."),
        "client": ("hms.boot.cli.clients:client", "Clients: list, show, close or ban them."),
        "consumer": ("hms.boot.cli.clients:consumer", "List consumers."),
        "producer": ("hms.boot.cli.clients:producer", "List producers."),
        "outcome": (
            "hms.boot.cli.outcomes:outcome",
            "What became of a send or commit in doubt.",
        ),
        "session": ("hms.boot.cli.destinations:session", "List sessions."),
        "server": ("hms.boot.cli.servers:server", "List, restart or scale server processes."),
        "service": ("hms.boot.cli.servers:service", "List services and how their calls go."),
        "send": ("hms.boot.cli.sending:send", "Send messages to a queue or topic."),
        "publish": ("hms.boot.cli.sending:publish", "Publish messages to a topic."),
        "receive": (
            "hms.boot.cli.receiving:receive",
            "Receive and acknowledge messages of a queue.",
        ),
        "subscribe": ("hms.boot.cli.receiving:subscribe", "Receive messages of a topic."),
        "browse": ("hms.boot.cli.receiving:browse", "Look at waiting messages; nothing is taken."),
        "call": ("hms.boot.cli.services:call", "Call a service and print its answer."),
        "serve": ("hms.boot.cli.services:serve", "Run the services of modules."),
        "bench": ("hms.boot.cli.bench:bench", "Measure throughput and latency."),
        "keys": (
            "hms.boot.cli.keys:keys",
            "Key pairs of listeners and clients: create, list, rotate.",
        ),
        "user": ("hms.boot.cli.users:user", "Users of a secured node: add, change, delete …"),
        "profile": (
            "hms.boot.cli.profiles:profile",
            "Client profiles: export, check, list, show.",
        ),
        "role": ("hms.boot.cli.roles:role", "Roles: create, delete, list, show."),
        "permission": ("hms.boot.cli.roles:permission", "Permissions: grant, check, matrix …"),
        "security": (
            "hms.boot.cli.roles:security",
            "The security file of a node: check, reload, diff …",
        ),
        "audit": (
            "hms.boot.cli.audit:audit",
            "Who ordered what: list, show, verify …",
        ),
        "erase": ("hms.boot.cli.erasing:erase", "Remove a person's messages from every place."),
        "history": ("hms.history.command:history", "Read and replay what happened (Spark)."),
        "completion": (
            "hms.boot.cli.completion:completion",
            "Completion for bash, zsh and fish.",
        ),
        "man": ("hms.boot.cli.man:man", "Write the manual pages."),
        "errors": ("hms.boot.cli.errors:errors", "What an error means and what to do."),
        "demo": ("hms.boot.cli.demo:demo", "The whole story on real flights."),
    },
)
click.version_option(package_name="hybrid-messaging", message="hms %(version)s")(main)
