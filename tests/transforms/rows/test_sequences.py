"""Counts of episodes and scenes: sums over logs."""

from logloom.transforms.rows.sequences import SequenceCounts, merged_sequences


def test_counts_of_logs_are_summed_by_output():
    one = SequenceCounts("lerobot", "episode", 1, 2, 30, (10, 20), 10, 20)
    two = SequenceCounts("lerobot", "episode", 1, 1, 5, (5,), 5, 5, is_estimate=True)
    scenes = SequenceCounts("l5kit", "scene", 1, 1, 30, (30,), 30, 30)
    assert merged_sequences([[one, scenes], [two]]) == (
        scenes,
        SequenceCounts("lerobot", "episode", 2, 3, 35, (10, 20, 5), 5, 20, is_estimate=True),
    )
