"""From messages to rows: ticks, resampling, poses, labels, lineage, accounts."""
