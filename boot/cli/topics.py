"""hms topic and hms subscription: the tree of topics, what they retain, who subscribes."""

import click

from hms.boot.cli.changing import add_changes
from hms.boot.cli.destinations import INNER, group
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.values import value_options
from hms.boot.counts import counted
from hms.errors.catalogue import SubscriptionNotFound

__all__ = ["subscription", "topic"]

topic = group(
    "topic",
    "Topics: list, show, create, alter, delete, pause or resume them; what they retain.",
    "The configured topics with their subscribers and counts.",
    "there is no topic",
    ("name", "topic_string", "subscriptions", "producers", "sent", "paused"),
)
subscription = group(
    "subscription",
    "Subscriptions: list, create or delete them.",
    "The subscriptions with what waits for each.",
    "there is no subscription",
    ("name", "topic", "is_durable", "is_active", "waiting", "in_flight", "owner_rights"),
)

add_changes(topic, "topic")

_SHOWN = (
    ("topic", "object", "life", "paused"),
    ("producers", "subscribers", "publishers", "matching_subscriptions"),
    ("retained", "retained_message"),
)
_SCHEME = click.option(
    "--scheme", type=click.Choice(["TOPIC", "CHARACTER"]), default="TOPIC", show_default=True
)


@topic.command()
@target_options
@table_options
@click.argument("pattern", default="#")
@_SCHEME
def tree(target: Target, pattern: str, scheme: str) -> None:
    """The topics in use that PATTERN matches: # all, X/+ one level, X/# all below."""
    found = target.administer("topic.tree", pattern=pattern, scheme=scheme)
    show_table(target, found, empty="no topic in use matches")


@topic.command()
@target_options
@value_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """One topic: who publishes, who subscribes, what is retained, which attributes it has."""
    show_values(target, target.administer("topic.show", name=name), usual=_SHOWN, inner=INNER)


@topic.command("clear-retained")
@target_options
@click.argument("name")
@click.option("--pattern", "is_pattern", is_flag=True, help="NAME has wildcards: clear many.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear_retained(target: Target, name: str, is_pattern: bool, yes: bool) -> None:
    """Drop what is retained on topic NAME; counted, and in the history."""
    if not yes:
        click.confirm(f"Drop what is retained on {name}?", abort=True, err=True)
    key = "pattern" if is_pattern else "name"
    count = target.administer("topic.clear_retained", **{key: name})
    target.say(f"{name}: {count} retained cleared", {"topic": name, "cleared": count})


@topic.command()
@target_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(target: Target, name: str, yes: bool) -> None:
    """Remove what waits for the subscribers of a topic; each is counted and in the history."""
    if not yes:
        rows = target.administer("subscription.list")
        held = sum(row["waiting"] for row in rows if row["topic"] == name)
        asked = f"Remove the {held:,} messages that wait for subscribers of {name}?"
        click.confirm(asked, abort=True, err=True)
    count = target.administer("topic.purge", name=name)
    target.say(f"{name}: {counted(count, 'message')} removed", {"topic": name, "purged": count})


@subscription.command()
@target_options
@click.argument("name")
@click.option("--topic", "topic_", required=True, help="Its topic, with wildcards if need be.")
@click.option("--queue", required=True, help="The queue that gets what it takes.")
@_SCHEME
@click.option("--selector", default="", help="Only messages that fit.")
@click.option("--correlation-id", default="", help="Of what it puts into the queue.")
@click.option("--new-only", is_flag=True, help="Without what is retained now.")
def create(
    target: Target,
    name: str,
    topic_: str,
    queue: str,
    scheme: str,
    selector: str,
    correlation_id: str,
    new_only: bool,
) -> None:
    """An administrative subscription: what is published goes into a queue until it is deleted."""
    target.administer(
        "subscription.create",
        name=name,
        topic=topic_,
        queue=queue,
        scheme=scheme,
        selector=selector,
        correlation_id=correlation_id,
        retained="NEW" if new_only else "ALL",
    )
    said = {"subscription": name, "topic": topic_, "queue": queue}
    target.say(f"{name}: {topic_} goes into {queue}", said)


@subscription.command()
@target_options
@click.argument("name")
@click.option("--topic", "topic_", default="", help="Where several topics have one of that name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(target: Target, name: str, topic_: str, yes: bool) -> None:
    """End a durable subscription with what waits for it; counted, and in the history."""
    if not yes:
        meant = [
            row
            for row in target.administer("subscription.list")
            if row["name"] == name and topic_ in ("", row["topic"])
        ]
        if not meant:
            raise SubscriptionNotFound(name=name, destination=topic_ or "any topic")
        held = sum(row["waiting"] + row["in_flight"] for row in meant)
        click.confirm(f"End {name} and discard its {held:,} messages?", abort=True, err=True)
    count = target.administer("subscription.delete", name=name, topic=topic_)
    said = {"subscription": name, "discarded": count}
    target.say(f"{name}: ended, {counted(count, 'message')} discarded", said)
