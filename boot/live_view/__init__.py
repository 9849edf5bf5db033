"""hms top on a terminal: pages that a person goes through by keys, from one question a second.

sources   where looks come from: a node, or a recording
recorder  what is seen, written for later
pages     the rows and columns of each page, out of looks alone
app       the screen and its keys; needs the extra tui
dialogs   what is asked before an order, and the list of keys
"""
