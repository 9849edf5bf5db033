"""The engine: one method per command. Each takes the time and the effects it may add to; a refused
command raises an HmsError and has changed nothing.

The caller holds the engine's lock, passes the records to the log in order, and releases the other
effects when the log is durable that far.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hms.engine.admin import held_places, views
from hms.engine.admin.destination_attributes import audited_of
from hms.engine.admin.message_selection import find, place_of
from hms.engine.admin.operation_slices import Progress
from hms.engine.admin.status_view import AbandonedPass
from hms.engine.cluster import cluster_operations as cluster_commands
from hms.engine.cluster.cluster import Cluster
from hms.engine.cluster.forwarding import send_all_back
from hms.engine.cluster.relaying import forget_strangers
from hms.engine.effects import Browsed, Effects, Reply
from hms.engine.flow import limits
from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.flow.open_transactions import open_bytes
from hms.engine.flow.shares import NO_OWNER
from hms.engine.flow.user_rate import UserRate
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.log import boot, compaction, paging, recovery
from hms.engine.log.live_index import SETTLING_BYTES, Block
from hms.engine.log.packed_block import BodyReader
from hms.engine.log.pinned_recovery import PinnedReader, no_pinned
from hms.engine.log.state_records import write
from hms.engine.messages import StoredMessage
from hms.engine.queue import (
    purge_slices,
    queue_send,
    relocation,
    scan_continuation,
    settlement,
    waiting_letters,
)
from hms.engine.queue.dead_letters import body_came
from hms.engine.queue.departures import forget_if_done
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.dispatch import (
    CHUNK_BYTES,
    discard,
    dispatch,
    dispatch_due,
    dispatch_rest,
    dispatching_later,
    dispatching_once,
)
from hms.engine.queue.file_references import FileMessage
from hms.engine.queue.file_rules import drop_overdue, drop_unnamed
from hms.engine.queue.in_flight_view import in_flight
from hms.engine.queue.settlement import NOTHING, Return, Said
from hms.engine.schedule import schedule_changes
from hms.engine.schedule.due_schedules import send_due
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.security.authority import Authority
from hms.engine.selector import Selector
from hms.engine.selector.selector_fields import checked_selector, selector_view
from hms.engine.session import (
    consumer_watch,
    idle_transactions,
    opening,
    outcomes,
    partial_returns,
    revoked_sends,
    service_listeners,
    temporary_destinations,
    transactions,
)
from hms.engine.session.session_objects import Connection, Producer
from hms.engine.settings import EngineSettings
from hms.engine.state import AwaitingPageIn, State
from hms.engine.topic import asking, retention, spreading, subscription_end
from hms.engine.topic.own_publication import publish_own
from hms.engine.topic.subscription_begin import (
    ConsumerRequest,
    request_again,
    search_again_some,
    search_some,
)
from hms.engine.xa import retained_state
from hms.engine.xa.association import deprived, expire
from hms.engine.xa.branch_commands import BranchCommands
from hms.errors.catalogue import IllegalState, InvalidArgument
from hms.errors.tree import FieldValue, HmsError
from hms.records import Cause, NodeEvent, Record, Snapshot, Terms, dictionary, identity, node_event
from hms.wire import operations as ops
from hms.wire.commands import Order, order
from hms.wire.frames import SendHead
from hms.wire.operations import SelectMessages
from hms.wire.outcome_tokens import Token
from hms.wire.packed_messages import FLAG_IN_FLIGHT, slice_payloads, unpack_rows

BROWSE_MAX = 1000
UNKNOWN_PLACE = "that message has left a sorted queue, and its place is not known; browse anew"
_REDEFINING = ("create", "alter", "pause", "resume", "delete")
EXPIRED_AT_ONCE = 2048
"""Messages that expire in a tick, of all places together; more of them are the next tick's."""
SWEPT_AT_ONCE = 5000
"""Places that a tick looks at for what has expired: 5 ms."""
SLOWED_MS_MIN = 20
"""So often at most those are looked at that their user's rate slows down."""
SEEN_PER_EFFORT = 16
"""So many ids are noted in the time in which one message is settled."""

__all__ = ["ConsumerRequest", "Engine", "Return", "Said"]

SECRET_BYTES = 32
"""Of what tokens are signed with."""


