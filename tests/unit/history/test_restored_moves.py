"""What a restored store makes of messages that were on their way to another node."""

from hms.history.backups.backup_restoration import _moved, _seen
from hms.records import Identity, identity
from tests.support.cluster_rig import World


def restored(node):
    """Its log goes on as that of a store which is restored as it is now."""
    engine, now_ms = node.engine, node.world.clock(node.index)
    said = identity(Identity(b"s" * 16, restored_from="b", restored_below=1 << 33))
    for record in [said, *_moved(engine, now_ms), *_seen(engine)]:
        node.log.append((record.type, b"".join(record.parts)))
    node.durable = len(node.log)
    node.boot()


def test_what_had_no_answer_waits_again_and_says_so():
    """Nobody knows whether the other node has it: the answer came after the backup, if at all."""
    world = World()
    world.link_all()
    world.settle()
    source, target = world.nodes[1], world.nodes[2]
    target.consume()
    world.tick()
    source.send(2)
    source.sync()
    sent = source.undecided()
    assert len(sent) == 2
    world.unlink(1, 2)
    before = source.life

    restored(source)

    assert source.life.store > before.store
    assert source.life.incarnation == 1
    assert source.undecided() == []
    waiting = source.queue.line.everything()
    assert [m.id for m in waiting] == sent
    assert all(source.queue.line.deliveries(m) for m in waiting)


def test_a_number_that_was_answered_after_the_backup_is_another_offer():
    """The other node keeps its answers: by that of the lost store it would not take the message,
    and the restored one would remove it as taken."""
    world = World()
    world.link_all()
    world.settle()
    source, target = world.nodes[1], world.nodes[2]
    log, durable = list(source.log), source.durable
    target.consume()
    world.tick()
    source.send(1)
    source.sync()
    world.settle()
    assert len(target.got) == 1
    world.unlink(1, 2)
    source.log, source.durable = log, durable
    source.boot()
    restored(source)
    world.link(1, 2)
    world.tick()

    source.sequence += 1
    source.send(1, body=b"after")
    source.sync()
    world.settle()

    assert [m.payload[m.head_bytes :] for m in target.got] == [b"body", b"after"]
    assert (source.held(), source.undecided()) == ([], [])


def test_a_store_that_was_in_no_cluster_gets_no_life():
    """There is nobody who could take it for another one."""
    node = World(1).nodes[1]
    node.engine.state.moves.life = 0
    assert list(_moved(node.engine, 5)) == []


def moved_before(world):
    """Three messages that the second node has, and the first one again, as it was restored."""
    world.link_all()
    world.settle()
    source, target = world.nodes[1], world.nodes[2]
    source.send(3)
    source.sync()
    log, durable = list(source.log), source.durable
    target.consume(credit=0)
    world.tick()
    assert (source.held(), len(target.held())) == ([], 3)
    world.unlink(1, 2)
    world.now_ms += 1000
    source.log, source.durable = log, durable
    source.boot()
    restored(source)
    assert source.held() == target.held()
    world.link(1, 2)
    return source, target


def test_what_the_other_node_has_already_is_dropped_when_it_comes_again():
    """With an id twice in one queue the log could not be read at the next boot."""
    world = World()
    source, target = moved_before(world)
    target.leave()
    target.consume(handle=2)
    for _ in range(5):
        world.tick()

    assert len(target.got) == len({m.id for m in target.got}) == 3
    assert (source.held(), source.undecided()) == ([], [])
    held = target.held()
    target.boot()
    assert target.held() == held


def test_what_the_restored_node_has_already_is_dropped_when_it_is_moved_back():
    """The other node gives away what it had taken before the restore."""
    world = World()
    source, target = moved_before(world)
    source.consume()
    target.leave()
    for _ in range(5):
        world.tick()

    assert len(source.got) == len({m.id for m in source.got}) == 3
    assert target.held() == []
    held = source.held()
    source.boot()
    assert source.held() == held


def test_a_publication_that_the_other_node_may_have_has_another_id_there():
    """Which of its subscriptions has it is not known, and each of them is told by ids."""
    world = World()
    world.link_all()
    world.settle()
    source, target = world.nodes[1], world.nodes[2]
    target.subscribe()
    world.tick()
    source.send(1, producer=2)
    source.sync()
    log, durable = list(source.log), source.durable
    world.settle()
    world.unlink(1, 2)
    world.now_ms += 1000
    source.log, source.durable = log, durable
    source.boot()
    restored(source)
    world.link(1, 2)
    for _ in range(3):
        world.tick()

    first, again = target.got
    assert first.id != again.id
    assert again.head().node["$OriginalMessageID"] == f"{first.id:012x}"
