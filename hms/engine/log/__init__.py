"""Recovery, boot, the live index, compaction and paging of the log."""
