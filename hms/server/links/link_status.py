"""What `hms cluster status` tells of a link."""

from typing import Any

from hms.engine.cluster.members import Member
from hms.server.links.link_settings import Heard, LinkPeer
from hms.server.links.sender import LinkSender


def describe_link(
    peer: LinkPeer, member: Member, heard: Heard, sender: LinkSender, next_key: str, now: float
) -> dict[str, Any]:
    """A link as plain data."""
    silent_s = now - member.heard_ms / 1000 if member.heard_ms else None
    return {
        "node": peer.name,
        "index": peer.index,
        "address": peer.address,
        "presence": member.presence.value,
        "life": f"{member.life.store}.{member.life.incarnation}",
        "reason": member.reason,
        "last_error": member.last_error,
        "heard_s_ago": None if silent_s is None else round(silent_s, 3),
        "clock_ahead_s": heard.ahead_s,
        "frames_in": heard.frames,
        "bytes_in": heard.size_bytes,
        "frames_out": sender.sent_frames,
        "bytes_out": sender.sent_bytes,
        "pending_bytes": sender.pending_bytes,
        "refused": heard.refused + member.refused,
        "clients": list(heard.addresses),
        "next_key": next_key,
    }
