"""Several nodes that act as one: who is there, who has what, and how messages go from one to the
other. Pure state machines like the rest of the engine; the links are in hms.server.links.

    members            who is heard, and in which incarnation
    planning           whom to ask for messages, to whom to push some
    cluster_messages   what nodes say to one another
    moves, source      offers: messages that are on their way, at the node that gives them
    target             the same at the node that takes them
    demand             what other nodes asked for, served as soon as it is there
    cluster            the engine's side of it all
"""
