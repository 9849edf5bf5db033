"""Rules tables for dead letters, as of runmqdlq: read, checked, matched and carried out."""
