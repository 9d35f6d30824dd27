"""What a recipe means for given logs: topics, types and the plan of rows."""
