"""Labels: what people say of logs after these were recorded, joined to rows by log and time.

Here: tables of labels (tables), and what a root keeps of them for each log (stored).
Elsewhere: columns of a recipe (logloom.recipe.columns), the join (logloom.transforms.rows.label_columns).
"""
