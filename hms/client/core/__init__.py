"""The client below its public objects: transport, link, requests and calls, written once."""
