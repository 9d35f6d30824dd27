"""Batches for training: their order, worker processes, shared memory."""
