"""Labels of logs, delivered separately and joined to rows by log and time.

Here: tables of labels (label_tables), and labels of each log in a root (stored).
Elsewhere: columns of a recipe (logloom.recipe.columns), the join (logloom.transforms.rows.label_columns).
"""
