"""The command line, `hms`: one module for each group of commands, loaded when it is used."""

from boot.cli.lazy import LazyGroup
from boot.cli.target import address_and_store

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
        "boot": ("boot.cli.node:boot", "Start a node; returns when it is ready."),
        "down": ("boot.cli.node:down", "Stop a node; it drains first."),
        "status": ("boot.cli.node:status", "Show whether a node runs and what it does."),
        "config": ("boot.cli.config:config", "Check, show or write hms.conf."),
        "store": ("boot.cli.store:store", "Check a store, or save what is left of a damaged one."),
        "cluster": ("boot.cli.cluster:cluster", "The nodes that act as one; drain one of them."),
        "queue": ("boot.cli.destinations:queue", "Queues: list, create, alter, pause, purge …"),
        "topic": ("boot.cli.topics:topic", "Topics: list, create, alter, pause, purge …"),
        "transaction": ("boot.cli.transactions:transaction", "Distributed transactions in doubt."),
        "subscription": ("boot.cli.topics:subscription", "Durable subscriptions."),
        "schedule": ("boot.cli.schedules:schedule", "Scheduled and delayed messages."),
        "session": ("boot.cli.destinations:session", "List sessions."),
        "server": ("boot.cli.servers:server", "List, restart or scale server processes."),
        "service": ("boot.cli.servers:service", "List services and how their calls go."),
        "send": ("boot.cli.sending:send", "Send messages to a queue or topic."),
        "publish": ("boot.cli.sending:publish", "Publish messages to a topic."),
        "receive": ("boot.cli.receiving:receive", "Receive and acknowledge messages of a queue."),
        "subscribe": ("boot.cli.receiving:subscribe", "Receive messages of a topic."),
        "browse": ("boot.cli.receiving:browse", "Look at waiting messages; nothing is taken."),
        "call": ("boot.cli.services:call", "Call a service and print its answer."),
        "serve": ("boot.cli.services:serve", "Run the services of modules."),
        "bench": ("boot.cli.bench:bench", "Measure throughput and latency."),
        "history": ("hms.history.command:history", "Read and replay what happened (Spark)."),
        "errors": ("boot.cli.errors:errors", "What an error means and what to do."),
        "demo": ("boot.cli.demo:demo", "The whole story on real flights."),
    },
)
