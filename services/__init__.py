"""Services that come with HMS: examples to call, to copy and to test with."""
