"""HMS: transactional messaging for Python. (The names are filled in by hms/__init__.py's owner.)"""
