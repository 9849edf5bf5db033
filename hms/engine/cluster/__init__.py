"""Several nodes that act as one: who is there, who has what, and how messages go from one to the
other. Pure state machines like the rest of the engine; the links are tpmon's.

    members     who is heard, and in which life
    planning    whom to ask for messages, to whom to push some
    words       what nodes say to one another
    moves       offers: messages that are on their way, at the node that gives them
    arriving    the same at the node that takes them
    appetite    what other nodes asked for, served as soon as it is there
    cluster     the engine's side of it all
"""
