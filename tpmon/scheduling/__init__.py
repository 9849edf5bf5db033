"""The scheduler of services: which server runs which call. Sans-IO."""
