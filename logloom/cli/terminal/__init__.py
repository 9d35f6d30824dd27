"""How commands print: messages, tables, standard streams."""