class Engine:
    """Queues, topics, sessions and transactions of one node."""

    def __init__(
        self, settings: EngineSettings, random: temporary_destinations.RandomBytes = bytes
    ) -> None:
        """random: of the node, for names that nobody is to guess; the default gives zeros, so that
        an engine by itself does the same in every run."""
        self._random = random
        self.state = State(settings)
        self.branches = BranchCommands(self.state)
        cluster = settings.cluster
        self.cluster = None if cluster is None else Cluster(self.state, cluster)
        self._progress: dict[int, Progress] = {}
        """Of the operations that connections ask for now, by their numbers."""
        self._swept: list[Queue | Subscription] = []
        self._is_sweeping = self._is_retrying = False
        """The places that the next tick looks at."""

    # boot

    def recovery(
        self, pinned: PinnedReader = no_pinned, read: BodyReader | None = None
    ) -> recovery.Recovery:
        """Takes the log's records, in order, before boot(); pinned: the records of a segment that
        lies behind the log; read: bytes of the log, so that batches can wait as they lie there."""
        return recovery.Recovery(self.state, pinned, read)

    def boot(
        self,
        now_ms: int,
        is_warm: bool | None,
        version: str,
        fx: Effects,
        own: tuple[int, bytes] | None = None,
    ) -> None:
        """Begin to work after recovery; is_warm None: as configured; own: the log's first offset of
        this boot and a random number of its own, None when nobody has to tell logs apart."""
        if own is not None:
            node_is_warm = self.state.settings.is_warm if is_warm is None else is_warm
            secret = self._random(SECRET_BYTES)
            booted = self.state.identity.booted(*own, is_warm=node_is_warm, secret=secret)
            write(self.state, identity(booted), fx)
        boot.boot(self.state, now_ms, is_warm, version, fx)
        known = () if self.cluster is None else self.cluster.peers
        forget_strangers(self.state, known, fx)
        if self.cluster is None:
            for queue in [*self.state.queues.values()]:
                send_all_back(self.state, queue, fx)
        if self.cluster is not None:
            self.cluster.attach(fx)

    @property
    def was_killed(self) -> bool:
        """Whether the node's last life ended without a stop; after recovery, before boot()."""
        state = self.state
        last, boots = state.last_event, state.identity.boots
        return last == "booted" or (not last and bool(boots))

    @property
    def log(self) -> bytes:
        """Which log it is, over WARM boots; see hms.records.Identity."""
        return self.state.identity.log

    @property
    def token_secret(self) -> bytes:
        """What tokens of this log are signed with; empty when it has no identity."""
        return self.state.identity.secret

    def outcome(self, asked: Token, now_ms: int, fx: Effects) -> dict[str, FieldValue]:
        """What became of a send or commit in doubt, for good."""
        self.state.at(now_ms)
        return outcomes.outcome(self.state, asked, fx)

    def tell_identity(self, fx: Effects) -> None:
        """Tell the log whose it is."""
        fx.records.append(identity(self.state.identity))

    def stopped(self, now_ms: int, fx: Effects) -> None:
        """Note in the log that the node stopped in order."""
        write(self.state, node_event(NodeEvent("stopped", self.state.at(now_ms))), fx)

    @property
    def terms(self) -> Terms:
        """Who leads the copies of this log, and how often that changed."""
        return self.state.terms

    def configured(
        self, copies: str, leader: str, now_ms: int, fx: Effects, *, is_planned: bool
    ) -> None:
        """Note in the log which copies of it count, and who leads them; is_planned: the one before
        had handed over."""
        terms = self.state.terms.led_by(leader, is_planned=is_planned)
        event = NodeEvent("configured", self.state.at(now_ms), copies=copies, terms=terms)
        write(self.state, node_event(event), fx)

    def dictionary(self) -> Record:
        """The record that opens every segment of the log."""
        state = self.state
        content = Snapshot(
            state.definitions(),
            state.ids.reserved_below,
            state.next_number,
            state.next_seq,
            state.now_ms,
            state.identity,
            state.audit.number,
            state.audit.head,
            state.terms,
        )
        return dictionary(content)

    # the log's old segments

    def live_bytes(self) -> int:
        """What the messages take that the log has to keep."""
        return self.state.blocks.live_bytes + retained_state.live_bytes(self.state)

    def owed_bytes(self) -> int:
        """What the log will yet take until these messages have left it, each by itself."""
        return SETTLING_BYTES * self.state.blocks.held_count

    def live_bytes_in(self, segment: int) -> int:
        """What messages take there that the log has to keep; every thread may ask."""
        return self.state.blocks.live_bytes_in(segment)

    @property
    def has_pinned(self) -> bool:
        """Something lies behind the log; every thread may ask."""
        return bool(self.state.blocks.pinned)

    @property
    def emptied_count(self) -> int:
        """How often the last live message of a segment has left it; every thread may ask."""
        return self.state.blocks.emptied

    def pinned_before(self, segment: int) -> list[int]:
        """The pinned segments with something live in them of which that segment, or an older one,
        tells."""
        blocks = self.state.blocks
        told = sorted(blocks.pinned.items())
        return [
            number for number, told_in in told if told_in <= segment and blocks.has_live(number)
        ]

    def pinned_segments(self) -> list[int]:
        """The segments behind the log with live messages that it tells of."""
        return [number for number in sorted(self.state.blocks.pinned) if self._has_live(number)]

    def emptied(self) -> list[int]:
        """The pinned segments that nothing is live in any more; each is named once."""
        pinned = self.state.blocks.pinned
        gone = [number for number in sorted(pinned) if not self._has_live(number)]
        for number in gone:
            del pinned[number]
        return gone

    def _has_live(self, segment: int) -> bool:
        return self.state.blocks.has_live(segment)

    def blocks_in(self, segment: int) -> list[Block]:
        """What pin() takes of a segment, piece by piece."""
        return self.state.blocks.blocks_in(segment)

    def pin(self, segment: int, part: int, blocks: Sequence[Block], fx: Effects) -> None:
        """Tell the log again of what is live in these blocks, which stays where it lies."""
        rest = self.state.settled_rest
        if rest:  # the log says already that these have left
            rest.settle_now([m for block in blocks for m in block.lying() if m is not None])
        compaction.pin(self.state, segment, part, blocks, fx)

    def next_to_move(self, segment: int) -> list[StoredMessage]:
        """Some of the messages for whose sake the log keeps that segment, or older ones."""
        return compaction.next_to_move(self.state, segment)

    def move(
        self, segment: int, found: Sequence[tuple[StoredMessage, bytes]], now_ms: int, fx: Effects
    ) -> None:
        """Tell the log again of messages, given with head and body, that are there still."""
        self.state.at(now_ms)
        self.state.settled_rest.settle_now([message for message, _ in found])
        compaction.move(self.state, segment, found, fx)

    def moved_safely(self, messages: Sequence[StoredMessage]) -> None:
        """Messages that were moved lie where they can be read: their bodies may leave memory."""
        if paging.is_full(self.state):
            paging.page_out(self.state, messages)

    def remembered(self) -> list[tuple[int, int]]:
        """Clients and the handles of theirs of which an old segment knew what was taken."""
        return self.state.memories.keys()

    def restate(self, keys: Sequence[tuple[int, int]], fx: Effects) -> None:
        """Tell the log again what else an old segment knew."""
        compaction.restate(self.state, keys, fx)

    # bodies that are in the log only

    def take_awaiting_page_in(self) -> list[AwaitingPageIn]:
        """Messages that wait for their bodies; the caller reads them once they are durable."""
        awaiting_page_in, self.state.awaiting_page_in = self.state.awaiting_page_in, []
        return awaiting_page_in

    def bodies_came(
        self, found: Sequence[tuple[AwaitingPageIn, bytes]], now_ms: int, fx: Effects
    ) -> None:
        """Heads and bodies that messages waited for."""
        self.state.at(now_ms)
        for waiting, payload in found:
            if waiting.relocation is not None:
                relocation.came_in(self.state, waiting, payload, fx)
                continue
            dispatch(self.state, body_came(self.state, waiting, payload, fx), fx)

    def obey(self, authority: Authority) -> None:
        """Ask this one, from now on, what users may have."""
        self.state.space.authority = authority
        self.state.space.changed()

    # connections and what they open

    def open_connection(
        self, number: int, uid: int, client_id: str, user: str, request_timeout_ms: int = 0
    ) -> int | None:
        """A client said hello. The number of the connection that it had before and that the caller
        closes first, or None when the new one is open."""
        for connection in self.state.connections.values():
            if connection.uid == uid:
                return connection.number
        made = opening.open_connection(self.state, number, uid, client_id, user)
        made.request_timeout_ms = request_timeout_ms
        temporary_destinations.owner_came(self.state, uid)
        return None

    def close_connection(
        self, number: int, now_ms: int, fx: Effects, *, is_final: bool = False
    ) -> None:
        """The connection ended, or was lost: nobody knows what the application saw. is_final: its
        client said good-bye and does not come back."""
        self.state.at(now_ms)
        self.give_up(number)
        self.branches.connection_ended(number)
        found = self.state.connections.get(number)
        opening.close_connection(self.state, number, Return.LOST, fx)
        if found is not None:
            held_places.end_holds(self.state, found, fx)
            temporary_destinations.owner_left(self.state, found.uid, fx, is_final=is_final)

    # what takes more than one hold of the lock: each of these does a slice, and tells whether to
    # call it again before the command (partial_returns.py)

    def number_of(self, uid: int) -> int | None:
        """The connection of a client."""
        found = (c.number for c in self.state.connections.values() if c.uid == uid)
        return next(found, None)

    def close_some(self, number: int, now_ms: int, fx: Effects) -> bool:
        """Before close_connection()."""
        self.state.at(now_ms)
        connection = self.state.connections.get(number)
        if connection is None:
            return False
        return self._is_still(connection) or partial_returns.close_some(self.state, connection, fx)

    def _is_still(self, connection: Connection) -> bool:
        """Whether it comes again, as it may change a subscription; see TopicSpace.hold_still()."""
        space = self.state.space
        if space.still is None:
            return False
        works = (session.work for session in connection.sessions.values())
        return space.is_still(works, self.state.now_ms)

    def end_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before close_session()."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        if self._is_still(session.connection):
            return True
        return partial_returns.end_some(self.state, session, Return.RELEASED, fx)

    def shut_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before close_consumer()."""
        self.state.at(now_ms)
        consumer = self.state.consumer(self.state.connection(connection), handle)
        if self._is_still(consumer.connection):
            return True
        return partial_returns.shut_some(self.state, consumer, fx)

    def roll_back_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before rollback()."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        return partial_returns.roll_back_some(self.state, session, fx)

    @property
    def has_crowds(self) -> bool:
        """Something may be published to so many that send_some() is asked first."""
        space = self.state.space
        is_one = len(space.subscriptions) > spreading.SPREAD_MIN or space.selecting_count > 0
        return is_one or bool(self.state.spreads.waiting)

    def send_some(
        self, connection: int, head: SendHead, pack: memoryview, now_ms: int, fx: Effects
    ) -> bool:
        """Before send(): of what is on its way to very many subscriptions, or who they are, or what
        their selectors say of it."""
        state = self.state
        producer = state.connection(connection).producers.get(head.producer)
        if producer is None or not isinstance(producer.destination, Topic):
            return False
        state.at(now_ms)
        if spreading.send_some(state, producer, fx):
            return True
        if producer.session.is_transacted:
            return False
        first, count, is_persistent = head.first_sequence, head.message_count, head.is_persistent
        return asking.ask_send(state, producer, first, count, is_persistent, pack, fx)

    def commit_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before commit()."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        if self.state.spreads and session.work.sends:
            spreading.spread_some(self.state, fx)
            return True
        return session.is_transacted and transactions.ready_some(self.state, session.work, fx)

    def recover_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before recover()."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        return not session.is_transacted and partial_returns.recover_some(self.state, session, fx)

    def open_some(
        self, connection: int, request: ConsumerRequest, now_ms: int, fx: Effects
    ) -> bool:
        """Before open_consumer()."""
        self.state.at(now_ms)
        owner = self.state.connection(connection)
        if request.kind != "topic":
            return False
        if self._is_still(owner):
            return True
        with self.state.shares.acting_for(owner.owner):
            if opening.replace_some(self.state, owner, request, fx):
                return True
        return search_some(self.state, owner, request, fx)

    def request_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before request_retained()."""
        self.state.at(now_ms)
        consumer = self.state.consumer(self.state.connection(connection), handle)
        return search_again_some(self.state, consumer, fx)

    def described(self, asked: Order) -> dict[str, Any]:
        """The attributes of the destination that an order makes, changes or ends, as they are now;
        {} when there is none, and of other orders."""
        kind, _, change = asked.command.name.partition(".")
        if change not in _REDEFINING or kind not in ("queue", "topic"):
            return {}
        name = getattr(asked.arguments, "name", "")
        found: Queue | Topic | None = self.state.queues.get(name)
        if kind == "topic":
            found = self.state.topics.get(name)
        return {} if found is None else audited_of(found)

    def operate_some(self, connection: int, asked: Order, now_ms: int, fx: Effects) -> bool:
        """Before operate()."""
        self.state.at(now_ms)
        if self.cluster is not None:
            self.cluster.check_command(asked.command.name, asked.arguments)
        progress = self._progress.get(connection)
        if progress is None or progress.asked is not asked:
            progress = self._progress[connection] = Progress(self.state, asked, connection)
        return progress.go_on(self.state, fx)

    def done_so_far(self, connection: int) -> int:
        """How much an operation has discarded that is done in slices."""
        found = self._progress.get(connection)
        return 0 if found is None else found.count

    def give_up(self, connection: int) -> None:
        """An operation that is done in slices is not gone on with."""
        progress = self._progress.pop(connection, None)
        if progress is not None:
            progress.close()
        purge_slices.lift_ending(self.state, connection)

    def poll_some(self, connection: int, handle: int, now_ms: int, fx: Effects) -> bool:
        """Before poll()."""
        self.state.at(now_ms)
        place = self.state.consumer(self.state.connection(connection), handle).place
        dispatch_due(self.state, fx)
        spreading.give_now(self.state, place)
        dispatch(self.state, place, fx)
        next_ms = place.line.delayed.next_ms()
        is_due = next_ms is not None and next_ms <= self.state.now_ms
        return is_due or id(place) in self.state.outgoing.rest

    def open_session(
        self, connection: int, handle: int, ack_mode: int, kind: str, xid: bytes = b""
    ) -> int:
        """kind: "", "transacted", "asynchronous" or "xa"; xid: of the branch that it worked in when
        its connection was lost. The session's last commit that took effect."""
        owner = self.state.connection(connection)
        return opening.open_session(self.state, owner, handle, ack_mode, kind, xid)

    def is_remembered(self, connection: int, handle: int) -> bool:
        """Whether a session's last commit is known for certain, 0 for none included."""
        state = self.state
        return state.session(state.connection(connection), handle).is_remembered

    def close_session(
        self,
        connection: int,
        handle: int,
        now_ms: int,
        fx: Effects,
        *,
        is_doubtful: bool = False,
    ) -> None:
        """Close a session in order: what the application saw was settled before."""
        self.state.at(now_ms)
        owner = self.state.connection(connection)
        opening.close_session(
            self.state, owner, handle, Return.RELEASED, fx, is_doubtful=is_doubtful
        )

    def open_producer(
        self,
        connection: int,
        handle: int,
        session: int,
        kind: str,
        destination: str,
        topic: str = "",
        fx: Effects | None = None,
        sent_before: int = 0,
    ) -> tuple[int, str, bool]:
        """The highest sequence number taken from this producer so far; the topic on which it
        publishes (CT-06), if it does; whether what it sent before may be forgotten. sent_before:
        the last number that its client has used."""
        owner, state = self.state.connection(connection), self.state
        where, fx = (kind, destination, topic), fx or Effects()
        with state.shares.acting_for(owner.owner):
            made = opening.open_producer(state, owner, handle, session, where, fx, sent_before)
        memory = made.memory
        return memory.last_sequence, made.topic, 0 < sent_before <= memory.forgotten

    def create_temporary(self, connection: int, kind: str, fx: Effects) -> str:
        """A queue or topic for this connection alone (F-C6); its name."""
        owner = self.state.connection(connection)
        with self.state.shares.acting_for(owner.owner):
            made = temporary_destinations.create_temporary(
                self.state, owner, kind, self._random, fx
            )
            return made.name

    def delete_temporary(self, connection: int, kind: str, name: str, fx: Effects) -> None:
        """End a temporary destination before its connection ends."""
        owner = self.state.connection(connection)
        temporary_destinations.delete_temporary(self.state, owner, kind, name, fx)

    def batch_max(self, connection: int, handle: int) -> tuple[int, int] | None:
        """How many messages and bytes a producer should send at once; None: as it likes."""
        producer = self.state.producer(self.state.connection(connection), handle)
        return limits.batch_max(self.state, producer)

    def close_producer(
        self,
        connection: int,
        handle: int,
        fx: Effects | None = None,
        *,
        is_doubtful: bool = False,
    ) -> None:
        """Close a producer in order."""
        owner = self.state.connection(connection)
        is_final = not is_doubtful
        opening.close_producer(self.state, owner, handle, is_final=is_final, fx=fx or Effects())

    def open_consumer(
        self, connection: int, request: ConsumerRequest, correlation: int, now_ms: int, fx: Effects
    ) -> None:
        """Open a consumer; the reply goes before its first delivery."""
        self.state.at(now_ms)
        owner = self.state.connection(connection)
        at = len(fx.out)
        with self.state.shares.acting_for(owner.owner):
            made = opening.open_consumer(self.state, owner, request, fx)
        fx.out.insert(at, Reply(connection, correlation, views.describe_opened(made)))

    def close_consumer(self, connection: int, handle: int, now_ms: int, fx: Effects) -> None:
        """Close a consumer in order."""
        self.state.at(now_ms)
        consumer = self.state.consumer(self.state.connection(connection), handle)
        opening.close_consumer(self.state, consumer, fx)

    def unsubscribe_some(
        self, connection: int, asked: tuple[str, str, str, str], now_ms: int, fx: Effects
    ) -> bool:
        """Before unsubscribe(). asked: destination, name, topic and scheme."""
        self.state.at(now_ms)
        if self._is_still(self.state.connection(connection)):
            return True
        return subscription_end.unsubscribe_some(self.state, connection, asked, fx)

    def unsubscribe(
        self,
        destination: str,
        name: str,
        now_ms: int,
        fx: Effects,
        topic: str = "",
        scheme: str = "",
    ) -> None:
        """End a durable subscription."""
        self.state.at(now_ms)
        subscription_end.unsubscribe(self.state, destination, name, topic, scheme, fx)

    def revoke_consumer(self, connection: int, handle: int, now_ms: int, fx: Effects) -> None:
        """Close a consumer that is not allowed any more; what is out to it returns, and no attempt
        is counted. A transaction, local or a branch, that may have received of it is rolled back:
        its sends must not take effect without its receipts."""
        self.state.at(now_ms)
        consumer = self.state.consumer(self.state.connection(connection), handle)
        idle_transactions.end_deprived(self.state, consumer, fx)
        deprived(self.state, consumer, fx)
        opening.remove_consumer(self.state, consumer, Return.LOST, fx)

    def producers_at_work(self) -> dict[int, dict[Producer, None]]:
        """By connection, the producers whose sends have had no effect yet."""
        return revoked_sends.producers_at_work(self.state)

    def revoke_sends(self, denied: Mapping[Producer, HmsError], now_ms: int, fx: Effects) -> None:
        """What these producers have sent and is not allowed any more has no effect, unless it is
        prepared; why not, of each."""
        self.state.at(now_ms)
        revoked_sends.revoke(self.state, denied, fx)

    def watch_no_more(self, connection: int, kind: str, destination: str) -> None:
        """It is not told of that destination's consumers any more."""
        owner = self.state.connection(connection)
        consumer_watch.unwatch(self.state, owner, kind, destination)

    def request_retained(self, connection: int, handle: int, now_ms: int, fx: Effects) -> int:
        """Give a subscriber what is retained, again (SU-19, SU-22); how many."""
        self.state.at(now_ms)
        owner = self.state.connection(connection)
        place = self.state.consumer(owner, handle).place
        if not isinstance(place, Subscription):
            detail = f"{place.name} is a queue; only topics retain"
            raise IllegalState(what="request_retained()", detail=detail)
        return request_again(self.state, owner, handle, place, fx)

    def poll(
        self, connection: int, handle: int, correlation: int, now_ms: int, fx: Effects
    ) -> None:
        """Deliver to a consumer what it may have now, also what is due since the last tick; the
        reply comes behind that, when its selector has looked at everything."""
        self.state.at(now_ms)
        consumer = self.state.consumer(self.state.connection(connection), handle)
        dispatch_due(self.state, fx)
        spreading.give_now(self.state, consumer.place)
        dispatch(self.state, consumer.place, fx)
        scan_continuation.answer(consumer, Reply(connection, correlation), fx)

    def watch(self, connection: int, kind: str, destination: str) -> bool:
        """Tell a connection of a destination's first and last consumer; whether it has one now."""
        owner = self.state.connection(connection)
        with self.state.shares.acting_for(owner.owner):
            return consumer_watch.watch(self.state, owner, kind, destination)

    # messages

    def send(
        self,
        connection: int,
        correlation: int,
        producer: int,
        first_sequence: int,
        count: int,
        is_persistent: bool,
        pack: memoryview,
        now_ms: int,
        fx: Effects,
    ) -> None:
        """Take a batch whole, or refuse it whole."""
        state = self.state
        state.at(now_ms)
        owner = state.connections[connection]
        queue_send.send(
            state, owner, correlation, producer, first_sequence, count, is_persistent, pack, fx
        )

    def publish_own(
        self, topic: str, properties: Mapping[str, str | int], text: str, now_ms: int, fx: Effects
    ) -> bool:
        """Something of the node's own; whether somebody gets it."""
        self.state.at(now_ms)
        return publish_own(self.state, topic, properties, text, fx)

    def is_repeated(self, connection: int, producer: int, first_sequence: int) -> bool:
        """Whether send() would find that it has this batch already."""
        return queue_send.is_repeated(self.state.connection(connection), producer, first_sequence)

    def acknowledge(
        self,
        connection: int,
        handle: int,
        epoch: int,
        spans: Sequence[tuple[int, int]],
        now_ms: int,
        fx: Effects,
    ) -> int:
        """Acknowledge ranges of message ids; how many of them were out."""
        state = self.state
        consumer = state.connections[connection].consumers.get(handle)
        if consumer is None or consumer.epoch != epoch:
            return 0
        state.at(now_ms)
        count = settlement.acknowledge_out(state, consumer, spans, fx)
        state.outgoing.effort += count
        if consumer.has_left:
            forget_if_done(consumer)
        return count

    def give_back(
        self,
        connection: int,
        handle: int,
        epoch: int,
        spans: Sequence[tuple[int, int]],
        how: Return,
        now_ms: int,
        fx: Effects,
        delay_ms: int | None = None,
        said: Said = NOTHING,
    ) -> int:
        """Give ranges of message ids back as FAILED, REJECTED or RELEASED; how many of them were
        out. delay_ms None: as consumer and destination have it; said: why."""
        consumer = self.state.connection(connection).consumers.get(handle)
        if consumer is None or consumer.epoch != epoch:
            return 0
        self.state.at(now_ms)
        messages = settlement.take_out(consumer, spans)
        if how is Return.REJECTED or delay_ms is not None:
            messages += settlement.take_from_work(consumer, spans)
        if how is Return.RELEASED:
            delay_ms = settlement.early_ms(self.state, consumer.place, messages)
        elif delay_ms is None:
            delay_ms = consumer.redelivery_delay_ms or consumer.place.redelivery_delay_ms
        settlement.give_back(self.state, consumer.place, messages, how, fx, delay_ms, said)
        dispatch(self.state, consumer.place, fx)
        self.state.outgoing.effort += len(messages)
        forget_if_done(consumer)
        return len(messages)

    def seen(
        self, connection: int, handle: int, epoch: int, spans: Iterable[tuple[int, int]]
    ) -> None:
        """The application has these; its session is about to begin again, or it to be closed."""
        consumer = self.state.connection(connection).consumers.get(handle)
        if consumer is not None and consumer.epoch == epoch:
            self.state.outgoing.effort = len(consumer.out) // SEEN_PER_EFFORT
            settlement.note_seen(consumer, spans)

    def slice_of(
        self, connection: int, handle: int, epoch: int, spans: Sequence[tuple[int, int]]
    ) -> tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]] | None]:
        """What of the ranges is to be settled under one hold of the lock, and what is left then."""
        consumer = self.state.connections[connection].consumers.get(handle)
        if consumer is None or consumer.epoch != epoch or len(consumer.out) <= settlement.SLICE:
            return spans, None
        return settlement.slice_of(consumer, spans)

    def credit(
        self,
        connection: int,
        handle: int,
        epoch: int,
        count: int,
        now_ms: int,
        fx: Effects,
        size_bytes: int = 0,
    ) -> None:
        """A consumer's application took so many messages, or bytes of them: others may follow."""
        consumer = self.state.connection(connection).consumers.get(handle)
        if consumer is None or consumer.epoch != epoch or consumer.listener:
            return
        self.state.at(now_ms)
        limit = self.state.settings.prefetch_max
        consumer.credit = min(consumer.credit + count, limit)
        consumer.room_bytes = min(consumer.room_bytes + size_bytes, consumer.window_bytes)
        dispatch(self.state, consumer.place, fx)

    def dispatching_once(self, fx: Effects) -> AbstractContextManager[None]:
        """For a command of many parts: messages go out at its end, not behind each of them."""
        return dispatching_once(self.state, fx)

    def dispatching_later(
        self, places: dict[int, Queue | Subscription]
    ) -> AbstractContextManager[None]:
        """The same for a command that takes more than one hold of the lock: `places` notes where
        messages are to go out at its end."""
        return dispatching_later(self.state, places)

    def dispatch(self, places: Iterable[Queue | Subscription], fx: Effects) -> None:
        """Messages go out at these places."""
        for place in places:
            dispatch(self.state, place, fx)

    def hold_deliveries(self) -> None:
        """Nothing goes out from here on, anywhere."""
        self.state.outgoing.is_paused = True

    def resume_deliveries(self, fx: Effects) -> None:
        """What waits goes out again: as much as one command may, the rest with ticks."""
        outgoing = self.state.outgoing
        outgoing.is_paused = False
        for place in self.state.every_place():
            if place.consumers and place.line.waiting_count:
                outgoing.rest[id(place)] = place
        dispatch_rest(self.state, fx)

    def take_effort(self) -> int:
        """About how many messages the last command has touched, or consumers it has asked."""
        outgoing, looking = self.state.outgoing, self.state.looking
        effort = outgoing.effort + looking.asked
        outgoing.effort = looking.asked = 0
        return effort

    def listener_done(
        self,
        connection: int,
        handle: int,
        messages: Sequence[StoredMessage],
        how: Return | None,
        delay_ms: int | None,
        now_ms: int,
        fx: Effects,
        said: Said = NOTHING,
    ) -> None:
        """A listener's service returned (None: acknowledge), or gives its message back; delay_ms
        None: as consumer and destination have it; said: why."""
        self.state.at(now_ms)
        service_listeners.done(self.state, connection, handle, messages, how, delay_ms, fx, said)

    def listener_credit(
        self, connection: int, handle: int, credit: int, now_ms: int, fx: Effects
    ) -> int | None:
        """So many messages may be out to a listener; how many it is given now, None when there is
        no such listener."""
        self.state.at(now_ms)
        return service_listeners.credit(self.state, connection, handle, credit, fx)

    # transactions

    def commit(
        self, connection: int, handle: int, correlation: int, number: int, now_ms: int, fx: Effects
    ) -> None:
        """Make a session's transaction effective."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        transactions.commit(self.state, session, correlation, number, fx)

    def rollback(
        self,
        connection: int,
        handle: int,
        correlation: int,
        now_ms: int,
        fx: Effects,
        said: Said = NOTHING,
    ) -> None:
        """Drop a session's sends, give its receipts back; said: why."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        transactions.rollback(self.state, session, correlation, fx, said)

    def recover(
        self, connection: int, handle: int, correlation: int, now_ms: int, fx: Effects
    ) -> None:
        """Restart a session's deliveries at the oldest unacknowledged message."""
        self.state.at(now_ms)
        session = self.state.session(self.state.connection(connection), handle)
        transactions.recover(self.state, session, correlation, fx)

    # looking and operating

    def browse(
        self,
        connection: int,
        correlation: int,
        queue: str,
        selector_text: str,
        is_oldest_first: bool,
        after: int,
        count_max: int,
        fx: Effects,
        *,
        with_in_flight: bool = False,
    ) -> None:
        """A page of waiting messages, newest first unless told otherwise (F-G1); on request with
        those that are in flight, flagged. One that has looked at many ends early, empty perhaps."""
        selector = checked_selector(selector_text)
        place = self.state.destination("queue", queue)
        assert isinstance(place, Queue)
        is_newest_first = not is_oldest_first
        out = in_flight(self.state, place) if with_in_flight else {}
        line, browsed = place.line, self.state.browsed
        begin = (line.place_of(after, out.values()) or browsed.find(line, after)) if after else None
        if after and begin is None and line.sort is not None:
            raise InvalidArgument(what="after", detail=UNKNOWN_PLACE)
        messages = line.page(after, out.values(), begin, is_newest_first=is_newest_first)
        page, last, has_more = _page(messages, selector, min(count_max, BROWSE_MAX))
        if last is not None:
            browsed.note(line, last)
        counts = [line.deliveries(m) for m in page]
        flags = [FLAG_IN_FLIGHT if m.id in out else 0 for m in page] if out else None
        fx.must_wait = True
        position = after if last is None else last.seq
        fx.out.append(Browsed(connection, correlation, page, counts, position, has_more, flags))

    def browse_place(
        self,
        connection: int,
        correlation: int,
        place: str,
        selector: str,
        after: int,
        count_max: int,
        now_ms: int,
        fx: Effects,
    ) -> None:
        """A page of what a place has, delayed ones too and nothing that is in flight, as it
        arrived (F-M3)."""
        self.state.at(now_ms)
        found = place_of(self.state, place)
        limit = min(count_max, BROWSE_MAX)
        asked = SelectMessages(place, selector=selector, after=after, limit=limit)
        chunk = find(self.state, found, asked)
        files = (m.file for m in chunk.messages if isinstance(m, FileMessage))
        self.state.connection(connection).files_shown = frozenset(files)
        page, line = chunk.messages, None if found.place is None else found.place.line
        counts = [] if line is None else [line.deliveries(m) for m in page]
        fx.must_wait = True
        position = chunk.position or after
        fx.out.append(
            Browsed(connection, correlation, page, counts, position, chunk.has_more, None)
        )

    def administer(
        self, verb: str, arguments: Mapping[str, FieldValue], now_ms: int, fx: Effects
    ) -> Any:
        """An operation by its verb and plain arguments, and its answer, as plain data."""
        return self.operate(order(verb, arguments), now_ms, fx)

    def operate(self, asked: Order, now_ms: int, fx: Effects, connection: int = 0) -> Any:
        """What an operator asks or orders of the engine, over a connection, and its answer, as
        plain data; slices of it may have been done for that connection."""
        self.state.at(now_ms)
        verb, arguments = asked.command.name, asked.arguments
        if verb.startswith(cluster_commands.PREFIX):
            return cluster_commands.operate(self.state, self.cluster, verb, arguments)
        if self.cluster is not None:
            self.cluster.check_command(verb, arguments)
        if verb in (held_places.HOLD, held_places.RELEASE):
            return held_places.operate(self.state, connection, verb, arguments, fx)
        progress = self._progress.pop(connection, None)
        answer = None if progress is None else progress.answer
        if answer is None:
            by = self.state.connections.get(connection)
            secured = self.state.space.authority is not None
            self.state.operator = connection
            self.state.space.made_by = by.user if secured and by is not None else ""
            with self.state.shares.acting_for(NO_OWNER if by is None else by.owner):
                answer = self._operated(verb, arguments, fx)
            if progress is not None and progress.count:
                answer += progress.count
        if self.cluster is not None:
            self.cluster.administered(verb, arguments, fx)
        return answer

    def _operated(self, verb: str, arguments: ops.Operation, fx: Effects) -> Any:
        if isinstance(arguments, ops.MoveMessages | ops.ReturnLetters) and arguments.node:
            return cluster_commands.forward(self.cluster, arguments, fx)
        if isinstance(arguments, ops.ForwardedMessages):
            return cluster_commands.show_forwarded(self.cluster, arguments)
        return views.operate(self.state, verb, arguments, fx)

    def abandoned(self, now_ms: int) -> AbandonedPass:
        """Looks for durable subscriptions that pile messages up, and nobody receives (F-H5)."""
        self.state.at(now_ms)
        return AbandonedPass(self.state)

    def slow_down(self, connection: int, rate: UserRate) -> None:
        """Hold a connection to a rate from now on. One whose sends wait already goes on as it
        began: they stand in other lines, and nobody may overtake them."""
        found = self.state.connection(connection)
        lines = self.state.blocked.lines.values()
        if found.rate is None and not any(
            one.session.connection is found for line in lines for one in line
        ):
            found.rate = rate

    def limit_in_flight(self, connection: int, limit: BytesInFlight) -> None:
        """Hold a connection's consumers to a limit from now on."""
        found = self.state.connection(connection)
        if found.in_flight is None:
            consumers = (one for session in found.sessions.values() for one in session.consumers)
            limit.size_bytes += sum([one.out_bytes for one in consumers])
            found.in_flight, self.state.outgoing.is_limited = limit, True

    def schedule(
        self,
        connection: int,
        correlation: int,
        producer: int,
        plan: Plan,
        pack: memoryview,
        now_ms: int,
        fx: Effects,
        *,
        may_replace: bool,
        request: tuple[int, int] = (0, 0),
        refused: str | None = None,
    ) -> None:
        """Send a message again and again from now on; the pack has this one. request: the handle
        and sequence by which its client knows it again. refused: why the log takes none now."""
        self.state.at(now_ms)
        by = self.state.producer(self.state.connection(connection), producer)
        (row,) = unpack_rows(pack, 1)
        (payload,) = slice_payloads(pack, [row])
        asked = schedule_changes.Request(*request)
        made = schedule_changes.add(
            self.state, by, plan, row, payload, asked, fx, may_replace=may_replace, refused=refused
        )
        fx.out.append(Reply(connection, correlation, made))

    def files_found(self, found: Sequence[str], now_ms: int) -> list[str]:
        """At boot, after recovery: files that are there in full; those that messages name and that
        are not there."""
        files = self.state.files
        files.count(now_ms)
        for file in found:
            files.add(file, now_ms)
        return files.missing()

    def file_stored(self, file: str, now_ms: int) -> None:
        """A file is there in full, and synced."""
        self.state.files.add(file, self.state.at(now_ms))

    def count_files(self, fx: Effects) -> None:
        """Messages that named files are gone; the files too if they were the last."""
        drop_unnamed(self.state, self.state.files.count(self.state.now_ms), fx)

    @property
    def is_behind(self) -> bool:
        """Whether tick() has more to look at, or to deliver, as soon as others had their turn."""
        return self.is_urgent or bool(self._swept) or self.state.looking.is_any

    @property
    def is_urgent(self) -> bool:
        """The same of what somebody may wait for, so that the next tick comes behind what waits
        now."""
        state = self.state
        is_begun = state.unfinished or state.awaiting_ids
        return bool(is_begun or state.looking.is_any or state.outgoing.may_go_on())

    def due_ms(self, *, is_prompt: bool = False) -> int | None:
        """When tick() has something to do; None: not before something happens. is_prompt: the
        caller looks at is_behind."""
        state, soonest = self.state, self.state.branches.soonest_ms
        times = [] if soonest is None else [soonest]
        if state.due:
            times.append(state.due[0][0])
        if state.blocked.lines and (blocked_ms := state.blocked.due_ms) is not None:
            times.append(blocked_ms)
            soonest_ms = state.now_ms + SLOWED_MS_MIN
            times += [max(soonest_ms, r.free_at_ms) for r in state.blocked.slowed.values()]
        if state.schedules is not None and (next_ms := state.schedules.due_ms()) is not None:
            times.append(next_ms)
        if not is_prompt and self.is_urgent:
            times.append(state.now_ms)
        return min(times, default=None)

    @property
    def has_blocked(self) -> bool:
        """Whether sends wait for room: retry_blocked() is to be called whenever something has
        changed."""
        return bool(self.state.blocked.lines)

    def retry_blocked(self, now_ms: int, fx: Effects) -> None:
        """Let the sends go that waited for room, and for which there is room now."""
        self.state.at(now_ms)
        self._retry(fx)

    def _retry(self, fx: Effects) -> None:
        state, blocked = self.state, self.state.blocked
        blocked.retry(fx, lambda: state.outgoing.effort + state.looking.asked)

        def goes_on(_: Effects) -> bool:
            self._is_retrying = blocked.has_more
            return self._is_retrying

        if blocked.has_more and not self._is_retrying:
            self._is_retrying = True
            state.unfinished.append(goes_on)

    def tick(self, now_ms: int, fx: Effects, refused: str | None = None) -> None:
        """Release what is due, remove what has expired (F-C9, F-D2, F-D4); refused: why the store
        takes nothing new now."""
        self.state.at(now_ms)
        self.state.open_work_bytes = open_bytes(self.state)
        if refused is None:
            self._retry(fx)
        else:
            self.state.blocked.has_more = False
        self.state.blocked.expire(self.state.now_ms, fx)
        scan_continuation.go_on(self.state, fx)
        dispatch_rest(self.state, fx)
        self.state.go_on(fx)
        waiting_letters.go_on(self.state, fx)
        dispatch_due(self.state, fx)
        if not self.state.spreads:  # what is published now would only stand behind them
            send_due(self.state, refused, fx)
        expire(self.state, fx)
        state = self.state
        left, places = EXPIRED_AT_ONCE, self._next_places()
        for at, place in enumerate(places):
            due = place.line.due(state.now_ms, left)
            left -= len(due)
            for message in due:
                place.line.remove(message)
            if due and place is state.space.place:
                retention.forget_expired(state, due)
            discard(state, place, due, Cause.EXPIRED, fx)
            settlement.bury_incomplete(state, place, fx)
            if left <= 0:
                self._swept[:0] = places[at:]  # this one may have more
                self._sweep_on()
                break
        subscription_end.end_overdue(state, fx)
        if state.files.since_ms:
            drop_overdue(state, fx)
        temporary_destinations.end_idle(state, fx)
        idle_transactions.end_idle(state, fx)
        state.space.prune(state.now_ms)

    def _sweep_on(self) -> None:
        """What expires yet is the next tick's, behind what waits now."""

        def goes_on(_: Effects) -> bool:
            self._is_sweeping = bool(self._swept)
            return self._is_sweeping

        if not self._is_sweeping:
            self._is_sweeping = True
            self.state.unfinished.append(goes_on)

    def _next_places(self) -> list[Queue | Subscription]:
        """Those whose expiry it is the turn of: all of them, or some, and then the next tick comes
        as soon as others had their turn."""
        places = self._swept or self.state.every_place()
        self._swept = places[SWEPT_AT_ONCE:]
        return places[:SWEPT_AT_ONCE]


def _page(
    messages: Iterable[StoredMessage], selector: Selector | None, count_max: int
) -> tuple[list[StoredMessage], StoredMessage | None, bool]:
    """What matches, the last one that was looked at, and whether more follow."""
    page: list[StoredMessage] = []
    room, steps, last = CHUNK_BYTES, LOOK_STEPS, None
    for message in messages:
        if selector is not None:
            if steps <= 0:
                return page, last, True
            steps -= selector.price.of(1, message.head_bytes)
            if selector.matches(selector_view(message, selector.names)) is not True:
                last = message
                continue
        room -= message.length
        if len(page) == count_max or (page and room < 0):
            return page, last, True
        page.append(message)
        last = message
    return page, last, False
