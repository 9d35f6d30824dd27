"""Several datasets as one: by weight, or end to end."""
