"""What every structure on the wire is made of."""

from typing import Annotated

import msgspec

U32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]
Priority = Annotated[int, msgspec.Meta(ge=-128, le=127)]
U64 = Annotated[int, msgspec.Meta(ge=0)]
"""msgpack has no larger integers."""
U63 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""What is counted on: a number behind it is one too."""
Name = Annotated[str, msgspec.Meta(max_length=255)]
MaybeGtrid = Annotated[bytes, msgspec.Meta(max_length=64)]
"""A global transaction, or none."""
Trace = Annotated[str, msgspec.Meta(max_length=600)]
"""What a tracer has to say of a call, or nothing."""
Text = Annotated[str, msgspec.Meta(max_length=16_384)]


class Wire(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """One array on the wire; new fields come last and have a default."""


class Tagged(Wire, frozen=True, tag=True):
    """A request: tagged with its class name; answered by a REPLY or an ERROR."""
