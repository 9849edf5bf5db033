"""The client for asyncio; its public names are exported by `hms.aio`."""
