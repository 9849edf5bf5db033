"""The Python API that applications use; its public names are exported by `hms`."""
