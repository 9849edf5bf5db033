"""What is durable: one Store interface, and behind it the journal (a log of our own)."""
