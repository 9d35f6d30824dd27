"""Derived columns: the functions of users, and the code that these depend on."""
